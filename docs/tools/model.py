"""A server of chat completions that gives prepared answers, one after the other."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def call(tool, **arguments):
    return tool, arguments


def message_of(answer, number):
    """A text, one or more calls, or both in a list, as the message of an assistant."""
    parts = answer if isinstance(answer, list) else [answer]
    calls = [part for part in parts if isinstance(part, tuple)]
    message = {"role": "assistant", "content": "".join(part for part in parts if isinstance(part, str)) or None}
    if calls:
        message["tool_calls"] = [
            {
                "index": at,
                "id": f"call_{number}_{at}",
                "type": "function",
                "function": {"name": tool, "arguments": json.dumps(arguments)},
            }
            for at, (tool, arguments) in enumerate(calls)
        ]
    return message


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = self.rfile.read(int(self.headers["Content-Length"]))
        model = self.server.model
        model.number += 1
        message = message_of(model.answers.pop(0), model.number)
        finish = "tool_calls" if "tool_calls" in message else "stop"
        # About four bytes make a token, as with most models.
        usage = {"prompt_tokens": len(request) // 400 * 100, "completion_tokens": len(json.dumps(message)) // 4}
        usage["total_tokens"] = sum(usage.values())
        common = {"id": "c", "created": 1, "model": "scripted", "usage": usage}
        choice = {"index": 0, "finish_reason": finish}
        if json.loads(request).get("stream"):
            chunk = {**common, "object": "chat.completion.chunk", "choices": [{**choice, "delta": message}]}
            body, kind = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", "text/event-stream"
        else:
            body = json.dumps({**common, "object": "chat.completion", "choices": [{**choice, "message": message}]})
            kind = "application/json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


class Model:
    """The server; its answers are a list that each request shortens."""

    def __init__(self):
        self.answers, self.number = [], 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.model = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
