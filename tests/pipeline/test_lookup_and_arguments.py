"""From a name and JSON text to the arguments that gates judge: lookup, the shim, validation, seam 11."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec
import pytest

from beforehand import Agent, Block, Hook, Replace, tool
from beforehand.testing import ScriptedModel, text, tool_call

from pipeline.paths import call_through


class Leg(msgspec.Struct):
    train: int
    seats: list[int]


@tool
async def book(train: int, seat_class: Literal["first", "tourist"] = "tourist", legs: list[Leg] | None = None) -> str:
    """Book a seat."""
    return f"{train} {seat_class} {[(leg.train, leg.seats) for leg in legs or []]}"


def never(context: Any) -> None:
    raise AssertionError("no hook is asked about a call that cannot run")


UNASKED = [
    Hook(seam=seam, fn=never, tools=("bo*",), on_error="abort")
    for seam in ("prepare_tool_call", "before_tool_call", "after_tool_call")
]


async def test_an_unknown_tool_is_told_to_the_model_with_the_nearest_name_and_no_hook_is_asked(path: str) -> None:
    end = await call_through(path, "bok", {"train": 1}, [book], UNASKED)

    assert (end.outcome, end.is_error) == ("not_found", True)
    assert "bok" in end.result.text
    assert "Did you mean book?" in end.result.text


async def test_an_unknown_tool_beside_a_known_one_costs_only_itself() -> None:
    model = ScriptedModel([[tool_call("nothing_like_it"), tool_call("book", {"train": 1})], text("end")])
    result = await Agent(model=model, tools=[book]).run("go")

    missing, found = [m for m in result.messages if m.role == "tool"]
    assert missing.is_error
    assert found.text == "1 tourist []"


async def test_every_problem_of_the_arguments_reaches_the_model_with_its_path_and_no_hook_is_asked(path: str) -> None:
    args = {"train": "soon", "seat_class": "second", "legs": [{"train": 1, "seats": [1, "x"]}, {"seats": []}]}
    end = await call_through(path, "book", args, [book], UNASKED)

    assert (end.outcome, end.is_error) == ("invalid", True)
    for path_of_problem in ("train", "seat_class", "legs[0].seats[1]", "legs[1].train"):
        assert path_of_problem in end.result.text


@pytest.mark.parametrize("arguments", ['{"train": ', "[1]", '"x"', "null", "{'train': 1}", '{"train": NaN}'])
async def test_arguments_that_are_no_json_object_are_refused_and_the_run_goes_on(arguments: str) -> None:
    model = ScriptedModel([tool_call("book", arguments), text("end")])
    result = await Agent(model=model, tools=[book], hooks=UNASKED).run("go")

    told = model.requests[1].messages[-1]
    assert told.is_error
    assert "book" in told.text
    assert result.text == "end"


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
async def test_a_call_without_arguments_is_an_empty_object(arguments: str) -> None:
    @tool
    async def now() -> str:
        return "noon"

    model = ScriptedModel([tool_call("now", arguments), text("end")])
    result = await Agent(model=model, tools=[now]).run("go")

    assert result.messages[2].text == "noon"


async def test_arguments_are_coerced_before_gates_and_body_see_them_and_both_see_the_same(path: str) -> None:
    seen: list[Any] = []
    gate = Hook(seam="before_tool_call", fn=lambda c: seen.append(dict(c.args)), tools=("book",))
    end = await call_through(path, "book", {"train": "7", "legs": [{"train": "8", "seats": ["1"]}]}, [book], [gate])

    assert seen == [{"train": 7, "seat_class": "tourist", "legs": [{"train": 8, "seats": [1]}]}]
    assert end.result.text == "7 tourist [(8, [1])]"


async def test_hooks_see_what_the_model_wrote_beside_what_will_run(path: str) -> None:
    seen: list[Any] = []
    hooks = [
        Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={**c.args, "train": c.args["train"] + 1}), tools=("book",)),
        Hook(
            seam="before_tool_call",
            fn=lambda c: seen.append((json.loads(c.raw_args), c.original_args["train"], c.args["train"])), tools=("book",),
        ),
    ]  # fmt: skip
    await call_through(path, "book", {"train": "7"}, [book], hooks)

    assert seen == [({"train": "7"}, 7, 8)]


# --- the shim -------------------------------------------------------------------------------------


def from_old_form(raw: dict[str, Any]) -> dict[str, Any]:
    """`{"number": 7}` was how it was called once."""
    return {"train": raw["number"]} if "number" in raw else raw


@tool(prepare_arguments=from_old_form)
async def board(train: int) -> str:
    return f"boarded {train}"


async def test_the_shim_repairs_raw_arguments_before_validation(path: str) -> None:
    seen: list[Any] = []
    gate = Hook(seam="before_tool_call", fn=lambda c: seen.append(dict(c.args)), tools=("board",))
    end = await call_through(path, "board", {"number": "7"}, [board], [gate])

    assert seen == [{"train": 7}]
    assert end.result.text == "boarded 7"


async def test_the_shim_works_without_any_hook_too(path: str) -> None:
    assert (await call_through(path, "board", {"number": "7"}, [board])).result.text == "boarded 7"


@pytest.mark.parametrize("outcome", ["raises", "returns_nonsense", "returns_bad_values"])
async def test_a_shim_that_fails_refuses_the_call(outcome: str, path: str) -> None:
    def shim(raw: dict[str, Any]) -> Any:
        if outcome == "raises":
            raise KeyError("gone")
        return 42 if outcome == "returns_nonsense" else {"train": "soon"}

    @tool(name="board", prepare_arguments=shim)
    async def broken(train: int) -> str:
        raise AssertionError("the body ran")

    end = await call_through(path, "board", {"train": 7}, [broken], UNASKED)

    assert (end.outcome, end.is_error) == ("invalid", True)


# --- seam 11 --------------------------------------------------------------------------------------


async def test_arguments_a_hook_wrote_are_coerced_like_the_models(path: str) -> None:
    seen: list[Any] = []
    hooks = [
        Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={"train": "9"}), tools=("book",)),
        Hook(seam="before_tool_call", fn=lambda c: seen.append(c.args["train"]), tools=("book",)),
    ]
    end = await call_through(path, "book", {"train": 1}, [book], hooks)

    assert seen == [9]
    assert end.result.text == "9 tourist []"


@pytest.mark.parametrize("args", [{"train": "soon"}, {}, {"train": 1, "seat_class": "second"}, [1], None, "x"], ids=repr)
async def test_arguments_a_hook_wrote_that_the_tool_does_not_take_refuse_the_call_and_name_the_hook(args: Any, path: str) -> None:
    hooks = [
        Hook(seam="prepare_tool_call", fn=lambda c: Replace(args=args), tools=("book",), name="clumsy"),
        Hook(seam="before_tool_call", fn=never, tools=("book",), on_error="abort"),
    ]
    end = await call_through(path, "book", {"train": 1}, [book], hooks)

    assert (end.outcome, end.is_error) == ("blocked", True)
    assert "clumsy" in end.result.text


async def test_each_hook_at_11_sees_the_validated_work_of_the_one_before(path: str) -> None:
    seen: list[Any] = []

    def note_and_add(call: Any) -> Replace:
        seen.append(call.args["train"])
        return Replace(args={"train": str(call.args["train"] + 1)})

    hooks = [Hook(seam="prepare_tool_call", fn=note_and_add, tools=("book",), name=f"h{n}") for n in range(3)]
    end = await call_through(path, "book", {"train": 1}, [book], hooks)

    assert seen == [1, 2, 3]
    assert end.result.text == "4 tourist []"


async def test_a_failing_hook_at_11_that_fails_open_leaves_the_arguments_as_they_were(path: str) -> None:
    hook = Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={"train": "soon"}), tools=("book",), on_error="open")
    end = await call_through(path, "book", {"train": 1}, [book], [hook])

    assert end.result.text == "1 tourist []"


async def test_the_event_that_announces_a_call_carries_what_the_model_wrote() -> None:
    model = ScriptedModel([tool_call("book", {"train": "7"}), text("end")])
    shaper = Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={"train": 9}))
    talk = Agent(model=model, tools=[book], hooks=[shaper]).conversation()
    starts: list[Any] = []
    talk.on("tool_execution_start", starts.append)
    await talk.run("go")

    assert [(e.name, dict(e.args)) for e in starts] == [("book", {"train": "7"})]


async def test_a_change_at_11_is_judged_at_12_and_not_the_models_arguments(path: str) -> None:
    hooks = [
        Hook(seam="prepare_tool_call", fn=lambda c: Replace(args={**c.args, "seat_class": "first"}), tools=("book",)),
        Hook(
            seam="before_tool_call", fn=lambda c: Block("too dear") if c.args["seat_class"] == "first" else None, tools=("book",)
        ),
    ]  # fmt: skip
    end = await call_through(path, "book", {"train": 1}, [book], hooks)

    assert (end.outcome, end.result.text) == ("blocked", "too dear")
