#!/usr/bin/env python3
"""Renders the manual and docs/ as HTML that works from a directory, without a server: build.py DIRECTORY

Needs mandoc and Python 3.9. Everything that DIRECTORY held before is removed. Fails, with a line for each, if a link or
a picture of a page has no target.
"""

import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAN = HERE.parent
DOCS = MAN.parent / "docs"
PAGE_FILE = re.compile(r"(delta[a-z-]*)\.([157])")

FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="stylesheet" href="style.css">
<script src="search.js" defer></script>
</head>
<body>
<header>
<a class="home" href="index.html">delta</a>
<form role="search" hidden><input type="search" placeholder="Search the manual" aria-label="Search the manual"
autocomplete="off" spellcheck="false"><ol></ol></form>
</header>
<div class="page">
{contents}<main>
{body}
</main>
</div>
</body>
</html>
"""


class Problem(Exception):
    """What keeps the pages from being made."""


def read(file):
    return file.read_text("utf-8")


# -- Pages of the manual


def manual_pages():
    """Name, section and file of each page, in the order of the sections."""
    found = [(PAGE_FILE.fullmatch(file.name), file) for file in MAN.iterdir()]
    return sorted((match[2], match[1], file) for match, file in found if match)


def summary_of(source):
    return re.search(r"^\.Nd (.*)$", source, re.M)[1]


def link_to_page(match, pages):
    """A reference: a link if the page is one of ours, else its name."""
    name, section = match[1], match[2]
    if (section, name) in pages:
        return f'<a class="Xr" href="{name}.{section}.html">{name}({section})</a>'
    if name.startswith("delta"):
        raise Problem(f"there is no page {name}({section})")
    return f'<span class="Xr">{name}({section})</span>'


def link_to_section(match):
    """A reference to a section of this page or, followed by "in PAGE(N)" or "of PAGE(N)", of that one."""
    anchor = re.sub(r"\s+", "_", match[1])
    return f'<a class="Sx" href="{match[3] or ""}#{anchor}">{match[1]}</a>{match[2] or ""}'


def render_manual(section, name, file, pages):
    """The title and the body of a page."""
    command = ["mandoc", "-Ios=delta", "-Thtml", "-Ofragment", str(file)]
    text = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
    text = re.sub(r'<table class="(head|foot)">.*?</table>', "", text, flags=re.S)
    # The heading of the page says what this section would.
    text = re.sub(r'<section class="Sh">\s*<h1 class="Sh" id="NAME">.*?</section>', "", text, count=1, flags=re.S)
    for level in (2, 1):
        text = re.sub(rf"<(/?)h{level}\b", rf"<\1h{level + 1}", text)
    text = re.sub(r'<a class="Xr">([^<(]+)\((\w+)\)</a>', lambda match: link_to_page(match, pages), text)
    in_page = r'(\s+(?:in|of)\s+<a class="Xr" href="([^"]+)">)?'
    text = re.sub(r'<a class="Sx" href="[^"]*">([^<]+)</a>' + in_page, link_to_section, text)
    text = re.sub(r'<table class="Bl-column.*?</table>', r'<div class="wide">\g<0></div>', text, flags=re.S)
    text = re.sub(r"<br/>\s*(?=<table)", "", text)
    title = f"{name}({section})"
    heading = f'<h1>{title}</h1>\n<p class="lead">{html.escape(summary_of(read(file)))}</p>\n'
    return title, heading + text


# -- Pages in Markdown


def inline(text, pages):
    """Code, emphasis and links of a line of Markdown. `delta help PAGE` leads to that page."""

    def of_code(match):
        code = html.escape(match[1], quote=False)
        page = re.fullmatch(r"delta help ([a-z][a-z-]*)(?:\.([157]))?", match[1])
        if not page:
            return f"<code>{code}</code>"
        name = page[1] if page[1] == "delta" else f"delta-{page[1]}"
        sections = [section for section, other in sorted(pages) if other == name and page[2] in (None, section)]
        if not sections:
            raise Problem(f"there is no page for: {match[1]}")
        return f'<a href="{name}.{sections[0]}.html"><code>{code}</code></a>'

    def of_link(match):
        target = match[2]
        if target.startswith("../"):
            return match[1]
        target = re.sub(r"^([\w-]+)\.md\b", r"\1.html", target)
        return f'<a href="{html.escape(target)}">{match[1]}</a>'

    def of_picture(match):
        return f'<img src="{html.escape(match[2])}" alt="{match[1]}">'

    parts = re.split(r"(`[^`]+`)", text)
    for at, part in enumerate(parts):
        if at % 2:
            parts[at] = re.sub(r"`(.*)`", of_code, part)
        else:
            part = html.escape(part, quote=False)
            part = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", part)
            parts[at] = re.sub(r"(?<!\w)\*(.+?)\*(?!\w)", r"<em>\1</em>", part)
    text = re.sub(r"!\[([^\]]*)\]\(([^)]+)\)", of_picture, "".join(parts))
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", of_link, text)


def docs():
    """The pages of docs/, by their titles."""
    return sorted(DOCS.glob("*.md"), key=lambda file: title_of(read(file)))


def title_of(text):
    return re.search(r"^# (.*)$", text, re.M)[1]


def slug(text):
    return re.sub(r"[^\w-]", "", text.lower().replace(" ", "-"))


def table_of(lines, pages):
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
    rows = [[inline(cell.replace("\\|", "|"), pages) for cell in row] for row in rows]
    head = "".join(f"<th>{cell}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows[2:])
    return f'<div class="wide"><table class="figures">\n<tr>{head}</tr>\n{body}</table></div>'


def block_of(lines, pages):
    """A paragraph, heading, list, table or piece of HTML: lines between two empty ones."""
    first = lines[0]
    heading = re.match(r"(#+) (.*)", first)
    if heading:
        level, text = len(heading[1]), heading[2]
        rest = [block_of(lines[1:], pages)] if lines[1:] else []
        return "\n".join([f'<h{level} id="{slug(text)}">{inline(text, pages)}</h{level}>', *rest])
    if first.startswith("<"):
        return "\n".join(lines)
    if first.startswith("|"):
        return table_of(lines, pages)
    if first.startswith("- "):
        items = re.split(r"^- ", "\n".join(lines), flags=re.M)[1:]
        return "<ul>\n" + "\n".join(f"<li>{inline(item.strip(), pages)}</li>" for item in items) + "\n</ul>"
    return f"<p>{inline(chr(10).join(lines), pages)}</p>"


def render_markdown(text, pages):
    """The title and the body of a page in the Markdown that docs/ uses."""
    blocks, held, code = [], [], None
    for line in [*text.splitlines(), ""]:
        if line.startswith("```"):
            if code is not None:
                blocks.append("<pre>" + html.escape("\n".join(code), quote=False) + "</pre>")
            code = [] if code is None else None
        elif code is not None:
            code.append(line)
        elif line.strip():
            held.append(line)
            continue
        if held and code in (None, []):
            blocks.append(block_of(held, pages))
            held = []
    return title_of(text), "\n".join(blocks)


# -- The whole


class Outline(HTMLParser):
    """What a page has: its ids, its links, its headings, and its text in pieces that a search can lead to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.headings = [], [], []
        self.pieces = [["", "", ""]]
        self.open = None
        self.in_main = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.in_main = self.in_main or tag == "main"
        if "id" in attrs:
            self.ids.append(attrs["id"])
        self.links += [attrs[name] for name in ("href", "src", "srcset") if name in attrs]
        if tag in ("h2", "h3", "dt") and "id" in attrs:
            self.pieces.append([attrs["id"], "", ""])
            self.open = tag
        elif self.in_main and tag in ("p", "pre", "li", "td", "dd", "dt", "h1"):
            self.pieces[-1][2] += " "

    def handle_endtag(self, tag):
        if tag == self.open:
            if tag != "dt":
                self.headings.append((tag, *self.pieces[-1][:2]))
            self.open = None
        self.in_main = self.in_main and tag != "main"

    def handle_data(self, data):
        if self.in_main:
            self.pieces[-1][1 if self.open else 2] += data


def contents_of(outline):
    links = [
        f'<li class="{tag}"><a href="#{anchor}">{html.escape(" ".join(text.split()), quote=False)}</a></li>'
        for tag, anchor, text in outline.headings
    ]
    return '<nav aria-label="On this page"><ul>\n' + "\n".join(links) + "\n</ul></nav>\n" if len(links) > 1 else ""


def index_page(pages):
    """The tasks, and the list of all pages."""
    _, tasks = render_markdown(read(HERE / "index.md"), pages)
    parts = [tasks]
    for section, title in (("7", "Guides"), ("1", "Commands"), ("5", "Files")):
        rows = [
            f'<tr><td><a href="{name}.{number}.html">{name}({number})</a></td>'
            f"<td>{html.escape(summary_of(read(file)))}</td></tr>"
            for (number, name), file in pages.items()
            if number == section
        ]
        parts.append(f'<h2 id="{title.lower()}">{title}</h2>\n<table class="pages">\n' + "\n".join(rows) + "\n</table>")
    more = [f'<li><a href="{file.stem}.html">{html.escape(title_of(read(file)))}</a></li>' for file in docs()]
    parts.append('<h2 id="background">Background</h2>\n<ul>\n' + "\n".join(more) + "\n</ul>")
    return "The manual of delta", "\n".join(parts)


def dead_links(outlines, to):
    """A line for each link or picture without a target."""
    for name, outline in outlines.items():
        for link in outline.links:
            if re.match(r"https?:", link):
                continue
            file, _, anchor = link.partition("#")
            file = file or name
            if file in outlines:
                if anchor and anchor not in outlines[file].ids:
                    yield f"{name}: {link}: {file} has no such place"
            elif not (to / file).is_file():
                yield f"{name}: {link}: there is no such file"


def search_index(titles, outlines):
    """All pieces of all pages: page, anchor, heading, text."""
    pages = [[name, titles[name]] for name in outlines]
    pieces = [
        [at, *(" ".join(part.split()) for part in piece)]
        for at, outline in enumerate(outlines.values())
        for piece in outline.pieces
        if "".join(piece).strip()
    ]
    return "searchIndex(" + json.dumps([pages, pieces], ensure_ascii=False, separators=(",", ":")) + ");\n"


def build(to):
    pages = {(section, name): file for section, name, file in manual_pages()}
    bodies = {"index.html": index_page(pages)}
    for (section, name), file in pages.items():
        bodies[f"{name}.{section}.html"] = render_manual(section, name, file, pages)
    for file in docs():
        try:
            bodies[f"{file.stem}.html"] = render_markdown(read(file), pages)
        except Problem as problem:
            raise Problem(f"{file.name}: {problem}") from problem
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in ("style.css", "search.js"):
        shutil.copy(HERE / name, to)
    if (DOCS / "pictures").is_dir():
        shutil.copytree(DOCS / "pictures", to / "pictures")
    outlines = {}
    for name, (title, body) in bodies.items():
        contents = contents_of(Outline(f"<main>{body}</main>")) if name != "index.html" else ""
        text = FRAME.format(title=html.escape(title), contents=contents, body=body)
        outlines[name] = Outline(text)
        (to / name).write_text(text, "utf-8")
    titles = {name: title for name, (title, _) in bodies.items()}
    (to / "search-index.js").write_text(search_index(titles, outlines), "utf-8")
    dead = sorted(set(dead_links(outlines, to)))
    if dead:
        raise Problem("\n".join(dead))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not shutil.which("mandoc"):
        sys.exit("man/html/build.py: mandoc is not installed")
    try:
        build(Path(sys.argv[1]))
    except Problem as problem:
        sys.exit("\n".join(f"man/html/build.py: {line}" for line in str(problem).splitlines()))


if __name__ == "__main__":
    main()
