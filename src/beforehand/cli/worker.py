"""`beforehand worker` and `beforehand submit`: the command line of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ..agent import Agent
from ..assembly import load_file
from ..engine import Engine, QueueLimits
from ..errors import ConfigError, JournalError
from .terminal import STOPPED, URL_FROM, complain, json_line, print_json, safe, to_answer

START_AGAIN_SECONDS = 2.0

END_SECONDS = 30.0
"""How long after its grace a worker may take to end. A database that says nothing any more would keep it for ever."""


def database_url(given: str | None) -> str:
    """The database that an option or the environment names."""
    url = given or os.environ.get(URL_FROM)
    if not url:
        raise ConfigError(f"which database? Give --database-url, or set {URL_FROM} (which no list of processes shows)")
    return url


def agents_in_file(path: Path) -> dict[str, Agent]:
    """The agents a Python file defines: its dict `agents`, or each `Agent` of it by the name of its variable."""
    module = load_file(path, "agents")
    listed = getattr(module, "agents", None)
    if isinstance(listed, dict):
        return listed
    found = {name: value for name, value in vars(module).items() if isinstance(value, Agent) and not name.startswith("_")}
    if not found:
        raise ConfigError(f'{path} defines no agents: write agents = {{"name": Agent(...)}} there')
    return found


async def work(url: str, path: Path, limits: QueueLimits, grace: float, key: bytes | None, strict: bool) -> None:
    """Carry runs until SIGTERM or Ctrl-C, and end the process. A database that is away is waited for."""
    if not math.isfinite(grace):
        raise ConfigError(f"--grace {grace} is no number of seconds: expected one such as 10")
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told_to_stop() -> None:
        stopping.set()
        why = "the database does not answer: others will find its runs by themselves"
        loop.call_later(max(grace, 0) + END_SECONDS, _leave, why)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    async with Engine(url, agents_in_file(path), limits=limits, journal_key=key, strict=strict) as engine:
        told = False
        while not stopping.is_set():
            try:
                await engine.start()
                break
            except JournalError as error:
                if not error.temporary:
                    raise
                if not told:
                    complain(f"waiting: {error}")
                told = True
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), START_AGAIN_SECONDS)
        if not stopping.is_set():
            complain(f"worker {engine.worker_id} carries runs of {', '.join(engine.agents)} from {engine.journal.path}")
        await stopping.wait()
        if engine.carrying:
            complain(f"stopping: {engine.carrying} runs go on elsewhere")
        await engine.stop(grace)
    _leave()


def _leave(why: str | None = None) -> None:
    """End the process. DBOS may still wait in a thread for a database that is away, which would hold that up."""
    if why is not None:
        complain(why)
    sys.stderr.flush()
    os._exit(0)


async def submit(
    url: str, agent: str, prompt: str, run_id: str | None, wait: bool, as_json: bool, key: bytes | None
) -> int:
    """Queue a run and print its id, or with `wait` what it says. The exit code is as of `beforehand run`."""
    async with Engine(url, journal_key=key) as engine:
        served = await engine.served()
        run_id = await engine.submit(agent, prompt, run_id=run_id)
        if agent not in served:
            known = f"; served are {', '.join(served)}" if served else ""
            complain(f"note: no worker has served an agent {agent!r} yet, so the run waits for one{known}")
        if not wait:
            _print({"run_id": run_id}, run_id, as_json)
            return 0
        result = await engine.result(run_id, check=False)
    said: dict[str, Any] = {"run_id": run_id, "stop_reason": result.stop_reason, "text": result.text}
    if result.error is not None:
        said["error"] = str(result.error)
    if result.pending:
        said["pending"] = [{"call_id": p.call_id, "name": p.name, "args": p.args, "prompt": p.prompt} for p in result.pending]
    if as_json or result.text:
        _print(said, result.text, as_json)
    if result.error is not None:
        raise result.error
    if result.stop_reason == "suspended":
        for p in result.pending:
            complain(f"run {run_id} waits: call {p.call_id} ({p.name}): {p.prompt}")
        complain(f"{to_answer(run_id, result.pending, engine.journal)}, then a worker goes on with it")
    return 0 if result.stop_reason in ("completed", "ended") else STOPPED


def _print(said: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json([json_line(said)])
    else:
        print(safe(text) if sys.stdout.isatty() else text)


def needs_extra() -> None:
    """One line where the extra is not installed, before anything else is tried."""
    for name in ("dbos", "psycopg"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise ConfigError('this command needs DBOS and psycopg: install the extra "durable" of beforehand') from None

