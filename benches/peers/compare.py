#!/usr/bin/env python3
"""Runs delta and its peers against one scripted model on loopback, and prints medians and ratios to delta.

Usage: compare.py [--runs N] [--only NAME,...] [--into DIRECTORY] [DELTA]

Peers that are not in PATH are installed below the directory (target/peers) from their registries, by pip, npm and
cargo; those that cannot be are skipped, with a reason. The peers' settings and records are below a directory that is
removed. DELTA is the program to compare, target/release/delta unless named. Needs Python 3.9; nothing else.

Measured: a whole run without a tool, one of ten calls of `true`, the time from an answer to the next request after a
hundred calls (the median of the last twenty), and the largest resident memory of any one process, in the run of a
hundred. The model thinks no time. Figures mean something on an idle machine only.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 600
# What the first line of a program's version says.
VERSION = re.compile(r"\d+(\.\d+)+")
MANY_CALLS = 100


class Script:
    """What the model does: so many calls, then an answer. Notes when requests arrive and answers have left."""

    def __init__(self):
        self.calls = 0
        self.gaps = []
        self.requests = 0
        self.answered_at = None
        self.session = None
        self.peak = 0.0

    def begin(self, calls):
        self.__init__()
        self.calls = calls


def arguments_of(parameters):
    """Arguments that run `true`, for a tool whose parameters nobody told us."""
    properties = parameters.get("properties", {})
    for name in ("command", "cmd", "script"):
        if name in properties:
            is_list = properties[name].get("type") == "array"
            return {name: ["true"] if is_list else "true"}
    return {}


def pick_tool(tools):
    """The name and the arguments of the first tool that runs a command."""
    found = []
    for tool in tools or []:
        tool = tool.get("function", tool)
        if "name" in tool:
            found.append((tool["name"], arguments_of(tool.get("parameters") or {})))
    return next((one for one in found if one[1]), None)


def chat_answer(call, number):
    """The message of a chat completion."""
    if call is None:
        return {"role": "assistant", "content": "done"}, "stop"
    function = {"name": call[0], "arguments": json.dumps(call[1])}
    calls = [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"


def chat_body(message, finish, is_streamed):
    """A chat completion: whole, or as the events of a stream."""
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    common = {"id": "c", "created": 1, "model": "scripted", "usage": usage}
    choice = {"index": 0, "finish_reason": finish}
    if not is_streamed:
        return json.dumps({**common, "object": "chat.completion", "choices": [{**choice, "message": message}]})
    common["object"] = "chat.completion.chunk"
    chunks = [
        {**common, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**common, "choices": [{**choice, "delta": {}}]},
    ]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def responses_body(call, number):
    """An answer of the Responses API as the events of a stream."""
    if call is None:
        text = {"type": "output_text", "text": "done", "annotations": []}
        item = {"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed", "content": [text]}
    else:
        item = {"type": "function_call", "id": f"f{number}", "call_id": f"call_{number}", "name": call[0],
                "arguments": json.dumps(call[1]), "status": "completed"}
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12,
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    response = {"id": f"r{number}", "object": "response", "status": "completed", "model": "scripted",
                "output": [item], "usage": usage}
    events = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def peak_of_session(session):
    """The largest resident memory, in MB, that a process of a session has had. 0 if the kernel does not say."""
    peaks = [0]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the name, in brackets: state, parent, group, session.
            if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == session:
                lines = (stat.parent / "status").read_text().splitlines()
                peaks += [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
        except (OSError, IndexError):
            continue  # It has ended meanwhile.
    return max(peaks) / 1024


class Handler(BaseHTTPRequestHandler):
    """One connection of a peer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        self.send(json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}), False)

    def do_POST(self):
        script = self.server.script
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        now = time.perf_counter()
        if script.answered_at is not None:
            script.gaps.append(now - script.answered_at)
        script.requests += 1
        if script.requests == script.calls + 1:
            script.peak = peak_of_session(script.session)
        request = json.loads(body)
        is_due = script.requests <= script.calls
        call = pick_tool(request.get("tools")) if is_due else None
        if self.path.endswith("/responses"):
            self.send(responses_body(call, script.requests), True)
        else:
            message, finish = chat_answer(call, script.requests)
            is_streamed = request.get("stream", False)
            self.send(chat_body(message, finish, is_streamed), is_streamed)
        script.answered_at = time.perf_counter()

    def send(self, text, is_stream):
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Peer:
    """A program: how it is had, prepared and started."""

    def __init__(self, name, find, prepare, command):
        self.name, self.find, self.prepare, self.command = name, find, prepare, command


def quietly(*command):
    """Runs a command that installs something. Raises with the end of what it said."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          timeout=3 * PATIENCE, check=False)
    if done.returncode != 0:
        lines = done.stdout.decode(errors="replace").strip().splitlines()
        raise OSError(f"{command[0]}: {lines[-1] if lines else done.returncode}")


def installed(name, into, where, *commands):
    """The program in PATH, or below the directory, where the commands put it."""
    found = shutil.which(name)
    if found:
        return found
    path = into / where
    if not path.exists():
        print(f"installing {name}", file=sys.stderr)
        for command in commands:
            quietly(*command)
    return str(path)


def find_npm(name, package):
    def find(into):
        return installed(name, into, f"npm/node_modules/.bin/{name}",
                         ("npm", "install", "--silent", "--prefix", str(into / "npm"), package))
    return find


def find_llm(into):
    return installed("llm", into, "llm/bin/llm", (sys.executable, "-m", "venv", str(into / "llm")),
                     (str(into / "llm/bin/pip"), "install", "--quiet", "llm"))


def find_aichat(into):
    return installed("aichat", into, "aichat/bin/aichat",
                     ("cargo", "install", "--quiet", "--locked", "--root", str(into / "aichat"), "aichat"))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def prepare_delta(home, url):
    write(home / "agent/agent.yaml", f"""name: bench
llm: {{model: scripted, base_url: '{url}'}}
ask_human: false
max_iterations: 10000
tools:
  - {{name: bash, description: Run a command, exec: 'sh -c ${{command}}'}}
""")
    write(home / "agent/system_prompt.md", "You run commands.\n")
    write(home / "agent/context.yaml",
          "sources:\n  - {type: file, id: prompt, path: '${AGENT_HOME}/system_prompt.md'}\n  - {type: journal, id: conversation}\n")


def prepare_llm(home, url):
    write(home / "llm/extra-openai-models.yaml",
          f"- {{model_id: scripted, model_name: scripted, api_base: '{url}', supports_tools: true}}\n")
    write(home / "tools.py", 'import subprocess\n\n\ndef bash(command: str) -> str:\n    """Run a command."""\n'
          '    return subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout\n')


def prepare_aichat(home, url):
    write(home / "aichat/config.yaml", f"""model: local:scripted
function_calling: true
use_tools: run_command
clients:
  - type: openai-compatible
    name: local
    api_base: '{url}'
    models: [{{name: scripted, supports_function_calling: true}}]
""")
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    tool = {"name": "run_command", "description": "Run a command.", "parameters": parameters}
    write(home / "aichat/functions/functions.json", json.dumps([tool]))
    # A result that is empty would end the run.
    program = home / "aichat/functions/bin/run_command"
    write(program, '#!/bin/sh\ntrue\necho done >"$LLM_OUTPUT"\n')
    program.chmod(0o755)


def prepare_pi(home, url):
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "x", "models": [{"id": "scripted"}]}
    write(home / "pi/models.json", json.dumps({"providers": {"local": provider}}))


def prepare_codex(home, url):
    write(home / "codex/config.toml", f"""model = "scripted"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "{url}"
wire_api = "responses"
""")


PEERS = [
    Peer("delta", None, prepare_delta,
         lambda program, home, n: [program, "run", "-q", "-a", str(home / "agent"), "-w", str(home / f"w{n}"), "-m", "go"]),
    Peer("aichat", find_aichat, prepare_aichat, lambda program, home, n: [program, "go"]),
    Peer("codex", find_npm("codex", "@openai/codex"), prepare_codex,
         lambda program, home, n: [program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "go"]),
    Peer("pi", find_npm("pi", "@earendil-works/pi-coding-agent"), prepare_pi,
         lambda program, home, n: [program, "-p", "--offline", "--provider", "local", "--model", "scripted", "go"]),
    Peer("llm", find_llm, prepare_llm,
         lambda program, home, n: [program, "-m", "scripted", "--functions", str(home / "tools.py"), "--cl", "0", "go"]),
]


def environment(home):
    """A home of its own, and nothing that names an account."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "TERM")}
    return {**kept, "HOME": str(home), "LLM_USER_PATH": str(home / "llm"), "OPENAI_API_KEY": "x", "DELTA_API_KEY": "x",
            "AICHAT_CONFIG_DIR": str(home / "aichat"), "PI_CODING_AGENT_DIR": str(home / "pi"), "PI_OFFLINE": "1",
            "CODEX_HOME": str(home / "codex")}


class Failure(Exception):
    """A peer did not do what it was to be timed at."""


def run_once(peer, program, place, number, calls):
    """Seconds, the gaps between requests, and the peak of resident memory in MB of one run."""
    home, url, script = place
    script.begin(calls)
    command = peer.command(program, home, number)
    work = home / "work"
    work.mkdir(exist_ok=True)
    with open(home / "output", "wb") as output:
        began = time.perf_counter()
        child = subprocess.Popen(command, cwd=work, env=environment(home), stdin=subprocess.DEVNULL,
                                 stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        script.session = child.pid
        timer = threading.Timer(PATIENCE, child.kill)
        timer.start()
        child.wait()
        seconds = time.perf_counter() - began
        timer.cancel()
    if child.returncode != 0 or script.requests < calls + 1:
        said = (home / "output").read_text(errors="replace").strip().splitlines()
        raise Failure(f"exit code {child.returncode}, {script.requests} requests of {calls + 1}: {(said or [''])[-1][:200]}")
    return seconds, script.gaps, script.peak


def measure(peer, program, place, runs):
    """The figures of a peer; the first run of each kind is not counted."""
    figures = {}
    for name, calls in (("answer", 0), ("ten calls", 10)):
        times = [run_once(peer, program, place, f"{calls}-{n}", calls)[0] for n in range(runs + 1)]
        figures[name] = 1000 * statistics.median(times[1:])
    _, gaps, memory = run_once(peer, program, place, "many", MANY_CALLS)
    figures["between requests"] = 1000 * statistics.median(gaps[MANY_CALLS - 20:MANY_CALLS])
    figures["resident"] = memory
    return figures


UNITS = {"answer": "ms", "ten calls": "ms", "between requests": "ms", "resident": "MB"}


def print_table(results):
    """One row for each peer: the figure, and how many times delta's it is."""
    print(f"{'':10}" + "".join(f"{f'{name}, {unit}':>26}" for name, unit in UNITS.items()))
    base = results.get("delta")
    for peer, figures in results.items():
        cells = []
        for name in UNITS:
            ratio = f" ({figures[name] / base[name]:.1f}x)" if base else ""
            cells.append(f"{figures[name]:.1f}{ratio}")
        print(f"{peer:10}" + "".join(f"{cell:>26}" for cell in cells))


def version_of(program, home):
    """What a program says of its version: digits and dots, or nothing."""
    said = subprocess.run([program, "--version"], env=environment(home), stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=PATIENCE, text=True, check=False)
    found = VERSION.search(said.stdout + said.stderr)
    return found[0] if found else ""


def serve():
    """A server whose script is another for each run, and its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.script = Script()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/v1"


def compare(delta, only, into, runs, work=measure):
    """What `work` returns for delta and each peer, with their versions, and why the others are skipped."""
    into.mkdir(parents=True, exist_ok=True)
    server, url = serve()
    results, skipped = {}, {}
    for peer in (peer for peer in PEERS if peer.name in ["delta", *only]):
        with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as home:
            try:
                program = peer.find(into) if peer.find else os.path.abspath(delta)
                peer.prepare(Path(home), url)
                figures = work(peer, program, (Path(home), url, server.script), runs)
                results[peer.name] = {"version": version_of(program, Path(home)), **figures}
            except (OSError, Failure, subprocess.TimeoutExpired) as why:
                skipped[peer.name] = str(why)
    return results, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("delta", nargs="?", default=str(PROJECT / "target/release/delta"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default=",".join(peer.name for peer in PEERS))
    parser.add_argument("--into", type=Path, default=PROJECT / "target/peers")
    wanted = parser.parse_args()
    if wanted.runs < 1:
        parser.error("--runs: at least one")
    results, skipped = compare(wanted.delta, wanted.only.split(","), wanted.into, wanted.runs)
    for name, why in skipped.items():
        print(f"{name} is skipped: {why}", file=sys.stderr)
    print_table(results)
    if "delta" not in results:
        sys.exit(1)


if __name__ == "__main__":
    main()
