#!/usr/bin/env python3
"""Prints one line for each iteration that the model no longer sees: fold.py --keep N [--lines N]

A context generator: JOURNAL_PATH names the journal, and the output becomes the context block. Only the
newest lines are printed; older ones are counted.
"""
import argparse
import json
import os


def short(text, limit):
    """The beginning of a text, on one line."""
    words = " ".join((text or "").split())
    return words if len(words) <= limit else words[: limit - 1] + "…"


def called(event):
    """A call in a few words: the tool and its arguments."""
    values = event.get("tool_args")
    values = values.values() if isinstance(values, dict) else [values]
    return short(" ".join([event["tool_name"], *map(str, values)]), 60)


def folded(journal):
    """The thoughts and actions of each iteration, by number. Damaged lines are skipped."""
    parts, calls = {}, {}
    for line in journal:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind, number = event.get("type"), event.get("iteration")
        if kind == "THOUGHT":
            parts[number] = [short(event.get("content"), 100)]
        elif kind == "ACTION_REQUEST":
            calls[event["action_id"]] = called(event)
        elif kind == "ACTION_RESULT":
            call = calls.pop(event["action_id"], event.get("tool_name"))
            code = event.get("exit_code")
            how = "" if code == 0 else f" (exit code {code})"
            seen = short(event.get("observation_content"), 80)
            parts.setdefault(number, []).append(f"`{call}`{how} → {seen}")
    return sorted(parts.items())


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--keep", type=int, required=True, help="number of latest iterations shown in full")
    options.add_argument("--lines", type=int, default=100, help="maximum number of lines to print")
    options = options.parse_args()
    with open(os.environ["JOURNAL_PATH"], encoding="utf-8", errors="replace") as journal:
        forgotten = folded(journal)[: -options.keep]
    shown = forgotten[-options.lines :]
    if not shown:
        print("(none yet)")
    if len(shown) < len(forgotten):
        print(f"({len(forgotten) - len(shown)} older ones are not listed)")
    for number, parts in shown:
        print(f"{number}. " + "; ".join(filter(None, parts)))


main()
