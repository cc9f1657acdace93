#!/usr/bin/env python3
"""Denies delete_file unless the latest confirmation that names the file was answered with yes."""
import json
import os
import sys


def answer(file):
    """The answer to the latest confirmation that names a file, or None."""
    asked, given = None, None
    with open(os.environ["JOURNAL_PATH"], encoding="utf-8") as journal:
        for event in map(json.loads, journal):
            if event["type"] == "HUMAN_INPUT_REQUEST" and event["input_type"] == "confirmation":
                if file in event["prompt"].replace("?", " ").split():
                    asked, given = event["request_id"], None
            elif event["type"] == "HUMAN_INPUT_RECEIVED" and event["request_id"] == asked:
                given = event["response"]
    return given


call = json.load(sys.stdin)
if call["tool_name"] == "delete_file":
    file = call["tool_args"]["file"]
    if (answer(file) or "").strip().lower() not in ("y", "yes"):
        control = os.path.join(os.environ["DELTA_HOOK_IO_PATH"], "output", "control.json")
        with open(control, "w", encoding="utf-8") as out:
            json.dump({"action": "deny", "message": f"the deletion of {file} has not been approved"}, out)
