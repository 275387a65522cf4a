"""A seam's decisions as JSON: every declared one is read, every other is refused."""

import msgspec
import pytest

from beforehand import (
    Answer,
    Ask,
    AssistantMessage,
    Block,
    Context,
    Continue,
    Drop,
    End,
    Hold,
    Interrupt,
    Queue,
    Replace,
    Resend,
    Steer,
    Text,
    Tool,
    Usage,
    UserMessage,
    tool,
)
from beforehand.hooks.check import Refused, split
from beforehand.seams import SEAMS
from beforehand.workspace.decisions import decisions_of, forms


@tool
async def find(n: int) -> str:
    """Finds."""
    return str(n)


class Asked(msgspec.Struct):
    """As much of a context as reading decisions needs."""

    context: Context = Context("old", (UserMessage("before"),), (find,))


USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": [{"type": "text", "text": "no"}]}
FORMS = {
    Block: ({"type": "block", "reason": "no"}, Block("no")),
    End: ({"type": "end", "reason": "enough"}, End("enough")),
    Ask: ({"type": "ask", "prompt": "ok?", "options": ["yes"]}, Ask("ok?", ("yes",))),
    Steer: ({"type": "steer", "feedback": "rather"}, Steer("rather")),
    Interrupt: ({"type": "interrupt", "reason": "stop", "resend": True, "keep": "aborted"}, Interrupt("stop", True, "aborted")),
    Hold: ({"type": "hold", "n": 3}, Hold(3)),
    Drop: ({"type": "drop"}, Drop()),
    Continue: ({"type": "continue"}, Continue()),
    Queue: ({"type": "queue", "message": USER}, Queue(UserMessage("hi"))),
    Resend: ({"type": "resend"}, Resend()),
}
VALUES = {
    "messages": ([USER], (UserMessage("hi"),)),
    "add_messages": ([USER], (UserMessage("hi"),)),
    "message": (USER, UserMessage("hi")),
    "context": ({"system": "new", "tools": ["find"]}, Context("new", (UserMessage("before"),), (find,))),
    "model": ("openai:other", "openai:other"),
    "thinking_level": ("high", "high"),
    "once": (True, True),
    "key": ("k", "k"),
    "text": ("x", "x"),
    "hold": (2, 2),
    "args": ({"n": 1}, {"n": 1}),
    "content": ([{"type": "text", "text": "x"}], (Text("x"),)),
    "details": ({"a": [1]}, {"a": [1]}),
    "structured_content": (None, None),
    "is_error": (True, True),
    "usage": ({"input_tokens": 3}, Usage(3)),
    "terminate": (True, True),
}


def answer(spec):
    if spec.name == "authorize_request":
        return {"type": "answer", "value": REPLY}, Answer(AssistantMessage((Text("no"),)))
    return {"type": "answer", "value": "given"}, Answer("given")


CELLS = [(spec, kind) for spec in SEAMS for kind in (*spec.verdicts, *spec.effects) if kind is not Replace]
FIELDS = [(spec, field) for spec in SEAMS for field in spec.verdicts.get(Replace, ()) if field != "request"]
NAMES = {kind: kind.__name__.lower() for kind in (*FORMS, Answer, Replace)}
FOREIGN = [(spec, kind) for spec in SEAMS for kind in NAMES if kind not in spec.verdicts and kind not in spec.effects]


def identify(value):
    return value.name if hasattr(value, "name") else value.__name__ if isinstance(value, type) else str(value)


@pytest.mark.parametrize(("spec", "kind"), CELLS, ids=identify)
def test_every_declared_decision_has_a_form_that_is_read_and_accepted(spec, kind):
    written, meant = answer(spec) if kind is Answer else FORMS[kind]
    assert decisions_of(spec, Asked(), written) == [meant]
    split(spec, decisions_of(spec, Asked(), written))


@pytest.mark.parametrize(("spec", "field"), FIELDS, ids=identify)
def test_every_field_that_may_be_replaced_has_a_form_that_is_read_and_accepted(spec, field):
    written, meant = VALUES[field]
    more = {"thinking_level": "low"} if field == "once" else {"text": "x"} if field == "hold" else {}
    (replace,) = decisions_of(spec, Asked(), {"type": "replace", field: written, **more})
    assert replace.fields()[field] == meant
    split(spec, [replace])


@pytest.mark.parametrize(("spec", "kind"), FOREIGN, ids=identify)
def test_every_other_decision_is_refused_with_what_may_be_returned(spec, kind):
    with pytest.raises(Refused) as caught:
        decisions_of(spec, Asked(), {"type": NAMES[kind]})
    assert f"a lambda at {spec.name} may return " in str(caught.value)
    for form in forms(spec):
        assert form in str(caught.value)


GATE = next(spec for spec in SEAMS if spec.name == "before_tool_call")
RESULT = next(spec for spec in SEAMS if spec.name == "after_tool_call")
NEXT = next(spec for spec in SEAMS if spec.name == "prepare_next_turn")
MESSAGE = next(spec for spec in SEAMS if spec.name == "on_message")
KEY = next(spec for spec in SEAMS if spec.name == "get_api_key")


def test_null_is_no_decision():
    assert decisions_of(GATE, Asked(), None) is None


def test_a_list_is_several_decisions():
    assert decisions_of(GATE, Asked(), [{"type": "block", "reason": "no"}, {"type": "resend"}]) == [Block("no"), Resend()]


@pytest.mark.parametrize(
    "returned",
    [
        True,
        False,
        0,
        "",
        "block",
        {},
        {"block": True},
        {"block": {"reason": "x"}},
        {"type": "Block"},
        {"type": ["block"]},
        {"authorize": False},
        [None],
        [[]],
        [{"type": "block"}, 1],
    ],
)
def test_what_is_no_decision_is_refused_and_never_ignored(returned):
    with pytest.raises(Refused, match="but a lambda at before_tool_call may return null, "):
        decisions_of(GATE, Asked(), returned)


@pytest.mark.parametrize(
    ("spec", "returned", "complaint"),
    [
        (GATE, {"type": "block", "reson": "x"}, "with the field 'reson', but at before_tool_call it takes reason, terminate"),
        (GATE, {"type": "block", "reason": 3}, "Expected `str | null`, got `int` - at `$.reason`"),
        (GATE, {"type": "steer"}, "missing required field `feedback`"),
        (RESULT, {"type": "replace", "text": "x"}, "with the field 'text'"),
        (RESULT, {"type": "replace", "content": [{"type": "text"}]}, "replace.content that cannot be used"),
        (
            RESULT,
            {"type": "replace", "content": [{"type": "text", "text": "x", "colour": 1}]},
            "replace.content[0].colour, which does not exist",
        ),
        (MESSAGE, {"type": "replace", "message": {"role": "user"}}, "replace.message that cannot be used"),
        (MESSAGE, {"type": "replace", "message": {**USER, "orign": "x"}}, "replace.message.orign, which does not exist"),
        (MESSAGE, {"type": "queue", "message": {"role": "nobody"}}, "queue.message that cannot be used"),
        (NEXT, {"type": "replace", "context": {"tools": ["steal"]}}, "it can only keep tools that are there: find"),
        (NEXT, {"type": "replace", "context": {"tools": "find"}}, "replace.context.tools that is no list"),
        (NEXT, {"type": "replace", "context": []}, "that is no object of system, messages and tools"),
    ],
)
def test_a_malformed_decision_says_what_is_wrong_and_where(spec, returned, complaint):
    with pytest.raises(Refused) as caught:
        decisions_of(spec, Asked(), returned)
    assert complaint in str(caught.value)


def test_a_key_that_was_returned_the_wrong_way_is_not_shown():
    with pytest.raises(Refused) as caught:
        decisions_of(KEY, Asked(), "sk-secret")
    assert "sk-secret" not in str(caught.value)


def test_the_table_of_values_covers_every_field_of_replace():
    assert set(VALUES) == set(Replace.__struct_fields__) - {"request"}
    assert isinstance(find, Tool)


def test_a_lambda_returns_at_most_so_many_decisions():
    queued = {"type": "queue", "message": "more"}
    assert decisions_of(SEAMS[9], Asked(), [queued] * 100) == [Queue("more")] * 100
    with pytest.raises(Refused, match="returned 101 decisions, more than 100"):
        decisions_of(SEAMS[9], Asked(), [queued] * 101)
