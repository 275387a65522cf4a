"""What a workspace's lambdas may reach: switches for the bridge's own methods, and what is said about each tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import ConfigError, nearest
from ..frozen import Frozen
from ..sandbox import METHODS, BridgeRefused
from ..settings import CodeExecution, ToolSettings
from ..tools import Tool

MAX_RESULT_TOKENS = 16_000
"""`max_tool_result_tokens`: what one result may hold; a message that a lambda injects holds three times as many characters."""

EXCLUDED = frozenset({"say", "ask", "loop_compact", "loop_clear"})
"""What belongs to the model's turn and means nothing in code."""

FLAGS = frozenset({"_authorized", "_protection_override"})
"""Privileges that the format this bridge follows passes as arguments. Here nobody can claim any: authority is the file's."""

EVERYTHING = CodeExecution()
SWITCHED = frozenset(CodeExecution.__struct_fields__) - {"restricted_methods"}
AUTHORIZED_ONLY = frozenset({"authorize_file"})


class Gates(Frozen, kw_only=True):
    """`code` switches methods, `tools` say what code may call, by name; a tool that is not named is free.

    `registry` holds tools that code may call though the run does not offer them to the model. Inner loops have none of it.
    """

    code: CodeExecution = EVERYTHING
    tools: Mapping[str, ToolSettings] = {}
    registry: Mapping[str, Tool] = {}
    max_result_tokens: int = MAX_RESULT_TOKENS

    @classmethod
    def of(cls, code: CodeExecution = EVERYTHING, tools: Iterable[ToolSettings] = (), registry: Iterable[Tool] = ()) -> Gates:
        """From settings and tools as they are listed. `ConfigError` for a restricted method that does not exist."""
        for name in code.restricted_methods:
            if name not in METHODS:
                near = nearest(name, METHODS)
                hint = f"did you mean {near!r}?" if near else f"the methods are {', '.join(METHODS)}"
                raise ConfigError(f"code_execution.restricted_methods names {name!r}, which is no method of the bridge: {hint}")
        return cls(code=code, tools={t.name: t for t in tools}, registry={t.name: t for t in registry})

    def check_method(self, method: str, authorized: bool) -> None:
        """Whether code may use this method of the bridge. Raises `BridgeRefused`."""
        if not authorized and (method in self.code.restricted_methods or method in AUTHORIZED_ONLY):
            raise BridgeRefused("REQUIRES_AUTHORIZED_CODE", f"adf.{method} is for files that the owner has authorised")
        if method in SWITCHED and not getattr(self.code, method):
            raise BridgeRefused("DISABLED", f"adf.{method} is switched off")
        if method in EXCLUDED:
            raise BridgeRefused("EXCLUDED_TOOL", f"adf.{method} is for the model alone, and means nothing in code")

    def check_tool(self, name: str, authorized: bool) -> None:
        """Whether code may call this tool, by what is said about it. Raises `BridgeRefused`."""
        said = self.tools.get(name)
        if said is None:
            return
        if said.restricted:
            if not authorized:
                raise BridgeRefused("REQUIRES_AUTHORIZED_CODE", f"{name!r} is restricted to files that the owner has authorised")
        elif not said.enabled:
            raise BridgeRefused("DISABLED", f"{name!r} is not enabled")
