#!/usr/bin/env python3
"""The cost of a state of the files beside a plain `git add -A`, in milliseconds: files.py DELTA [FILES...]

A workspace has so many files of some lines, a hundred in a directory. Each figure is the median of eleven, with the
shortest and the longest, and the processor's time; the files are in the page cache.
"""

import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TIMES = 11


def used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1000


def timed(work):
    before, began = used(), time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000, used() - before


def shown(name, measured):
    times, processor = zip(*measured)
    low, middle, high = min(times), statistics.median(times), max(times)
    busy = statistics.median(processor)
    print(f"{name:44} {middle:8.1f}  ({low:.1f} to {high:.1f}), processor {busy:.1f}", flush=True)


def measure(delta, count, parent):
    root = pathlib.Path(tempfile.mkdtemp(dir=parent)) / "ws"
    for n in range(count):
        file = root / f"d{n // 100}" / f"f{n}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"line {n * line}\n" for line in range(20)))
    plain = root.parent / "plain"
    shutil.copytree(root, plain)
    environment = {"PATH": os.environ["PATH"], "HOME": str(parent / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q"], cwd=plain, check=True, env=environment)
    (root / ".delta").mkdir()

    last = None

    def take(is_first=False):
        nonlocal last
        order = {"root": str(root), "run_id": "r", "last": last, "since": None, "subject": "[1] x", "wrappers": [],
                 "is_first": is_first, "is_unsynced": False}
        done = subprocess.run([delta, "take-files"], input=json.dumps(order), env=environment,
                              capture_output=True, text=True, check=True)
        taken = json.loads(done.stdout)
        last = taken["Ok"]["commit"] or last

    def add():
        subprocess.run(["git", "add", "-A"], cwd=plain, check=True, env=environment)

    print(f"{count} files")
    shown("first: git add -A", [timed(add)])
    shown("first: a state", [timed(lambda: take(True))])
    time.sleep(1.1)
    add()
    take()
    shown("nothing changed: git add -A", [timed(add) for _ in range(TIMES)])
    shown("nothing changed: a state", [timed(take) for _ in range(TIMES)])

    def changed(where, work):
        def again():
            for n in range(3):
                with open(where / "d0" / f"f{n}.txt", "a") as file:
                    file.write("more\n")
            return timed(work)

        return [again() for _ in range(TIMES)]

    shown("three files changed: git add -A", changed(plain, add))
    shown("three files changed: a state, in a commit", changed(root, take))
    shutil.rmtree(root.parent)


def main():
    delta = os.path.abspath(sys.argv[1])
    counts = [int(count) for count in sys.argv[2:]] or [1000, 50000]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as parent:
        for count in counts:
            measure(delta, count, pathlib.Path(parent))


main()
