"""`sys_lambda` and `sys_code` as tools of the model. Nobody has them unless the owner hands them to the agent.

They are independent of the bridge's own `sys_lambda`, which lambdas use among themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ..decisions import Ask
from ..errors import BeforehandError, ConfigError
from ..hooks.hook import Hook
from ..sandbox import (
    Console, LambdaMissing, LambdaTooManyInside, SandboxError, SandboxLimits, Source, call, check_language, close_spares,
)  # fmt: skip
from ..tools import Tool, ToolContext, ToolResult, as_result, tool
from .bridge import Bridge
from .caller import Caller
from .files import Workspace, split_source

CODE = "sys_code"
"""What stands for a file's name where code has none. No file of a workspace has it, so it is never authorised."""

ASKS = "authorized_lambda"
"""The name of the hook that asks a person."""

MAX_ASKED = 1_000

Where = Callable[[], tuple[Workspace, SandboxLimits]]
"""The workspace and the bounds that count for one call. Raises `ConfigError` while nobody can tell."""


class CodeTools(NamedTuple):
    """Give both to an agent. Without the hook, files that the owner has authorised are refused."""

    tools: tuple[Tool, ...]
    hooks: tuple[Hook, ...]


def code_tools(workspace: Workspace, *, limits: SandboxLimits | None = None) -> CodeTools:
    """The tools `sys_lambda` (runs a function of a workspace file) and `sys_code` (runs code the model has written).

    Code of the model is never authorised. A file is authorised as its content says, and a person is asked first: the hook
    does that. `adf.sys_lambda` works in such code only where the run has the tool `sys_lambda`, as it is said there.
    """
    bounds = limits or SandboxLimits()
    return live_code_tools(lambda: (workspace, bounds))


def live_code_tools(where: Where) -> CodeTools:
    """The same, in whatever workspace there is at the time."""
    made = _CodeTools(where)
    return CodeTools((tool(name="sys_lambda")(made.sys_lambda), tool(name=CODE)(made.sys_code)), (made.hook(),))


class _CodeTools:
    def __init__(self, where: Where) -> None:
        self._where = where
        self._asked: dict[tuple[str, str], None] = {}

    def hook(self) -> Hook:
        """Asks a person before the model runs a file that the owner has authorised."""
        return Hook(seam="before_tool_call", fn=self.ask, name=ASKS, tools=("sys_lambda",))

    def ask(self, pending: Any) -> Ask | None:
        """Only a call that was asked about, and let pass, runs with authority: without a yes its body is not reached."""
        try:
            path, _ = split_source(pending.args.get("source"))
            workspace, _ = self._where()
            if not workspace.is_authorized(*_load(workspace, path)):
                return None
        except (BeforehandError, OSError):
            return None  # the tool says what is wrong
        self._asked[pending.run.run_id, pending.call_id] = None
        if len(self._asked) > MAX_ASKED:  # those that a person has declined
            del self._asked[next(iter(self._asked))]
        return Ask(f"Run {path} with the authority its owner gave it?")

    def _was_asked(self, ctx: ToolContext) -> bool:
        """Whether a person has let this call pass, having been asked here, or in the process that began the run."""
        here = (ctx.run.run_id, ctx.call_id)
        if here in self._asked:
            del self._asked[here]
            return True
        own = ctx.run._run.calls.get(ctx.call_id)
        return own is not None and own.asked is not None and own.asked_by == ASKS

    async def sys_lambda(self, ctx: ToolContext, source: str, args: dict[str, Any] | None = None) -> ToolResult:
        """Run a function of a workspace file, such as "lib/x.py:main", with one object as its argument."""
        try:
            path, function = split_source(source)
            workspace, limits = self._where()
            real, file = _load(workspace, path)
            check_language(file)
        except (BeforehandError, OSError) as error:
            return ToolResult(f"{source}: {getattr(error, 'strerror', None) or error}", is_error=True)
        authorized = workspace.is_authorized(real, file)
        if authorized and not self._was_asked(ctx):
            return ToolResult(f"REQUIRES_AUTHORIZED_CALLER: {path} is authorised, and nobody was asked about it", is_error=True)
        return await self._run(ctx, workspace, limits, file, (real, function), args or {}, authorized)

    async def sys_code(self, ctx: ToolContext, code: str, language: Literal["python", "typescript"] = "typescript") -> ToolResult:
        """Run code once, in a sandbox. It defines a function `main`, whose result is the answer; `adf` is there to be used."""
        file = Source(CODE + (".py" if language == "python" else ".ts"), code)
        try:
            workspace, limits = self._where()
            check_language(file)
        except ConfigError as error:
            return ToolResult(str(error), is_error=True)
        return await self._run(ctx, workspace, limits, file, (file.path, "main"), {}, False)

    async def _run(
        self, ctx: ToolContext, workspace: Workspace, limits: SandboxLimits, file: Source, step: tuple[str, str], args: Any,
        authorized: bool,
    ) -> ToolResult:  # fmt: skip
        run, console = ctx.run._run, Console(limits.console)
        deadline = asyncio.get_running_loop().time() + limits.wall_time
        caller = Caller(run, self, name=ctx.tool_name, where=step[0], seam="lambda", call_id=ctx.call_id, deadline=deadline)
        bridge = Bridge(workspace, limits, (step,), console, ctx.signal, deadline, caller, authorized, private=False)
        try:
            outcome = await call(
                file, step[1], args, limits=limits, bridge=bridge, signal=ctx.signal, console=console, until=deadline
            )
        except LambdaMissing as error:
            return _result(f"NOT_FOUND: {error}", console, is_error=True)
        except LambdaTooManyInside as error:
            return _result(f"LIMIT: {error}", console, is_error=True)
        except SandboxError as error:
            return _result(f"FN_ERROR: {error}", console, is_error=True)
        finally:
            await caller.leave()
            if caller.failure is not None and (own := run.calls.get(ctx.call_id)) is not None:
                own.failure = own.failure or caller.failure
        return _result(outcome.value, console)

    async def close_with_agent(self) -> None:
        await close_spares()


def _load(workspace: Workspace, path: str) -> tuple[str, Source]:
    """A lambda's file as it is now, behind the path it really has."""
    return "/".join(workspace.folder.resolve(path)), workspace.source(path)


def _result(value: Any, console: Console, *, is_error: bool = False) -> ToolResult:
    """The value alone as data; what was written to the console stands behind it for the model, and never inside."""
    result = as_result(value)
    written = f"\n\nOutput:\n{console.text}" if console.text else ""
    return ToolResult(
        result.text + written, structured_content=result.structured_content, is_error=is_error,
        details={"console": console.text} if console.text else None,
    )  # fmt: skip


__all__ = ["CodeTools", "code_tools"]
