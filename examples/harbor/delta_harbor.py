"""Runs an agent of delta in the environments of Harbor 0.26, which needs Python 3.12:

    make static
    export DELTA_API_KEY=... DELTA_HARBOR_BINARY=...
    PYTHONPATH=examples/harbor harbor run --agent-import-path delta_harbor:Delta --model openai/NAME ...

Options (--agent-kwarg NAME=VALUE):
    binary   the program to bring into the environment, a static one; default: $DELTA_HARBOR_BINARY
    agent    a directory with an agent, or @NAME; default: @coder
    options  more options of `delta run`, such as '--max-iterations 50'

The run works in the environment's working directory. Its trajectory (ATIF) becomes trajectory.json in the log directory, and
its tokens and cost, with those of its sub-agents, are where Harbor looks for them; a cost needs prices in the agent.

Harbor ends an agent at the task's time limit and keeps nothing of what it has not printed. So the run gets a deadline
before that: it ends by itself, with its answer so far recorded, and the work that it has done is judged.
With skip_install, the image has the program at /installed-agent/delta.

An answer is a result, and so is a run that failed (1), asked a question (101), reached a limit of its own or the end of
its context (4), or its deadline (75). What happened around the agent is an exception, so that no zero is counted for it: any
other 75, 78, a signal, and any other 4, such as a key that was refused.
"""

import json
import os
import shlex
from pathlib import Path
from typing import Any, override

from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import (
    BaseInstalledAgent,
    NonZeroAgentExitCodeError,
    with_prompt_template,
)
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import TaskConfig
from harbor.models.trial.config import TrialConfig

HOME = "/installed-agent"
RUN_ID = "harbor"

# Variables that delta finds its model by.
VARIABLES = (
    "DELTA_API_KEY",
    "DELTA_BASE_URL",
    "DELTA_MODEL",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
)

# Why a run that ends with 4 has come as far as it was allowed to. Everything else is for a person to mend.
LIMITS = ("max_iterations", "no_progress", "tokens", "seconds", "budget", "context_full")

# Seconds before the task's time limit at which the run ends, so that there is time to fetch what it recorded.
MARGIN = 20


class Delta(BaseInstalledAgent):
    """An agent of delta, in the environment's working directory."""

    capabilities = AgentCapabilities(atif=True)

    def __init__(
        self,
        *args: Any,
        binary: str | None = None,
        agent: str = "@coder",
        options: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._binary = binary or os.environ.get("DELTA_HARBOR_BINARY")
        self._agent = agent
        self._options = shlex.split(options)

    @staticmethod
    @override
    def name() -> str:
        return "delta"

    @override
    def get_version_command(self) -> str | None:
        return f"{HOME}/delta --version"

    @override
    def parse_version(self, stdout: str) -> str:
        return stdout.strip().removeprefix("delta ")

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        if not self._binary:
            raise ValueError("name the program with binary=PATH or $DELTA_HARBOR_BINARY")
        await environment.upload_file(self._binary, f"{HOME}/delta")
        await self.exec_as_root(environment, f"chmod 755 {HOME}/delta")

    @override
    async def configure(self, environment: BaseEnvironment) -> None:
        if not self._agent.startswith("@"):
            await environment.upload_dir(Path(self._agent), f"{HOME}/agent")
            await self.exec_as_root(environment, f"chmod -R a+rX {HOME}/agent")

    @override
    @with_prompt_template
    async def run(
        self,
        instruction: str,
        environment: BaseEnvironment,
        context: AgentContext,
    ) -> None:
        env = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        env["DELTA_HARBOR_TASK"] = instruction
        command = f'printf %s "$DELTA_HARBOR_TASK" | {shlex.join(self._command())}'
        ended = await environment.exec(command, env=env)
        trajectory = await self._export(environment)
        self._fill(context, trajectory)
        stop_reason = _end_of(trajectory).get("stop_reason")
        if not _is_result(ended.return_code, stop_reason):
            said = self._truncate_output(ended.stderr)
            raise NonZeroAgentExitCodeError(
                f"delta ended with {ended.return_code} ({stop_reason}): {said}"
            )

    def _command(self) -> list[str]:
        command = [f"{HOME}/delta", "run", "-q", "-w", ".", "--run-id", RUN_ID]
        if self._agent.startswith("@"):
            command.append(self._agent)
        else:
            command += ["-a", f"{HOME}/agent"]
        if self.model_name:
            model = self.model_name.split("/", 1)[-1]
            command += ["--set", f"llm.model={json.dumps(model)}"]
        seconds = self._seconds()
        if seconds is not None:
            command += ["--deadline", f"+{max(1, int(seconds - MARGIN))}s"]
        return command + self._options + ["-m", "-"]

    def _seconds(self) -> float | None:
        """The task's time limit, which Harbor tells none of its agents: as it computes it from what it wrote down. None:
        there is none, or it is not found."""
        try:
            written = (self.logs_dir.parent / "config.json").read_text()
            trial = TrialConfig.model_validate_json(written)
            task = (trial.task.get_local_path() / "task.toml").read_text()
            usual = TaskConfig.model_validate_toml(task).agent.timeout_sec
        except (OSError, ValueError) as error:
            self.logger.warning("no time limit is known: %s", error)
            return None
        agent = trial.agent
        base = agent.override_timeout_sec or usual
        if base is None:
            return None
        factor = trial.agent_timeout_multiplier
        if factor is None:
            factor = trial.timeout_multiplier
        return min(base, agent.max_timeout_sec or base) * factor

    async def _export(self, environment: BaseEnvironment) -> dict[str, Any]:
        """The trajectory, which also becomes trajectory.json; empty if there is none."""
        exported = await environment.exec(
            f"{HOME}/delta export -w . --format atif {RUN_ID}"
        )
        try:
            trajectory = json.loads(exported.stdout or "")
        except ValueError:
            self.logger.warning("no trajectory: %s", exported.stderr)
            return {}
        self.logs_dir.mkdir(parents=True, exist_ok=True)
        (self.logs_dir / "trajectory.json").write_text(exported.stdout)
        return trajectory

    def _fill(self, context: AgentContext, trajectory: dict[str, Any]) -> None:
        metrics = trajectory.get("final_metrics", {})
        context.n_input_tokens = metrics.get("total_prompt_tokens")
        context.n_cache_tokens = metrics.get("total_cached_tokens")
        context.n_output_tokens = metrics.get("total_completion_tokens")
        context.cost_usd = metrics.get("total_cost_usd")
        context.metadata = _end_of(trajectory) or None

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        """Nothing is left to do: `run` has done it."""


def _end_of(trajectory: dict[str, Any]) -> dict[str, Any]:
    return trajectory.get("final_metrics", {}).get("extra", {})


def _is_result(exit_code: int, stop_reason: str | None) -> bool:
    """True if the run has come to an end that says something of the agent, not of what is around it."""
    is_limit = exit_code == 4 and stop_reason in LIMITS
    return exit_code in (0, 1, 101) or is_limit or (exit_code == 75 and stop_reason == "deadline")
