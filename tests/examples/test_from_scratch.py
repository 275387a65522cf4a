"""Two agents, one written out on the standard library and one with this package, against the same loopback endpoint."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from beforehand import End

from .conftest import EXAMPLES

Load = Callable[[str], Any]


def told(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a request tells the model: roles, texts and calls."""
    return [
        (m["role"], m.get("content"), [c["function"]["name"] for c in m.get("tool_calls", [])], m.get("tool_call_id"))
        for m in body["messages"]
    ]


def test_both_agents_tell_the_model_the_same_and_come_to_the_same(example: Load) -> None:
    by_hand, ours = example("from_scratch"), example("with_beforehand")
    with example("train_endpoint").endpoint() as there:
        first = by_hand.book(there.base_url, "scripted")
        by_hand_asked = [told(body) for body in there.received]
        there.received.clear()
        second = ours.book(there.base_url, "openai:scripted")
        ours_asked = [told(body) for body in there.received]
    assert first == second == "You are on your way: train 305, tourist class, for Ana Ruiz, DNI ***"
    assert by_hand.booked == ours.booked == ["tourist"]
    assert by_hand.saved == ours.saved
    assert by_hand_asked == ours_asked


def test_each_of_the_five_rules_takes_effect(example: Load) -> None:
    ours = example("with_beforehand")
    with example("train_endpoint").endpoint() as there:
        ours.book(there.base_url, "openai:scripted")
        last = there.received[-1]["messages"]
    assert len(there.received) == 4
    assert last[0] == {"role": "system", "content": "You book trains.\n\nPlatform 4 is closed today."}
    assert [m["content"] for m in last if m["role"] == "tool"][1:] == [
        "First class needs a manager's approval. Book tourist instead.",
        "Booked: train 305, tourist class, for Ana Ruiz, DNI ***",
    ]
    assert ours.saved == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert ours.ten_turns(SimpleNamespace(number=10)) is None
    assert ours.ten_turns(SimpleNamespace(number=11)) == End("ten turns are enough")


def test_the_one_from_scratch_needs_the_standard_library_only() -> None:
    for name in ("from_scratch.py", "train_endpoint.py"):
        nodes = list(ast.walk(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))))
        imported = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module).partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
        assert imported - {"train_endpoint"} <= sys.stdlib_module_names
