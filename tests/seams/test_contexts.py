"""What hooks are handed: the table of seams, written out once more, so that a change of it is a decision."""

from __future__ import annotations

from typing import Any

import pytest

from beforehand import FrozenError, Hook, Usage
from beforehand.seams import BY_NAME, SEAMS
from beforehand.testing import finish, text, tool_call
from seams.cells import EFFECTS
from seams.refusals import OLD
from seams.stage import Stage

TURN = {"number", "message", "tool_results", "context", "new_messages"}
CALL = {"name", "tool", "args", "raw_args", "call_id", "message", "context", "batch"}

CONTEXTS: dict[str, set[str]] = {
    "before_run": {"messages", "history"},
    "before_turn": {"number", "history", "incoming"},
    "prepare_request": {"context", "model", "thinking_level"},
    "transform_context": {"messages", "model", "estimate_tokens"},
    "convert_to_llm": {"messages", "model", "estimate_tokens"},
    "before_provider_call": {"request", "model", "enabled_tools"},
    "get_api_key": {"provider", "endpoint"},
    "authorize_request": {"request", "endpoint", "model", "kind", "digest"},
    "on_chunk": {"kind", "delta", "pending", "released", "final", "message_id", "call_id"},
    "on_message": {"message", "origin", "released_chars", "history"},
    "prepare_tool_call": CALL,
    "before_tool_call": CALL | {"original_args", "args_digest"},
    "after_tool_call": {
        "call", "outcome", "content", "details", "structured_content", "is_error", "usage", "terminate", "duration", "partial",
    },
    "finish_turn": TURN,
    "after_turn": TURN,
    "prepare_next_turn": TURN | {"cause", "model", "thinking_level", "add_messages"},
    "before_compaction": {"messages", "kept", "tokens", "threshold"},
}  # fmt: skip

SHORTHAND = {"after_tool_call": {"text", "name", "args", "call_id"}}
"""Ways to read what is in another field."""

VERDICTS: dict[str, tuple[str, str]] = {
    # name: kind, verdicts and the fields of Replace
    "before_run": ("shape+gate", "Replace(messages) Block"),
    "before_turn": ("gate", "End"),
    "prepare_request": ("shape", "Replace(context model thinking_level once)"),
    "transform_context": ("shape", "Replace(messages)"),
    "convert_to_llm": ("shape", "Replace(messages)"),
    "before_provider_call": ("shape", "Replace(request)"),
    "get_api_key": ("shape", "Replace(key)"),
    "authorize_request": ("gate", "Block Answer"),
    "on_chunk": ("shape+gate", "Replace(text hold) Hold Drop Interrupt"),
    "on_message": ("shape+gate", "Replace(message) Interrupt"),
    "prepare_tool_call": ("shape", "Replace(args)"),
    "before_tool_call": ("gate", "Block Ask Steer Answer Interrupt"),
    "after_tool_call": ("shape", "Replace(content details structured_content is_error usage terminate) Interrupt"),
    "finish_turn": ("gate", "End Continue"),
    "after_turn": ("save", ""),
    "prepare_next_turn": ("shape", "Replace(context model thinking_level add_messages)"),
    "before_compaction": ("shape+gate", "Answer Block"),
}

RUN = {"run_id", "parent_call_id", "loop", "turn", "usage", "elapsed", "cost", "deps", "calls", "signal", "limits"}


async def one_of_each(**run: Any) -> dict[str, Any]:
    """One context of each seam, as hooks got it (the first for which there was something to see)."""
    seen: dict[str, Any] = {}
    hooks = [Hook(seam=spec.name, fn=lambda context, name=spec.name: seen.setdefault(name, context) and None) for spec in SEAMS]
    stage = await Stage(*hooks).run(**run)
    compacting = Stage(*hooks, messages=OLD, replies=[text("A summary.")])
    await compacting.talk.compact(keep=2)
    assert stage.result.stop_reason == "completed"
    return seen


def names(value: Any) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


async def test_a_hook_can_read_exactly_these_fields() -> None:
    seen = await one_of_each()
    assert {seam: names(context) - {"run"} - SHORTHAND.get(seam, set()) for seam, context in seen.items()} == CONTEXTS


@pytest.mark.parametrize("seam", BY_NAME)
async def test_every_field_of_every_context_can_be_read(seam: str) -> None:
    context = (await one_of_each())[seam]
    assert type(context) is BY_NAME[seam].context
    for name in CONTEXTS[seam] | {"run"} | SHORTHAND.get(seam, set()):
        value = getattr(context, name)
        if name == "estimate_tokens":
            assert value() > 0


async def test_every_context_tells_of_its_run() -> None:
    deps = object()
    for seam, context in (await one_of_each(deps=deps, run_id="the-run")).items():
        assert names(context.run) == RUN, seam
        if seam != "before_compaction":  # a run of its own
            assert (context.run.run_id, context.run.deps) == ("the-run", deps), seam
        assert (context.run.parent_call_id, context.run.loop, context.run.cost) == (None, "main", 0.0)
        assert context.run.elapsed >= 0
        assert context.run.signal.aborted is False
        with pytest.raises(FrozenError):
            context.run.turn = 7


async def test_what_a_run_has_come_to_can_be_read_at_any_seam() -> None:
    told: list[tuple[int, int, list[tuple[str, Any]]]] = []
    spent = Usage(10, 5)
    stage = Stage(
        Hook(
            seam="before_turn",
            fn=lambda c: told.append((c.run.turn, c.run.usage.total_tokens, [(r.name, r.outcome) for r in c.run.calls])),
        ),
        replies=[[tool_call("look", {"n": 1}), finish(usage=spent)], [text("All done."), finish(usage=spent)]],
    )
    await stage.run()
    assert told == [(0, 0, []), (1, 15, [("look", "ran")])]
    assert stage.result.usage == spent + spent


def test_the_seams_are_these_in_this_order_and_take_these_verdicts() -> None:
    def written(spec: Any) -> str:
        forms = [f"{v.__name__}({' '.join(fields)})" if fields else v.__name__ for v, fields in spec.verdicts.items()]
        return " ".join(sorted(forms))

    assert [spec.number for spec in SEAMS] == list(range(1, 18))
    assert [(s.name, s.kind, written(s)) for s in SEAMS] == [
        (name, kind, " ".join(sorted(_forms(verdicts)))) for name, (kind, verdicts) in VERDICTS.items()
    ]


def _forms(verdicts: str) -> list[str]:
    """ "Replace(a b) Block" as ["Replace(a b)", "Block"]."""
    forms: list[str] = []
    for word in verdicts.split():
        if forms and "(" in forms[-1] and ")" not in forms[-1]:
            forms[-1] += f" {word}"
        else:
            forms.append(word)
    return forms


def test_effects_belong_to_the_seams_between_the_request_and_the_end_of_a_turn() -> None:
    assert [spec.number for spec in SEAMS if spec.effects] == list(range(8, 15))
    assert {spec.effects for spec in SEAMS if spec.effects} == {tuple(EFFECTS)}


def test_what_is_irreversible_is_written_at_the_last_seam_that_can_stop_it() -> None:
    assert {spec.name: spec.irreversible for spec in SEAMS if spec.irreversible} == {
        "authorize_request": "the request leaves",
        "on_chunk": "text is shown",
        "on_message": "the history holds it",
        "before_tool_call": "the tool runs",
        "after_tool_call": "the model will read it",
        "before_compaction": "history is gone",
    }
