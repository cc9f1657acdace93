#!/usr/bin/env python3
"""Makes the pictures of docs/pictures from runs whose model is a script: pictures.py BIN [NAME ...]

BIN has delta. Without names, all pictures are made. What is another each time (places, ids, times) is
replaced, so that the same program gives the same bytes. Needs tmux, git, make, python3 and, for the page, chromium.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

from model import Model, call
from normal import Normal
from terminal import Terminal, svg

PROJECT = Path(__file__).resolve().parent.parent.parent
PICTURES = PROJECT / "docs/pictures"
# As long as the directory in which everything happens.
HOME = "/home/user/src"
COLUMNS = 100

MEAN = "def mean(values):\n    return sum(values) / len(values)\n"
TESTS = """import unittest
from mean import mean


class MeanTest(unittest.TestCase):
    def test_of_numbers(self):
        self.assertEqual(mean([1, 2, 6]), 3)

    def test_of_nothing(self):
        self.assertEqual(mean([]), 0)


unittest.main()
"""
EDIT = call("edit", path="mean.py", old="/ len(values)", new="/ max(len(values), 1)")
FIX = [
    ["I run the tests first.", call("bash", command="make -s test")],
    call("read", path="mean.py"),
    EDIT,
    call("bash", command="make -s test"),
    "mean([]) divided by zero. It now returns 0, and both tests pass.",
]
TALK = [
    call("read", path="mean.py"),
    "It returns the arithmetic mean of a list, and fails if the list is empty.",
    EDIT,
    call("bash", command="make -s test"),
    "Done: the mean of an empty list is 0 now.",
]
ASK = [
    call("bash_net", command="make -s fixtures", reason="The tests need files that are not in the repository."),
    "The fixtures are there now: 3 files.",
]


class World:
    """A home directory with a project, the examples, and delta in PATH."""

    def __init__(self, programs):
        self.place = Path(tempfile.mkdtemp(prefix="d", dir="/tmp"))
        assert len(str(self.place)) == len(HOME)
        self.model = Model()
        self.normal = Normal({str(self.place): HOME, self.model.url: "http://127.0.0.1:18080/v1"})
        bin = self.place / ".bin"
        bin.mkdir()
        shutil.copy(programs / "delta", bin)
        for name in ("delta-flow", "delta-sessions"):
            (bin / name).symlink_to("delta")
        # That of the caller: an old one would keep no files of each step.
        (bin / "git").symlink_to(shutil.which("git"))
        self.environment = {
            "HOME": str(self.place), "PATH": f"{bin}:/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1", "DELTA_BASE_URL": self.model.url, "DELTA_MODEL": "scripted",
            "DELTA_API_KEY": "none", "GIT_CONFIG_GLOBAL": "/dev/null", "PAGER": "cat",
        }
        shutil.copytree(PROJECT / "examples", self.place / "examples", ignore=shutil.ignore_patterns("workspaces"))
        self.run("printf '.delta\\n' > .gitignore && git init -q mean && cp .gitignore mean")
        for name, text in (("mean.py", MEAN), ("test_mean.py", TESTS), ("Makefile", MAKEFILE)):
            (self.place / "mean" / name).write_text(text)

    def run(self, line, directory=".", check=True):
        """What a line of the shell prints, without colours."""
        run = subprocess.run(
            ["sh", "-c", line], cwd=self.place / directory, env=self.environment, capture_output=True, text=True
        )
        if check and run.returncode != 0:
            raise RuntimeError(f"{line}: {run.returncode}: {run.stderr}")
        return run.stdout

    def terminal(self, directory, lines, columns=COLUMNS):
        """A terminal in which these lines are typed, each after a prompt."""
        script = self.place / ".script"
        shown = [f"printf '\\033[1m$ %s\\033[0m\\n' {quoted(line)}\n{line}" for line in lines]
        script.write_text(f"cd {self.place / directory}\nclear\n" + "\n".join(shown) + "\n")
        return Terminal(self.place, self.environment, columns, script)

    def picture(self, name, screen):
        for scheme, suffix in (("light", ""), ("dark", "-dark")):
            (PICTURES / f"{name}{suffix}.svg").write_text(svg(screen, scheme), "utf-8")

    def fresh(self):
        """The project as it was, without runs."""
        self.run("rm -rf .delta && cat > mean.py <<'END'\n" + MEAN + "END\n", "mean")

    def close(self):
        subprocess.run(["tmux", "-S", str(self.place / "tmux"), "kill-server"], capture_output=True)
        shutil.rmtree(self.place, ignore_errors=True)


MAKEFILE = """test:
\t@python3 test_mean.py
fixtures:
\t@mkdir -p fixtures && touch fixtures/a fixtures/b fixtures/c && echo 3 files
"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def picture_of_run(world):
    world.fresh()
    world.model.answers = list(FIX)
    world.picture("run", world.normal.text(world.terminal("mean", ["delta run 'fix the failing test'"]).ends()))


def picture_of_chat(world):
    world.fresh()
    world.model.answers = list(TALK)
    terminal = world.terminal("mean", ["delta chat"])
    terminal.shows("\n>")
    terminal.types("What does mean.py do?")
    terminal.shows("fails if the list is empty.")
    terminal.shows("\n>", 2)
    terminal.types("Let it return 0 then.")
    terminal.shows("is 0 now.")
    terminal.shows("\n>", 3)
    terminal.types("", "C-d")
    world.picture("chat", world.normal.text(terminal.ends()))


def picture_of_question(world):
    world.fresh()
    world.model.answers = list(ASK)
    terminal = world.terminal("mean", ["delta run 'get the fixtures'"])
    terminal.shows("[y/n")
    terminal.types("yes")
    world.picture("question", world.normal.text(terminal.ends()))


def recorded(world):
    """Runs what the first picture shows, and gives the run times that are always the same."""
    world.fresh()
    world.model.answers = list(FIX)
    world.run("delta run -q 'fix the failing test'", "mean")
    world.normal.run(next((world.place / "mean/.delta").glob("2*_*")), "20260105_091500_5eed01")
    (world.place / "mean/.delta/LATEST").unlink()


def picture_of_log(world):
    recorded(world)
    world.picture("log", world.normal.without_places(world.terminal("mean", ["delta log"], 112).ends()))


def picture_of_report(world):
    recorded(world)
    page = world.place / "report.html"
    page.write_text(world.normal.without_places(world.run("delta report", "mean")), "utf-8")
    for scheme, suffix in (("1", ""), ("0", "-dark")):
        # A browser that gets too little of the machine may be late; two pictures that agree are of the whole page.
        picture, before = PICTURES / f"report{suffix}.png", None
        while before != (before := screenshot(world, page, scheme, picture)):
            pass


def screenshot(world, page, scheme, picture):
    """Makes the browser's picture of a page in a scheme, light (1) or dark (0), and returns its bytes."""
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
        f"--user-data-dir={world.place}/.browser", "--virtual-time-budget=20000", "--window-size=1080,640",
        f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}", f"file://{page}",
    ]
    subprocess.run(command, env=world.environment, check=True, capture_output=True, timeout=120)
    return picture.read_bytes()


def picture_of_flow(world):
    world.run("delta flow run examples/flow-vote -w vote -q -m 'Deploy on Fridays.'")
    drawing = world.run("delta flow graph -w vote --format svg LATEST")
    (PICTURES / "flow.svg").write_text(world.normal.text(drawing), "utf-8")
    for light, dark in (("#fff", "#15171a"), ("#444", "#8d949b"), ("#333", "#d9dbdc")):
        drawing = drawing.replace(f'"{light}"', f'"{dark}"')
    (PICTURES / "flow-dark.svg").write_text(world.normal.text(drawing), "utf-8")


EVALUATION = """suites:
  - name: tickets
    target: {command: [sh, '${FLOW_HOME}/sort.sh']}
    trials: 5
    threshold: 0.7
    settings:
      - {name: short, set: {PROMPT: short}}
      - {name: with-examples, set: {PROMPT: long}}
    cases: cases.jsonl
"""
# Fails some trials of some cases, always the same, as a model would.
SORTER = """read ticket
case $PROMPT in short) bad='[24679].[1-4]' ;; *) bad='[26].2' ;; esac
case ${PWD##*/} in *$bad-*) echo question ;; *) echo bug ;; esac
"""


def picture_of_evaluation(world):
    suite = world.place / "suite"
    suite.mkdir()
    (suite / "evaluations.yaml").write_text(EVALUATION)
    (suite / "sort.sh").write_text(SORTER)
    cases = [f'{{"id": "t{n}", "input": "Ticket {n}", "expected": "bug"}}\n' for n in range(1, 13)]
    (suite / "cases.jsonl").write_text("".join(cases))
    screen = world.terminal(".", ["delta eval suite -w measured -q"], 130).ends()
    world.picture("evaluation", world.normal.text(screen))


def picture_of_fleet(world):
    careful = "cp examples/careful/sample/* runs/{0} && delta run -q -a examples/careful -w runs/{0} -m '{1}'"
    hello = "delta run -q -a examples/hello-world -w runs/{0} -m '{1}'"
    for name, line in (
        ("greet-1", hello.format("greet-1", "Greet the world")),
        ("greet-2", hello.format("greet-2", "Greet the moon")),
        ("greet-3", hello.format("greet-3", "Greet the sun") + " --max-iterations 1"),
        ("sums", careful.format("sums", "Mend add.sh.")),
        ("budget", careful.format("budget", "Mend it cheaply.") + " --budget cost=0.002"),
        ("checked", hello.format("checked", "Greet the stars") + " --accept 'test -e missing' --set repairs=1"),
    ):
        world.run(f"mkdir -p runs/{name}; {line}", check=False)
        # In the order of the runs, not of the list.
        for run in (world.place / "runs" / name / ".delta").glob("2*_*"):
            world.normal.id_for(run.name)
    lines = ["delta list-runs -r runs", "delta list-runs -r runs --needs-attention --first"]
    world.picture("fleet", world.normal.text(world.terminal(".", lines, 130).ends()))


TRIES = """echo inside > notes.txt && cat notes.txt
echo outside > ../notes.txt
wc -c secret.key
getent hosts example.org || echo no network
"""


def picture_of_sandbox(world):
    directory = world.place / "inside"
    directory.mkdir()
    (directory / "secret.key").write_text("a secret\n")
    (directory / "try.sh").write_text(TRIES)
    lines = ["cat try.sh", "delta sandbox --rw . --no-network --hide secret.key -- sh try.sh"]
    world.picture("sandbox", world.normal.text(world.terminal("inside", lines).ends()))


SCENES = {
    "run": picture_of_run, "chat": picture_of_chat, "question": picture_of_question, "log": picture_of_log,
    "report": picture_of_report, "flow": picture_of_flow, "evaluation": picture_of_evaluation,
    "fleet": picture_of_fleet, "sandbox": picture_of_sandbox,
}


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(SCENES):
        sys.exit(f"{__doc__}\nNames: {' '.join(SCENES)}")
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[2:] or SCENES:
        # Each in a world of its own: no picture depends on another.
        world = World(Path(sys.argv[1]).resolve())
        try:
            SCENES[name](world)
            print(f"docs/pictures: {name}")
        finally:
            world.close()


if __name__ == "__main__":
    main()
