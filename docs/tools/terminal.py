"""A terminal of its own, through tmux, and a picture of it as SVG. Knows nothing of delta."""

import html
import re
import subprocess
import time

PATIENCE = 120
# Of several blanks, a picture would keep one.
NBSP = "\u00a0"
FONT, CELL, LINE, MARGIN = 14, 8.43, 19, 18
# What stands for the colours of a terminal: the eight, then the bright ones.
SCHEMES = {
    "light": {
        "paper": "#fdfdfc", "ink": "#1c1f23", "dim": "#6b7178", "rule": "#d5d8d2",
        "colours": "#1c1f23 #b8361f #2f7a3d #94700e #3f72a8 #8a55a3 #2c8a8a #6b7178".split(),
    },
    "dark": {
        "paper": "#15171a", "ink": "#d9dbdc", "dim": "#8d949b", "rule": "#33383e",
        "colours": "#d9dbdc #ef7d66 #7cc088 #d9b04c #6fa3d8 #b98ad0 #52b6b6 #8d949b".split(),
    },
}


class Terminal:
    """A shell script that runs at a terminal of so many columns, below a directory that keeps the server's socket."""

    def __init__(self, place, environment, columns, script):
        self.command = ["tmux", "-S", str(place / "tmux"), "-f", "/dev/null"]
        self.environment = environment
        size = ["-x", str(columns), "-y", "70"]
        self.tmux("new-session", "-d", *size, f"stty -echoctl; . {script}; printf '\\033[?25l'; exec sleep {PATIENCE}")
        self.tmux("set", "-g", "status", "off")
        self.end = "\x1b[?25l"

    def tmux(self, *words):
        run = subprocess.run([*self.command, *words], env=self.environment, check=True, capture_output=True, text=True)
        return run.stdout

    def screen(self):
        """What is on the screen, with its colours."""
        return self.tmux("capture-pane", "-p", "-e").rstrip("\n")

    def wait(self, holds):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the terminal shows:\n{self.screen()}")
            time.sleep(0.05)

    def shows(self, words, times=1):
        """Waits until these words are on the screen, and this many times."""
        self.wait(lambda: plain(self.screen()).count(words) >= times)

    def types(self, text, *keys):
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", *(keys or ["Enter"]))

    def ends(self):
        """Waits until the script has ended, and returns the screen."""
        # The script hides the cursor when it has ended.
        self.wait(lambda: self.tmux("display", "-p", "#{cursor_flag}").strip() == "0")
        screen = self.screen()
        self.close()
        return screen

    def close(self):
        subprocess.run([*self.command, "kill-server"], env=self.environment, capture_output=True)


def plain(screen):
    return re.sub(r"\x1b\[[0-9;]*m", "", screen)


def pieces(line, state):
    """The parts of a line that look alike: column, text, and the set of attributes. state goes on to the next line."""
    column = 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        match = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if not match:
            if part.strip():
                yield column, part, dict(state)
            column += len(part)
            continue
        for code in map(int, (match[1] or "0").split(";")):
            if code == 0:
                state.clear()
            elif code in (1, 2, 3, 4, 7):
                state[code] = True
            elif code in (22, 23, 24, 27):
                for off in {22: (1, 2), 23: (3,), 24: (4,), 27: (7,)}[code]:
                    state.pop(off, None)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                state["colour"] = code % 10
            elif code == 39:
                state.pop("colour", None)


def svg(screen, scheme):
    """A picture of a screen in one of the schemes."""
    scheme = SCHEMES[scheme]
    lines = screen.split("\n")
    width = max(len(plain(line)) for line in lines) * CELL + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">',
        f'<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="8" fill="{scheme["paper"]}" stroke="{scheme["rule"]}"/>',
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="{FONT}"'
        f' fill="{scheme["ink"]}">',
    ]
    state = {}
    for row, line in enumerate(lines):
        y = MARGIN + row * LINE + FONT
        for column, text, style in pieces(line, state):
            attributes = ""
            if "colour" in style:
                attributes += f' fill="{scheme["colours"][style["colour"]]}"'
            elif 2 in style:
                attributes += f' fill="{scheme["dim"]}"'
            attributes += ' font-weight="bold"' if 1 in style else ""
            attributes += ' font-style="italic"' if 3 in style else ""
            attributes += ' text-decoration="underline"' if 4 in style else ""
            lead = len(text) - len(text.lstrip())
            text = text.strip()
            x = MARGIN + (column + lead) * CELL
            # The length keeps columns aligned whatever font is there.
            size = f'x="{x:.1f}" y="{y}" textLength="{len(text) * CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
            out.append(f"<text {size}{attributes}>{html.escape(text, quote=False).replace(' ', NBSP)}</text>")
    return "\n".join([*out, "</g>", "</svg>", ""])
