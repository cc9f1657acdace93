#!/usr/bin/env python3
"""Shortens long tool results, except the latest two, in the request before it is sent."""
import json
import os
import sys

KEEP = 2
LONGEST = 1000

request = json.load(sys.stdin)
results = [message for message in request["messages"] if message["role"] == "tool"]
for message in results[:-KEEP]:
    text = message["content"]
    if len(text) > LONGEST:
        head, tail = text[: LONGEST // 2], text[-LONGEST // 2 :]
        message["content"] = f"{head}\n[... shortened ...]\n{tail}"

output = os.path.join(os.environ["DELTA_HOOK_IO_PATH"], "output", "final_payload.json")
with open(output, "w") as final:
    json.dump(request, final, ensure_ascii=False)
