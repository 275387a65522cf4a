"""`beforehand backtest`: what other hooks would have changed in the runs on record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ..assembly import load_hooks
from ..backtest import Backtest, backtest
from ..comparing import KINDS
from ..hooks.registry import HookSet
from ..journal import Store
from ..shadow import Difference
from .lines import json_lines
from .printer import one_line
from .terminal import complain, safe

TITLES = {
    "newly_blocked": "newly blocked", "newly_allowed": "newly allowed", "refused_differently": "refused differently",
    "rewritten_differently": "rewritten differently", "effects_differ": "other effects",
}  # fmt: skip


async def run_backtest(journal: Store, hooks: tuple[Path, ...], since: int, as_json: bool, examples: int) -> Backtest:
    """Do it and print what came of it."""
    source = load_hooks(list(hooks), shadow=True)

    @cache
    def for_loop(loop: str) -> HookSet:
        return HookSet(source.current.hooks, loop)

    with _progress(as_json) as progress:
        report = await backtest(journal, for_loop, since=since, progress=progress, rules=source.rules)
    if as_json:
        counts = {"runs": report.runs, "values": report.values, "unknown": report.unknown, **report.counts}
        json_lines([*report.differences, counts])
    else:
        _print(report, examples)
    for problem in report.unreadable:
        complain(f"not gone over: {problem}")
    return report


def _print(report: Backtest, examples: int) -> None:
    print(f"{report.runs} run{'' if report.runs == 1 else 's'}, {report.values} values at gate and shape seams")
    if report.unknown:
        refused = "1 value was refused and is" if report.unknown == 1 else f"{report.unknown} values were refused and are"
        print(f"{refused} on no record: what these hooks would have made of that is not known")
    if not report.differences:
        print("no change")
        return
    for kind in KINDS:
        found = [difference for difference in report.differences if difference.kind == kind]
        if found:
            print(f"\n{TITLES[kind]}: {len(found)}")
            for difference in found[:examples]:
                print(f"  {_line(difference)}")
            if len(found) > examples:
                print(f"  ... and {len(found) - examples} more")


def _line(d: Difference) -> str:
    place = f"run {d.run_id[:12]}, turn {d.turn}, {d.seam}" + (f", call {d.call_id}" if d.call_id else "")
    by = f" by {d.hook} ({d.where})" if d.hook else ""
    about = f"  {d.about}" if d.about else ""
    return safe(one_line(f"{place}: was {d.decided}, would be {d.would}{by}{about}"))


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, if somebody looks at it."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task: Any = bar.add_task("going over the runs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
