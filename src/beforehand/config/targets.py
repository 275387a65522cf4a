"""The targets of a `pre_llm_hook` as rows, as one edits them: Main, inner loops by name, or all loops there will ever be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..documents.problems import field_name
from ..errors import ConfigError
from ..frozen import Frozen
from ..settings import PreLlmHook, ProjectSettings
from .block import NAME, as_block, block_mistakes, block_of


class Targets(Frozen):
    """`everywhere` excludes the other rows. Main comes first, the loops in the order they were added."""

    everywhere: bool = False
    main: bool = False
    loops: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        return ("all",) if self.everywhere else (*(["main"] if self.main else []), *self.loops)


NEW = Targets(main=True)
"""What a new hook starts with."""


def targets_of(hook: PreLlmHook) -> Targets:
    if hook.scope == "loops":
        return Targets(main=hook.include_main, loops=hook.loops)
    return Targets(everywhere=hook.scope == "all", main=hook.scope == "main")


def add(targets: Targets, names: Iterable[str]) -> Targets:
    """More rows. Raises `ConfigError`."""
    for name in names:
        if targets.everywhere:
            why = "the hook runs in all loops already" if name == "all" else f"the hook runs in all loops, {name!r} among them"
            raise ConfigError(f"{why}: to narrow it, say which rows there should be: `beforehand targets set main NAME ...`")
        if name == "all":
            if targets.rows:
                raise ConfigError('"all" goes with no other row: `beforehand targets all` puts it in the place of the others')
            targets = Targets(everywhere=True)
        elif name in targets.rows:
            raise ConfigError(f"{name!r} is a target already")
        elif name == "main":
            targets = Targets(main=True, loops=targets.loops)
        elif name == "Main":
            raise ConfigError('"Main" is written main')
        else:
            targets = Targets(main=targets.main, loops=(*targets.loops, name))
    return targets


def remove(targets: Targets, names: Iterable[str]) -> Targets:
    """Fewer rows. Raises `ConfigError`."""
    for name in names:
        if name not in targets.rows:
            raise ConfigError(f"{name!r} is no target: the targets are {', '.join(targets.rows) or 'none'}")
        if name in ("all", "main"):
            targets = Targets(loops=targets.loops)
        else:
            targets = Targets(main=targets.main, loops=tuple([loop for loop in targets.loops if loop != name]))
    return targets


class Draft(Frozen):
    """A hook while it is edited. It may be anything; `hook` says whether it can be used."""

    source: str = ""
    targets: Targets = NEW
    timeout_ms: int | str | None = None

    def hook(self) -> PreLlmHook:
        """Raises `ConfigError` for a draft with a mistake."""
        if not self.source.strip():
            raise ConfigError("the hook has no source: --source lib/policy.ts:transform")
        if not self.targets.rows:
            raise ConfigError("a hook has at least one target: add one, or take the block out of the file")
        block = self._block()
        found = block_mistakes(block, (NAME,))
        if found:
            raise ConfigError("; ".join([f"{field_name(path)}: {why}" for path, why in found]))
        return as_block(block)

    def _block(self) -> dict[str, Any]:
        block: dict[str, Any] = {"source": self.source}
        if self.targets.loops:
            block.update(scope="loops", loops=list(self.targets.loops))
            if self.targets.main:
                block["include_main"] = True
        else:
            block["scope"] = "all" if self.targets.everywhere else "main"
        if self.timeout_ms is not None:
            block["timeout_ms"] = self.timeout_ms
        return block


def draft_of(hook: PreLlmHook | None) -> Draft:
    """What is opened for editing: the hook there is, or a new one."""
    return Draft() if hook is None else Draft(hook.source, targets_of(hook), hook.timeout_ms)


def described(settings: ProjectSettings) -> list[str]:
    """The targets as lines for people."""
    hook = settings.pre_llm_hook
    if hook is None:
        return ["no pre_llm_hook: `beforehand targets --source lib/policy.ts:transform` makes one for Main"]
    declared = [loop.name for loop in settings.loops]
    late = f", at most {hook.timeout(settings.limits.of_runs()):g} s"
    lines = [f"{hook.source}{late}"]
    targets = targets_of(hook)
    for row in targets.rows:
        if row == "all":
            lines.append("  All loops (including future ones)")
        elif row == "main":
            lines.append("  Main")
        else:
            lines.append(f"  {row}" + ("" if row in declared else "  (not declared yet)"))
    others = [] if targets.everywhere else [name for name in ("main", *declared) if name not in targets.rows]
    return [*lines, *([f"not targets: {', '.join(others)}"] if others else [])]


__all__ = ["NEW", "Draft", "Targets", "add", "block_of", "described", "draft_of", "remove", "targets_of"]
