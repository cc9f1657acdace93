"""Kills runs at random moments, gives the same command until each is complete, and counts what became of their calls."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Calls of a run, each of another iteration.
CALLS = 20
# Ends a run that no longer gets anywhere.
MOST_STARTS = 1000

AGENT = """name: killed
llm: {{model: scripted, base_url: '{url}'}}
ask_human: false
tools:
  - {{name: mark, description: Note which call this is, shell: 'echo "$DELTA_CALL_ID" >> ../marks; echo noted'}}
"""


class Handler(BaseHTTPRequestHandler):
    """Answers by what is in the request alone, as a model does."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        done = sum(message["role"] == "assistant" for message in request["messages"])
        message, finish = {"role": "assistant", "content": "done"}, "stop"
        if done < CALLS:
            call = {"id": f"call_{done}", "type": "function", "function": {"name": "mark", "arguments": "{}"}}
            message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        body = json.dumps({"id": "c", "object": "chat.completion", "model": "scripted", "usage": usage, "choices": [choice]})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Connections end in the middle: their programs are killed."""


def start(command, environment):
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, start_new_session=True)


def torture(delta, place, kills, seed=1):
    """Counts after so many kills: what happened, and what must not have."""
    chance = random.Random(seed)
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    agent = place / "agent"
    agent.mkdir()
    (agent / "agent.yaml").write_text(AGENT.format(url=f"http://127.0.0.1:{server.server_port}/v1"))
    (agent / "system_prompt.md").write_text("You call mark.\n")
    sources = "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n  - {type: journal}\n"
    (agent / "context.yaml").write_text(sources)
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "DELTA_API_KEY": "x"}
    counts = dict.fromkeys(("kills", "runs", "completed", "calls", "once", "twice", "unknown", "lost"), 0)
    usual = None
    while counts["kills"] < kills or usual is None:
        run = place / f"run{counts['runs']}"
        (run / "work").mkdir(parents=True)
        # With a name, so that one that was killed after its end is not begun anew.
        command = [delta, "run", "-q", "-a", str(agent), "-w", str(run / "work"), "--run-id", "killed", "-m", "go"]
        began = time.perf_counter()
        status = None
        for _ in range(MOST_STARTS):
            child = start(command, environment)
            if usual is not None and counts["kills"] < kills:
                time.sleep(chance.uniform(0, usual / 3))
                if child.poll() is None:
                    os.kill(child.pid, signal.SIGKILL)
                    counts["kills"] += 1
            status = child.wait()
            if status != -signal.SIGKILL:
                break
        usual = usual or time.perf_counter() - began
        counts["runs"] += 1
        counts["completed"] += status == 0
        count_calls(run, counts)
    server.shutdown()
    return counts


def count_calls(run, counts):
    """Each call of a run: how often its command ran, and whether the journal says so."""
    marks = (run / "marks").read_text().split()
    journal = (run / "work/.delta/killed/journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in journal]
    asked = {event["call_id"] for event in events if event["type"] == "ACTION_REQUEST"}
    results = [event["status"] for event in events if event["type"] == "ACTION_RESULT"]
    counts["calls"] += len(results)
    counts["once"] += sum(marks.count(mark) == 1 for mark in set(marks))
    counts["twice"] += sum(marks.count(mark) > 1 for mark in set(marks))
    counts["unknown"] += sum(status != "SUCCESS" for status in results)
    # A command that ran and is not in the journal, or a call without a result.
    counts["lost"] += len(set(marks) - asked) + abs(CALLS - len(results))
