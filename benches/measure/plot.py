"""Plots as SVG, light and dark. Knows nothing of what is plotted."""

import html
import math

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 110, 20, 48
SCHEMES = {
    "": {"paper": "#fdfdfc", "ink": "#1c1f23", "dim": "#6b7178", "rule": "#e4e5e3",
         "series": ["#b8361f", "#3f72a8", "#2c8a6c", "#8a55a3", "#94700e"]},
    "-dark": {"paper": "#15171a", "ink": "#d9dbdc", "dim": "#8d949b", "rule": "#2a2e33",
              "series": ["#ef7d66", "#6fa3d8", "#52b695", "#b98ad0", "#d9b04c"]},
}


class Axis:
    """Where a value is, on a scale of equal steps or of equal factors."""

    def __init__(self, values, place, is_log):
        low, high = min(values), max(values)
        if is_log:
            low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
            high = max(high, 10 * low)
        else:
            high = high if high > low else low + 1
        self.low, self.high, self.place, self.is_log = low, high, place, is_log

    def at(self, value):
        of = math.log10 if self.is_log else float
        share = (of(value) - of(self.low)) / (of(self.high) - of(self.low))
        return self.place[0] + share * (self.place[1] - self.place[0])

    def ticks(self):
        if self.is_log:
            return [10.0**n for n in range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)]
        rough = (self.high - self.low) / 6
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        first = math.ceil(self.low / step)
        return [step * n for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def frame(scheme, title, x, y, labels):
    """The picture's beginning: grid, ticks and the names of the axes. labels: names of places on x, or None."""
    colours = SCHEMES[scheme]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'font-family="system-ui, \'DejaVu Sans\', sans-serif" font-size="12" fill="{colours["ink"]}">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{colours["paper"]}"/>',
    ]
    for tick in y[1].ticks():
        at = y[1].at(tick)
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="{colours["rule"]}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" fill="{colours["dim"]}">{tick:g}</text>')
    for tick, label in labels or [(tick, f"{tick:g}") for tick in x[1].ticks()]:
        at = x[1].at(tick)
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="{colours["dim"]}">{html.escape(label)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{html.escape(x[0])}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{html.escape(y[0])}</text>')
    return out


def axes(xs, ys, is_log_x, is_log_y):
    return Axis(xs, (LEFT, WIDTH - RIGHT), is_log_x), Axis(ys, (HEIGHT - BOTTOM, TOP), is_log_y)


def names_beside(ends):
    """The heights of names beside lines that end at these heights, so that none covers another."""
    placed, last = {}, -math.inf
    for at, name in sorted((at, name) for name, at in ends.items()):
        last = max(at, last + 15)
        placed[name] = last
    return placed


def lines(title, x, y, series, is_log_x=False, is_log_y=False):
    """A line for each series, a list of points by its name; a picture for each scheme."""
    points = [point for some in series.values() for point in some]
    across, up = axes([point[0] for point in points], [point[1] for point in points], is_log_x, is_log_y)
    pictures = {}
    for scheme, colours in SCHEMES.items():
        out = frame(scheme, title, (x, across), (y, up), None)
        names = names_beside({name: up.at(some[-1][1]) for name, some in series.items()})
        for (name, some), colour in zip(series.items(), colours["series"] * 2):
            path = "L".join(f"{across.at(a):.1f} {up.at(b):.1f}" for a, b in some)
            out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>')
            end = across.at(some[-1][0])
            out.append(f'<text x="{end + 6:.1f}" y="{names[name] + 4:.1f}" fill="{colour}" font-weight="600">{html.escape(name)}</text>')
        pictures[scheme] = "\n".join([*out, "</svg>", ""])
    return pictures


def ranges(title, x, y, groups, wanted):
    """For each group a bar from least to greatest for each of its series, and a line at the wanted value."""
    names = list(next(iter(groups.values())))
    every = [value for some in groups.values() for pair in some.values() for value in pair]
    across, up = axes([-0.5, len(groups) - 0.5], [min(every) - 2, 100], False, False)
    pictures = {}
    for scheme, colours in SCHEMES.items():
        out = frame(scheme, title, (x, across), (y, up), list(enumerate(groups)))
        out.append(f'<path d="M{LEFT} {up.at(wanted):.1f}H{WIDTH - RIGHT}" stroke="{colours["ink"]}" stroke-dasharray="4 4"/>')
        for at, some in enumerate(groups.values()):
            for number, (name, (low, high)) in enumerate(some.items()):
                place = across.at(at) + (number - (len(names) - 1) / 2) * 18
                out.append(f'<path d="M{place:.1f} {up.at(low):.1f}V{up.at(high) - 1:.1f}" stroke="{colours["series"][number]}" stroke-width="10"/>')
        for number, name in enumerate(names):
            y_at = TOP + 16 + 34 * number
            words = name.split(" ", 1)
            out.append(f'<rect x="{WIDTH - RIGHT + 8}" y="{y_at - 9}" width="10" height="10" fill="{colours["series"][number]}"/>')
            for row, word in enumerate(words):
                out.append(f'<text x="{WIDTH - RIGHT + 22}" y="{y_at + 14 * row}" font-size="11">{html.escape(word)}</text>')
        pictures[scheme] = "\n".join([*out, "</svg>", ""])
    return pictures
