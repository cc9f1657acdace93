#!/usr/bin/env python3
"""Measures delta and its peers on this machine, and writes docs/measurements.md with its plots.

Usage: measure.py [--runs N] [--length N] [--kills N] [--only NAME,...] [--simulation FILE] [--to DIRECTORY] [DELTA]

Figures mean something on an idle machine only. --simulation names what the bench prints with --evaluation. Peers that
are not in PATH are installed below target/peers, as benches/peers/compare.py does; those that cannot be are named.
"""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT / "benches/peers"))

import compare
import kills
import plot

# Takes a quarter of an hour to build, so it is measured only where it is.
SLOW_TO_BUILD = "aichat"
# Iterations of the peers' long run.
PEERS_LENGTH = 300
WINDOWS = 20


def first_line(*command):
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return (run.stdout.strip().splitlines() or ["unknown"])[0]


def machine(place):
    """What the figures depend on, without names of the machine."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", info, re.M)
    memory = int(re.search(r"MemTotal: *(\d+)", Path("/proc/meminfo").read_text())[1])
    # A name of the package may hold one of the machine's: only the numbers.
    kernel = re.match(r"[\d.]+", platform.release())[0]
    return [
        ("processor", f"{model[1] if model else platform.machine()}, {len(os.sched_getaffinity(0))} cores"),
        ("memory", f"{memory / 2**20:.0f} GiB"),
        ("kernel", f"Linux {kernel}"),
        ("file system", first_line("findmnt", "-n", "-o", "FSTYPE", "-T", str(place))),
        ("compiler", first_line("rustc", "--version").split(" (")[0]),
        ("load before", f"{os.getloadavg()[0]:.2f}"),
    ]


def windows(gaps, count=WINDOWS):
    """The median time between requests, in ms, in so many parts of a run: points of iteration and time."""
    size = max(1, len(gaps) // count)
    parts = [gaps[at:at + size] for at in range(0, len(gaps) - size + 1, size)]
    return [((at + 0.5) * size, 1000 * statistics.median(part)) for at, part in enumerate(parts)]


def of_lengths(length):
    """Measures a peer as compare.py does, and a long run besides."""

    def work(peer, program, place, runs):
        figures = compare.measure(peer, program, place, runs)
        calls = length if peer.name == "delta" else min(length, PEERS_LENGTH)
        _, gaps, _ = compare.run_once(peer, program, place, "long", calls)
        return {**figures, "length": windows(gaps)}

    return work


def simulated(text):
    """Least and greatest coverage by number of cases and kind of interval, of what the bench prints."""
    head = next(line for line in text.splitlines() if line.startswith("cases"))
    names = re.split(r" {2,}", head)[1:-1]
    rows = {}
    for line in text[text.index(head):].splitlines()[1:]:
        cells = re.findall(r"([\d.]+) to ([\d.]+)", line)
        if len(cells) != len(names):
            break
        rows[line.split()[0]] = {name: (float(low), float(high)) for name, (low, high) in zip(names, cells)}
    return rows


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def picture(name, alt):
    source = f'<source media="(prefers-color-scheme: dark)" srcset="pictures/{name}-dark.svg">'
    return f'<picture>{source}<img src="pictures/{name}.svg" alt="{alt}"></picture>'


def draw(directory, name, pictures):
    for scheme, text in pictures.items():
        (directory / "pictures" / f"{name}{scheme}.svg").write_text(text, "utf-8")


def peers_part(results, skipped, runs, to):
    base = results["delta"]
    rows = []
    for name, figures in results.items():
        cells = []
        for key in compare.UNITS:
            ratio = "" if name == "delta" else f" ({figures[key] / base[key]:.1f}×)"
            cells.append(f"{figures[key]:.1f}{ratio}")
        rows.append([f"{name} {figures['version']}", *cells])
    head = ["", *(f"{key}, {unit}" for key, unit in compare.UNITS.items())]
    series = {name: figures["length"] for name, figures in results.items()}
    title = "Time between two requests against the number of iterations"
    draw(to, "measured-length", plot.lines(title, "iteration", "ms between requests", series, True, True))
    missing = [f"{name} is left out: {why}." for name, why in skipped.items()]
    return f"""## Beside other programs

Each program runs against the same scripted model on this machine, which takes no time to think: a whole run without a tool, one of ten calls of
`true`, the time between two requests after a hundred calls, and the largest resident memory of one process. Medians of {runs} runs. delta
syncs its journal to the disk before each command.

{table(head, rows)}

{" ".join(missing)}

## Against the length of a run

The time from an answer to the next request, with one call of `true` between them; medians of {WINDOWS} parts of one run each.

{picture("measured-length", title)}
"""


def kills_part(counts):
    rows = [
        ("kills with SIGKILL, at random moments", counts["kills"]),
        ("runs, each resumed by the same command until it ended", counts["runs"]),
        ("runs that completed", counts["completed"]),
        ("calls of the model with a result in the journal", counts["calls"]),
        ("commands that ran once", counts["once"]),
        ("commands that ran twice", counts["twice"]),
        ("calls whose end is unknown, as the model is told", counts["unknown"]),
        ("calls lost: run but not recorded, or without a result", counts["lost"]),
    ]
    return f"""## Kills

A run of {kills.CALLS} calls is killed again and again, and the same command resumes it. A call that was interrupted is not repeated, unless its
tool allows it; the model is told that its end is unknown.

{table(["", "count"], rows)}
"""


def evaluation_part(rows, to):
    title = "Coverage of intervals of 95 %, by number of cases"
    draw(to, "measured-coverage", plot.ranges(title, "cases", "covered, %", rows, 95))
    names = list(next(iter(rows.values())))
    cells = [[cases, *(f"{low:.0f} to {high:.0f}" for low, high in row.values())] for cases, row in rows.items()]
    return f"""## Intervals of an evaluation

How often an interval of 95 % covers the truth, in percent, over simulated suites whose truth is known: the lowest and the highest of 27 kinds
of suites. `delta eval` prints the intervals of the last two columns.

{table(["cases", *names], cells)}

{picture("measured-coverage", title)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("delta", nargs="?", default=str(PROJECT / "target/release/delta"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--length", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--only", default=",".join(peer.name for peer in compare.PEERS))
    parser.add_argument("--simulation", type=Path)
    parser.add_argument("--to", type=Path, default=PROJECT / "docs")
    wanted = parser.parse_args()
    began = time.monotonic()
    delta = os.path.abspath(wanted.delta)
    into = PROJECT / "target/peers"
    (wanted.to / "pictures").mkdir(parents=True, exist_ok=True)
    of_machine = machine(into.parent)
    skipped = {}
    only = wanted.only.split(",")
    if SLOW_TO_BUILD in only and not (into / SLOW_TO_BUILD).exists() and not compare.shutil.which(SLOW_TO_BUILD):
        only.remove(SLOW_TO_BUILD)
        skipped[SLOW_TO_BUILD] = "it was not installed, and takes long to build"
    results, failed = compare.compare(delta, only, into, wanted.runs, of_lengths(wanted.length))
    if "delta" not in results:
        sys.exit(f"measure.py: {failed['delta']}")
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as place:
        counts = kills.torture(delta, Path(place), wanted.kills)
    parts = [peers_part(results, {**skipped, **failed}, wanted.runs, wanted.to), kills_part(counts)]
    if wanted.simulation:
        parts.append(evaluation_part(simulated(wanted.simulation.read_text("utf-8")), wanted.to))
    text = f"""# Measurements

Made on one machine by `make measure`, which makes this page and its plots again; `benches/peers/compare.py` prints the first table alone. Other
measurements, and what they say about costs, are in [benches/README.md](../benches/README.md).

{table(["", ""], [*of_machine, ("delta", results["delta"]["version"]), ("took", f"{(time.monotonic() - began) / 60:.0f} minutes")])}

""" + "\n".join(parts)
    (wanted.to / "measurements.md").write_text(re.sub(r"\n{3,}", "\n\n", text), "utf-8")
    print(wanted.to / "measurements.md")
    wrong = {key: counts[key] for key in ("twice", "lost") if counts[key]} or counts["completed"] != counts["runs"]
    if wrong:
        sys.exit(f"measure.py: kills: {counts}")


if __name__ == "__main__":
    main()
