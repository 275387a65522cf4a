"""`beforehand hooks`: what is registered, in the order it is asked, and what a failure of it means."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from ..agent import Agent
from ..assembly import load_hooks, load_tools, tools_in_file
from ..config.hook import PreLlmFunction
from ..errors import nearest
from ..hooks.group import each_of
from ..hooks.hook import Hook
from .printer import one_line
from .terminal import safe

if TYPE_CHECKING:
    from rich.console import Console

UNUSED = "openai:unused"
"""Nothing is asked while hooks are listed, so the model need not be there."""
COLUMNS = ("seam", "hook", "order", "for", "if it fails", "defined at")
POLICIES = {
    "closed": "closed: lets nothing pass",
    "open": "OPEN: lets it pass, recorded",
    "abort": "ABORT: ends the run",
}


def list_hooks(
    hook_files: tuple[Path, ...], tool_files: tuple[Path, ...], console: Console | None, project: Path | None = None
) -> None:
    """Print the hooks of these files as one agent would ask them, and the tools among which hooks are not inherited."""
    tools = load_tools(tool for path in tool_files for tool in tools_in_file(path))
    if project is None:
        hooks = in_order(list(load_hooks(hook_files).current.hooks))
    else:
        agent = Agent.from_project(project, tools=tools, hooks=hook_files, model=UNUSED, base_url=None)
        hooks, tools = in_order(list(agent.hooks)), agent.plan.tools
    rows = [describe(hook) for hook in hooks]
    exposed = [f"{t.name} ({t.where})" for t in tools if getattr(t.unguarded, "inherits", True) is False]
    if console is None:
        for row in rows:
            print("  ".join(row))
    elif rows:
        _print_table(console, hooks, rows)
    if not rows:
        print("No hooks: name the files that hold them, as in `beforehand hooks --hooks FILE.py`.")
    for line in _for_no_tool(hooks, [t.name for t in tools]) if tool_files else ():
        print(safe(one_line(line)))
    for name in exposed:
        print(f"NOT INHERITED: sub-agent {name} was made with inherit=False; the hooks above do not govern what happens inside.")


def _for_no_tool(hooks: list[Hook], tools: list[str]) -> list[str]:
    """A line for each name or glob of a hook that none of these tools has. A rule may be several hooks, which say it once."""
    lines = []
    for hook in each_of(hooks) if tools else ():
        for name in hook.tools:
            if not any([fnmatchcase(tool, name) for tool in tools]):
                near = nearest(name, tools)
                hint = f": did you mean {near}?" if near else ""
                lines.append(f"NO SUCH TOOL: {hook.name} ({hook.where}) is for {name}, which is none of the tools given{hint}")
    return list(dict.fromkeys(lines))


def in_order(hooks: list[Hook]) -> list[Hook]:
    """As they are asked: by seam, `final` ones last, then by `order`, then as registered. A hook given twice is asked once."""
    return sorted(dict.fromkeys(hooks), key=lambda h: (h.spec.number, h.final, h.order))


def describe(hook: Hook) -> tuple[str, ...]:
    """One row, a text for each of `COLUMNS`."""
    loops, timeout = hook.fn.applies() if isinstance(hook.fn, PreLlmFunction) else (hook.loops, hook.timeout)
    scope = [f"tools {', '.join(hook.tools)}"] if hook.tools else []
    scope += [f"loops {', '.join(loops)}" if loops else "nothing: it is not in the file"] if loops is not None else []
    order = f"{hook.order}{', final' if hook.final else ''}{', holds text' if hook.hold else ''}"
    late = "" if timeout is None else f"; timeout {timeout:g} s"
    policy = POLICIES[hook.on_error] + late
    row = f"{hook.spec.number} {hook.seam}", hook.name, order, "; ".join(scope) or "all", policy, hook.where
    return tuple([safe(one_line(cell)) for cell in row])


def _print_table(console: Console, hooks: list[Hook], rows: list[tuple[str, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Hooks, in the order they are asked", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for hook, row in zip(hooks, rows, strict=True):
        style = "" if hook.on_error == "closed" else "bold red"
        table.add_row(*[Text(cell, style if i == COLUMNS.index("if it fails") else "") for i, cell in enumerate(row)])
    console.print(table)
