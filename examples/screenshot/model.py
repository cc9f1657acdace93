#!/usr/bin/env python3
"""Serves as the model: asks for a screenshot, and says how large the picture is that it got."""
import base64
import json
import struct
import sys

request = json.load(sys.stdin)


def answer(message):
    reason = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": 1700, "completion_tokens": 20, "total_tokens": 1720}
    message["role"] = "assistant"
    json.dump({"model": "model.py", "choices": [{"finish_reason": reason, "message": message}], "usage": usage}, sys.stdout)


def pictures():
    for message in request["messages"]:
        if isinstance(message["content"], list):
            for part in message["content"]:
                if part["type"] == "image_url":
                    yield base64.b64decode(part["image_url"]["url"].split(",", 1)[1])


if request["messages"][-1]["role"] == "user" and not any(m["role"] == "tool" for m in request["messages"]):
    call = {"name": "screenshot", "arguments": json.dumps({"page": "page.html"})}
    answer({"content": "I will look at the page.", "tool_calls": [{"id": "call_1", "type": "function", "function": call}]})
else:
    found = list(pictures())
    if not found:
        answer({"content": "I got no picture: " + request["messages"][-1]["content"]})
    else:
        width, height = struct.unpack(">II", found[-1][16:24])
        answer({"content": f"I see a page of {width} by {height} pixels."})
