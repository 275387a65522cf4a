"""`beforehand seams`: the matrix, the chart and the reference say what the code says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, Hook, tool
from beforehand.cli.seams import markdown, mermaid
from beforehand.seams import SEAMS
from beforehand.testing import ScriptedModel, text, tool_call

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_matrix_names_every_seam_with_what_it_may_decide_and_what_comes_right_after(run_here: Callable[..., Any]) -> None:
    out = run_here("seams").out
    for spec in SEAMS:
        entry = re.search(rf"^{spec.number} {spec.name} \({re.escape(spec.kind)}\)\n((?:    .*\n)+)", out, re.MULTILINE)
        assert entry is not None, spec.name
        assert f"fires: {spec.when}" in entry[1]
        assert all(form in entry[1] for form in spec.forms() if not form.startswith("Replace"))
        assert ("irreversible right after" in entry[1]) == bool(spec.irreversible)


def test_when_a_seam_fires_and_what_it_may_refuse_are_told_apart(run_here: Callable[..., Any]) -> None:
    out = run_here("seams").out
    gate = out.partition("12 before_tool_call")[2].partition("13 after_tool_call")[0]
    refusals = next(line for line in gate.splitlines() if "may refuse or settle" in line)
    assert "Block(reason)" in refusals
    assert "arguments" not in refusals
    assert "may replace" not in gate
    shape = out.partition("4 transform_context")[2].partition("5 convert_to_llm")[0]
    assert "may refuse or settle" not in shape
    assert "may replace: messages" in shape


def test_on_a_wide_terminal_the_matrix_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from beforehand.cli.seams import show_matrix

    show_matrix(Console(force_terminal=True, width=140, color_system=None))
    table = capsys.readouterr().out
    assert all(f"│ {spec.name} " in table for spec in SEAMS)
    show_matrix(Console(force_terminal=True, width=80, color_system=None))
    assert "│" not in capsys.readouterr().out


def test_the_chart_holds_every_seam_in_front_of_what_cannot_be_taken_back(run_here: Callable[..., Any]) -> None:
    chart = run_here("seams", "--mermaid").out
    assert chart.startswith("flowchart TD\n")
    for spec in SEAMS:
        assert f'"{spec.number} {spec.name}"' in chart
        if spec.irreversible:
            assert f'GONE{spec.number}[/"{spec.irreversible}"/]' in chart
    assert "<" not in chart, "a mark of the template was left over"


def test_the_chart_gives_each_node_one_label_and_draws_no_unknown_one() -> None:
    lines = [line for line in mermaid().splitlines()[1:] if not line.lstrip().startswith(("classDef", "class "))]
    nodes = [re.sub(r"^\|[^|]*\|\s*", "", part).strip() for line in lines for part in re.split(r"\s-->", line)]
    labelled = [node for node in nodes if not node.isalnum()]
    named = [re.match(r"\w+", node)[0] for node in labelled]
    assert len(named) == len(set(named)), "a node is labelled twice"
    assert {node for node in nodes if node.isalnum()} <= set(named), "a node has no label"


def test_the_reference_in_the_documentation_is_fresh(run_here: Callable[..., Any]) -> None:
    kept = (DOCS / "seams.md").read_text(encoding="utf-8")
    assert kept == run_here("seams", "--markdown").out, "write it anew: beforehand seams --markdown > docs/seams.md"


def test_the_reference_names_every_field_and_decision_of_every_seam() -> None:
    for spec in SEAMS:
        section = markdown().partition(f"### {spec.number} `{spec.name}`\n")[2].partition("\n###")[0]
        assert all(f"`{name}`" in section for name in spec.context.__struct_fields__ if name != "run"), spec.name
        assert all(f"`{form}`" in section for form in spec.forms()), spec.name
        assert "If a hook fails closed: " in section
        assert spec.irreversible in section


async def test_the_firing_order_in_the_reference_is_the_one_of_a_run() -> None:
    order: list[str] = []

    def recorder(number: int) -> Callable[[Any], None]:
        return lambda context: order.append(str(number))

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        return "seen"

    hooks = [Hook(seam=spec.name, fn=recorder(spec.number), name=spec.name) for spec in SEAMS]
    model = ScriptedModel([[text("wait"), tool_call("look", {"at": "it"})], text("done")])
    await Agent(model=model, tools=[look], hooks=hooks, listeners=[lambda event: order.append(event.type)]).run("go")
    told = markdown().partition("## Firing order\n\n")[2].partition("\n\n")[0]
    written = re.findall(r"`([a-z_]+)`|\b(\d+)\b", told)
    # 16 comes between turns and 17 before a compaction, so neither has one place in this line.
    expected = [first or second for first, second in written if second not in ("16", "17")]
    seen = [step for step in order if step != "16"]
    assert list(dict.fromkeys(seen)) == list(dict.fromkeys(expected))
    assert order[order.index("16") - 1] == "15"
    assert order[order.index("16") + 1] == "2"
