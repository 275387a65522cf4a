"""ADF's shape of a request, out and back."""

import json
import re

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from beforehand import (
    Agent,
    AssistantMessage,
    Audio,
    Image,
    Limits,
    Options,
    Request,
    RequestTooLarge,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    Video,
)
from beforehand.frozen import freeze
from beforehand.hooks.check import Refused
from beforehand.models.openai_wire import PROTECTED
from beforehand.testing import ScriptedModel, text
from beforehand.validity import invalid_request
from beforehand.workspace import Lambda
from beforehand.workspace.codec import from_adf, read_request, request_json, to_adf

@pytest.mark.parametrize("levels", [90, 120, 400, 5_000])
def test_a_call_that_is_nested_absurdly_deep_fails_no_lambda(levels):
    call = ToolCall("c1", "find", '{"a": ' + "[" * levels + "]" * levels + "}")
    request = Request("", (UserMessage("Hi"), AssistantMessage((call,), "tool_calls"), ToolMessage("c1", "find", "no", True)))
    shown = msgspec.json.decode(request_json(request))
    assert bool(shown["messages"][1]["content"][0]["input"]) == (levels < 100)
    assert from_adf(shown, request) == request
    shown["messages"][1]["content"].append({"type": "text", "text": "more"})
    assert from_adf(shown, request).messages[1].content == (call, Text("more"))


# --- every request there is ---

words = st.text(max_size=12).map(lambda text: text.encode("utf-8", "replace").decode())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words, json_values, max_size=3)
images = st.builds(lambda data: Image(data=data), st.sampled_from(["aGk=", ""])) | st.builds(
    lambda url, kind: Image(url=url, media_type=kind),
    st.sampled_from(["https://x/y.png", "data:image/gif;base64,aGk="]),
    st.sampled_from(["image/png", "image/gif"]),
)
parts = st.lists(st.builds(Text, words) | images, max_size=3).map(tuple)
contents = words | parts
media = st.builds(Audio, st.sampled_from(["aGk=", ""]), st.sampled_from(["wav", "mp3"])) | st.builds(Video, words)
user_contents = words | st.lists(st.builds(Text, words) | images | media, max_size=3).map(tuple)
arguments = objects.map(lambda o: json.dumps(o, indent=1)) | st.sampled_from(
    ["{}", "", "{not json", "[1]", '{"n": 1.0, "big": 12345678901234567890}']
)
usages = st.builds(Usage, st.integers(0, 9), st.integers(0, 9))


@st.composite
def requests(draw):
    messages, ids = [], iter(range(100))
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["system", "user", "assistant"]))
        if kind == "system":
            messages.append(SystemMessage(draw(words)))
        elif kind == "user":
            messages.append(UserMessage(draw(user_contents), origin=draw(st.sampled_from(["prompt", "steer", "hook"]))))
        else:
            calls = [
                ToolCall(f"c{next(ids)}", draw(st.sampled_from(["a", "b", ""])), draw(arguments))
                for _ in range(draw(st.integers(0, 2)))
            ]
            said = draw(st.lists(st.builds(Text, words) | st.builds(Thinking, words, st.none() | words) | images, max_size=2))
            messages.append(AssistantMessage((*said, *calls), usage=draw(usages), id=draw(words), model="m", provider="p"))
            for call in calls:
                messages.append(
                    ToolMessage(
                        call.id, call.name, draw(contents), draw(st.booleans()), details=freeze(draw(objects)), outcome="ran"
                    )
                )
    tools = tuple(ToolSpec(name, draw(words), freeze(draw(objects))) for name in draw(st.sets(st.sampled_from("abc"))))
    options = Options(
        draw(st.none() | st.integers(1, 9)),
        draw(st.none() | st.floats(0, 2)),
        draw(st.none() | st.floats(0, 1)),
        draw(st.sampled_from(["off", "low", "max"])),
        None,
        draw(st.sampled_from([(), ("END",)])),
        freeze(draw(objects)),
    )
    return Request(draw(words), tuple(messages), tools, options)


def like_javascript(value):
    """What is left of numbers in a language where all of them are doubles."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        number = float(value) if abs(value) < 1e300 else value
        return int(number) if number == int(number) else number
    return [like_javascript(v) for v in value] if isinstance(value, list) else {k: like_javascript(v) for k, v in value.items()}


@given(requests())
def test_a_request_that_comes_back_as_it_went_is_the_same_request(request):
    assert from_adf(json.loads(request_json(request)), request) == request


@given(requests())
def test_a_request_that_went_through_javascript_is_the_same_request(request):
    assert from_adf(like_javascript(json.loads(request_json(request))), request) == request


@given(requests())
def test_a_shuffled_request_still_finds_each_original(request):
    shown = json.loads(request_json(request))
    kept = [m for m in shown["messages"] if m["role"] == "user" and not _about_tools(m)]
    if kept:
        back = from_adf({**shown, "messages": kept[::-1]}, request)
        assert list(back.messages) == [request.messages[m["seq"]] for m in kept[::-1]]


@given(requests())
def test_without_seq_what_the_model_reads_is_the_same(request):
    said = [part for m in request.messages if isinstance(m, AssistantMessage) for part in m.content]
    assume(not any(isinstance(part, Image) or (isinstance(part, ToolCall) and not part.name) for part in said))
    shown = json.loads(request_json(request))
    bare = {**shown, "messages": [{k: v for k, v in m.items() if k != "seq"} for m in shown["messages"]]}
    back = from_adf(bare, request)
    assert invalid_request(back) is None
    again = to_adf(back)
    assert [{**m, "seq": 0} for m in json.loads(msgspec.json.encode(again))["messages"]] == [
        {**m, "seq": 0} for m in shown["messages"]
    ]


def _about_tools(message):
    return isinstance(message["content"], list) and any(b["type"] == "tool_result" for b in message["content"])


def test_a_lambda_puts_a_sound_and_a_film_into_a_message_of_the_user():
    value = to_adf(Request("", (UserMessage("Listen"),)))
    value["messages"][0] = {"role": "user", "content": [
        {"type": "text", "text": "Listen"},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
        {"type": "video_url", "video_url": {"url": "https://x/y.mp4"}},
    ]}  # fmt: skip
    message = from_adf(value, Request("", (UserMessage("Listen"),))).messages[0]
    assert message == UserMessage((Text("Listen"), Audio("aGk=", "mp3"), Video("https://x/y.mp4")))


# --- what a lambda changes ---

CALL = AssistantMessage(
    (Text("Let me look."), ToolCall("c1", "find", '{ "n": 12345678901234567890 }')), "tool_calls", Usage(5, 6), id="m1"
)
ORIGINAL = Request(
    "Be brief.",
    (
        SystemMessage("Rules."),
        UserMessage("Find it."),
        CALL,
        ToolMessage("c1", "find", (Text("DNI 12"), Image(data="aGk=")), details=freeze({"rows": 1}), outcome="ran"),
        UserMessage("And now?"),
    ),
    (ToolSpec("find", "Finds.", freeze({"type": "object"})),),
    Options(max_tokens=100, thinking_level="low", stop=("END",)),
)


def changed(change):
    value = json.loads(request_json(ORIGINAL))
    change(value)
    return from_adf(value, ORIGINAL)


def test_the_shape_is_the_one_that_lambdas_are_written_for():
    assert json.loads(request_json(ORIGINAL)) == {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Rules.", "seq": 0},
            {"role": "user", "content": "Find it.", "seq": 1},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "c1", "name": "find", "input": {"n": 12345678901234567890}},
                ],
                "seq": 2,
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "DNI 12"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                ],
                "seq": 3,
            },
            {"role": "user", "content": "And now?", "seq": 4},
        ],
        "tools": [{"name": "find", "description": "Finds.", "input_schema": {"type": "object"}}],
        "options": {"maxTokens": 100, "reasoning": {"effort": "low"}},
    }


def test_unset_options_are_absent():
    assert to_adf(Request("", (UserMessage("x"),)))["options"] == {}


def test_a_redacted_result_keeps_what_the_shape_has_no_place_for():
    def redact(value):
        value["messages"][3]["content"][0]["content"] = "DNI ***"

    result = changed(redact).messages[3]
    assert result == ToolMessage("c1", "find", (Text("DNI ***"), Image(data="aGk=")), details=freeze({"rows": 1}), outcome="ran")


def test_an_image_can_be_taken_out_of_a_result():
    assert changed(lambda value: value["messages"][3]["content"].pop()).messages[3].content == "DNI 12"


def test_a_changed_message_keeps_the_parts_that_were_not_changed():
    def reword(value):
        value["messages"][2]["content"][0]["text"] = "Looking."

    assert changed(reword).messages[2] == msgspec.structs.replace(CALL, content=(Text("Looking."), CALL.content[1]))


def test_a_changed_system_message_stays_one():
    def reword(value):
        value["messages"][0]["content"] = "Other rules."

    assert changed(reword).messages[0] == SystemMessage("Other rules.")


def test_new_messages_are_read_as_they_stand():
    def add(value):
        value["messages"][1:1] = [
            {
                "role": "user",
                "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
            },
            {"role": "assistant", "content": "Seen."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "n1", "name": "find", "input": {"n": 1}}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "and"},
                    {"type": "tool_result", "tool_use_id": "n1", "content": "1", "is_error": True},
                ],
            },
        ]

    assert changed(add).messages[1:6] == (
        UserMessage((Text("See"), Image(url="https://x/y.png"))),
        AssistantMessage((Text("Seen."),), origin="hook"),
        AssistantMessage((ToolCall("n1", "find", '{"n":1}'),), "tool_calls", origin="hook"),
        ToolMessage("n1", "find", "1", True, origin="hook"),
        UserMessage((Text("and"),)),
    )


def test_what_has_no_name_in_the_shape_stays_with_the_runtime():
    assert changed(lambda value: value["options"].clear()).options == Options(stop=("END",))


def test_dynamic_instructions_are_appended_to_the_system_text():
    assert changed(lambda value: value["options"].update(dynamicInstructions="Be kind.")).system == "Be brief.\n\nBe kind."


def test_an_image_the_model_made_comes_back_but_a_lambda_cannot_make_one():
    request = Request("", (AssistantMessage((Text("a"), Image(data="aGk="))),))
    value = json.loads(request_json(request))
    value["messages"][0]["content"][0]["text"] = "b"
    assert from_adf(value, request).messages[0].content == (Text("b"), Image(data="aGk="))
    value["messages"][0]["content"][1]["image_url"]["url"] = "https://elsewhere/x.png"
    with pytest.raises(Refused, match="which a message of the assistant cannot hold"):
        read_request(value, request)


def test_a_call_the_model_gave_no_name_comes_back_but_a_lambda_cannot_make_one():
    calls = AssistantMessage((Text("a"), ToolCall("1", "", '{"n": 12345678901234567890}')), "tool_calls")
    request = Request("", (calls, ToolMessage("1", "", "not found", is_error=True)))
    value = like_javascript(json.loads(request_json(request)))
    value["messages"][0]["content"][0]["text"] = "b"
    assert from_adf(value, request).messages[0].content == (Text("b"), calls.content[1])
    value["messages"][0]["content"][1]["input"] = {}
    with pytest.raises(Refused, match=r"\$\.messages\[0\]\.content\[1\]\.name must be a string that is not empty"):
        read_request(value, request)


def test_extra_fields_of_messages_and_blocks_are_tolerated():
    def decorate(value):
        value["messages"][1].update(created_at=1)
        value["messages"][2]["content"][0]["cache_control"] = {"type": "ephemeral"}

    assert [m.text for m in changed(decorate).messages] == [m.text for m in ORIGINAL.messages]


# --- what is refused, with its path ---

GOOD = {"system": "", "messages": [{"role": "user", "content": "x"}], "tools": [], "options": {}}
TOOL = {"name": "a", "description": "", "input_schema": {}}
USE, RESULT = {"type": "tool_use", "id": "1", "name": "a"}, {"type": "tool_result", "tool_use_id": "1", "content": ""}


def messages(*given):
    return {**GOOD, "messages": [{"role": role, "content": content} for role, content in given]}


def options(**given):
    return {**GOOD, "options": given}


REFUSED = [
    (None, "$ must be an object of system, messages, tools, options, and nothing was returned"),
    ([], "$ must be an object"),
    ("text", "$ must be an object"),
    ({"request": GOOD, "loop": {"name": "main"}}, "$.request does not belong there"),
    ({**GOOD, "extra": 1}, "$.extra does not belong there"),
    ({**GOOD, "type": "replace"}, "$.type does not belong there"),
    ({k: v for k, v in GOOD.items() if k != "system"}, "$.system must be a string"),
    ({**GOOD, "system": 3}, "$.system must be a string"),
    ({**GOOD, "messages": []}, "$.messages must be a list with at least one"),
    ({**GOOD, "messages": {}}, "$.messages must be a list"),
    ({**GOOD, "messages": ["x"]}, "$.messages[0] must be an object"),
    (messages(("system", "x")), "$.messages[0].role is 'system'"),
    (messages(("tool", "x")), "$.messages[0].role is 'tool'"),
    (messages(("user", None)), "$.messages[0].content must be a string or a list"),
    (messages(("user", ["x"])), "$.messages[0].content[0] must be an object"),
    (messages(("user", [{"type": "custom"}])), "$.messages[0].content[0].type is 'custom'"),
    (messages(("user", [{}])), "$.messages[0].content[0].type is None"),
    (messages(("user", [{"type": "text"}])), "$.messages[0].content[0].text must be a string"),
    (messages(("user", [{"type": "thinking", "thinking": ""}])), "which a message of the user cannot hold"),
    (messages(("user", [USE])), "which a message of the user cannot hold"),
    (messages(("assistant", [RESULT])), "which a message of the assistant cannot hold"),
    (messages(("assistant", [{"type": "image_url", "image_url": {"url": "x"}}])), "which a message of the assistant cannot hold"),
    (messages(("user", [{"type": "image_url", "image_url": "x"}])), "$.messages[0].content[0].image_url must be an object"),
    (messages(("user", [{"type": "image_url", "image_url": {}}])), "image_url.url must be a string"),
    (messages(("user", [{"type": "input_audio", "input_audio": {"data": ""}}])), "input_audio.format must be a string"),
    (messages(("user", [{"type": "input_audio", "input_audio": {"format": "wav"}}])), "input_audio.data must be a string"),
    (messages(("user", [{"type": "video_url", "video_url": {}}])), "video_url.url must be a string"),
    (messages(("assistant", [{"type": "video_url", "video_url": {"url": "x"}}])), "which a message of the assistant cannot hold"),
    (messages(("assistant", [{**USE, "id": ""}])), "$.messages[0].content[0].id must be a string that is not empty"),
    (messages(("assistant", [{**USE, "input": []}])), "$.messages[0].content[0].input must be an object"),
    (messages(("user", [{**RESULT, "content": [1]}])), "$.messages[0].content[0].content must be a string"),
    (messages(("user", [{**RESULT, "is_error": 1}])), "is_error must be true or false"),
    (messages(("assistant", [USE])), "the tool_use '1' has no result"),
    (messages(("user", [RESULT]), ("assistant", [USE])), "is no earlier tool_use that waits for its result"),
    (messages(("assistant", [USE]), ("user", [RESULT, RESULT])), "is no earlier tool_use that waits"),
    (messages(("assistant", [USE, USE]), ("user", [RESULT])), "is used a second time"),
    (messages(("assistant", [USE]), ("user", [RESULT]), ("assistant", [USE]), ("user", [RESULT])), "is used a second time"),
    ({**GOOD, "tools": None}, "$.tools must be a list"),
    ({**GOOD, "tools": [{**TOOL, "name": ""}]}, "$.tools[0].name must be"),
    ({**GOOD, "tools": [TOOL, TOOL]}, "$.tools[1].name: two tools are named 'a'"),
    ({**GOOD, "tools": [{"name": "a", "input_schema": {}}]}, "$.tools[0].description must be a string"),
    ({**GOOD, "tools": [{**TOOL, "input_schema": "x"}]}, "$.tools[0].input_schema must be an object"),
    ({k: v for k, v in GOOD.items() if k != "options"}, "$.options must be an object"),
    (options(stop=["x"]), "$.options.stop does not belong"),
    *[
        (options(**{key: value}), f"$.options.{key} must be")
        for key, value in [
            ("maxTokens", 0),
            ("maxTokens", 1.5),
            ("maxTokens", True),
            ("maxTokens", None),
            ("thinkingBudget", 0),
            ("temperature", 2.1),
            ("temperature", -1),
            ("temperature", None),
            ("temperature", True),
            ("topP", 1.1),
            ("dynamicInstructions", None),
            ("reasoning", None),
            ("reasoning", "high"),
            ("providerParams", []),
            ("providerParams", None),
        ]
    ],
    (options(thinkingBudget=100), "$.options.thinkingBudget cannot be sent"),
    (options(reasoning={"effort": "huge"}), "effort is 'huge'"),
    (options(reasoning={"summary": "auto"}), "$.options.reasoning.summary does not belong"),
    (options(providerParams={"x": float("nan")}), "$.options.providerParams.x is nan, which JSON cannot hold"),
    ({**GOOD, "system": float("inf")}, "$.system is inf"),
    (options(providerParams={"x": object()}), "$.options.providerParams.x is a object"),
    (options(providerParams={1: 2}), "has the key 1, which is no string"),
    *[
        (options(providerParams={name: 1}), f"$.options.providerParams.{name} cannot be set there: {way}")
        for name, way in [
            ("max_tokens", "say it with $.options.maxTokens"),
            ("max_completion_tokens", "say it with $.options.maxTokens"),
            ("temperature", "say it with $.options.temperature"),
            ("top_p", "say it with $.options.topP"),
            ("reasoning_effort", "say it with $.options.reasoning"),
            ("Messages", "say it with $.messages"),
            ("tools", "say it with $.tools"),
            ("stop", "stays with the runtime"),
            ("tool_choice", "stays with the runtime"),
            ("STREAM", "stays with the runtime"),
        ]
    ],
]


@pytest.mark.parametrize(("value", "complaint"), REFUSED, ids=[f"{i}: {complaint}" for i, (_, complaint) in enumerate(REFUSED)])
def test_a_request_that_cannot_be_sent_is_refused_with_its_path(value, complaint):
    with pytest.raises(Refused) as caught:
        read_request(value, ORIGINAL)
    assert complaint in str(caught.value)
    assert str(caught.value).startswith("returned a request that cannot be sent: $")


def test_a_value_that_contains_itself_is_refused():
    value = {**GOOD, "options": {"providerParams": {}}}
    value["options"]["providerParams"]["x"] = value["options"]["providerParams"]
    with pytest.raises(Refused, match=r"\$\.options\.providerParams\.x contains itself"):
        read_request(value, ORIGINAL)


@pytest.mark.parametrize("name", sorted(PROTECTED))
def test_no_lambda_sets_what_an_adapter_protects(name):
    with pytest.raises(Refused, match=re.escape(f"$.options.providerParams.{name} cannot be set there")):
        read_request(options(providerParams={name: 1}), ORIGINAL)


def test_parameters_of_the_provider_that_the_owner_has_set_come_back_as_they_were():
    owners = Options(provider_params=freeze({"max_completion_tokens": 100, "seed": 7}))
    original = Request("", (UserMessage("x"),), (), owners)
    assert read_request(options(providerParams={"max_completion_tokens": 100.0, "seed": 8}), original).request.options == Options(
        provider_params=freeze({"max_completion_tokens": 100.0, "seed": 8})
    )
    with pytest.raises(Refused, match=r"\$\.options\.providerParams\.max_completion_tokens cannot be set there"):
        read_request(options(providerParams={"max_completion_tokens": 101}), original)


# --- results that stand apart from their calls ---


def use(call_id):
    return {"type": "tool_use", "id": call_id, "name": "find", "input": {}}


def result_of(call_id):
    return {"type": "tool_result", "tool_use_id": call_id, "content": f"result {call_id}"}


def words_of(*given):
    """What a request of these messages says, once it has been found fit to be sent."""
    request = read_request(messages(*given), ORIGINAL).request
    assert invalid_request(request) is None
    said = []
    for message in request.messages:
        calls = "".join(f"{call.id}?" for call in message.tool_calls) if isinstance(message, AssistantMessage) else ""
        said.append(calls or message.text)
    return said


TEXT = {"type": "text", "text": "between"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("assistant", [use("a")]), ("user", "between"), ("user", [result_of("a")])], ["a?", "result a", "between"]),
        ([("assistant", [use("a")]), ("assistant", "between"), ("user", [result_of("a")])], ["a?", "result a", "between"]),
        (
            [("assistant", [use("a"), use("b")]), ("user", [result_of("b"), TEXT]), ("user", [result_of("a")])],
            ["a?b?", "result a", "result b", "between"],
        ),
        ([("assistant", [use("a"), use("b")]), ("user", [result_of("b"), TEXT, result_of("a")])],
         ["a?b?", "result b", "result a", "between"]),  # they stand together, so nothing moves
        (
            [("assistant", [use("a")]), ("assistant", [use("b")]), ("user", [result_of("a"), result_of("b")]), ("user", "then")],
            ["a?", "result a", "b?", "result b", "then"],
        ),
    ],
)  # fmt: skip
def test_a_result_that_stands_apart_moves_up_to_its_call(given, said):
    assert words_of(("user", "first"), *given, ("user", "last")) == ["first", *said, "last"]


def test_a_result_that_moves_keeps_its_images_and_what_the_shape_has_no_place_for():
    shown = json.loads(request_json(ORIGINAL))
    place = next(i for i, m in enumerate(shown["messages"]) if _about_tools(m))
    shown["messages"].insert(place, {"role": "user", "content": "between"})
    back = from_adf(shown, ORIGINAL)
    assert list(back.messages) == [*ORIGINAL.messages[: place + 1], UserMessage("between"), *ORIGINAL.messages[place + 1 :]]


# --- what it costs ---


class Counted(list):
    """A list that counts how often somebody goes through it."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def test_the_messages_are_not_searched_for_each_of_their_blocks():
    ids = [str(i) for i in range(100)]
    old = Counted([UserMessage("x"), AssistantMessage(tuple(Text(i) for i in ids))])
    value = messages(("assistant", [use(i) for i in ids]), ("user", [result_of(i) for i in ids]))
    value["messages"] = Counted(value["messages"])
    assert len(from_adf(value, Request("", old)).messages) == 101
    assert value["messages"].times < 10
    assert old.times < 10


def test_a_message_that_was_shown_is_looked_through_once_for_all_that_come_back():
    parts = Counted(Text(str(i)) for i in range(50))
    value = {**GOOD, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 50, "seq": 0}] * 50}
    assert len(from_adf(value, Request("", (UserMessage(parts),))).messages) == 50
    assert parts.times < 10


class Compared(str):
    """A text that counts how often such texts are compared."""

    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Compared.times += 1
        return str.__eq__(self, other)


def test_calls_without_a_name_are_not_compared_with_each_other():
    """A model can make any number of them in one reply."""
    ids = [Compared(i) for i in range(200)]
    calls = AssistantMessage(tuple([ToolCall(i, "", "{}") for i in ids]), "tool_calls")
    request = Request("", (calls, *[ToolMessage(str(i), "", "not found", is_error=True) for i in ids]))
    value = json.loads(request_json(request))
    Compared.times = 0
    assert from_adf(value, request).messages == request.messages
    assert Compared.times < 20 * len(ids)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_request_too_large_to_be_read_at_once_is_read_all_the_same(place, broken):
    last = "{'role': 'user', 'content': 7}" if broken else "{'role': 'user', 'content': 'last'}"
    code = f"def main(i):\n    many = [{{'role': 'user', 'content': 'x' * 100}}] * 4000\n    return {{**i['request'], 'messages': [*many, {last}]}}\n"  # noqa: E501
    (place / "lib" / "x.py").write_text(code)
    model = ScriptedModel([text("hello")])
    result = await Agent(model=model, workspace=place, pre_llm_hook={"source": "lib/x.py"}).run("hi", check=False)
    if broken:
        assert "$.messages[4000].content must be a string or a list of blocks" in str(result.error)
        assert model.requests == []
    else:
        assert [len(r.messages) for r in model.requests] == [4001]


@pytest.mark.parametrize("broken", [False, True])
async def test_messages_too_many_to_be_read_at_once_are_read_all_the_same(place, broken):
    last = "{'role': 'user', 'content': 7}" if broken else "{'role': 'user', 'content': 'last'}"
    many = "[{'role': 'user', 'content': 'x' * 100}] * 4000"
    (place / "lib" / "x.py").write_text(f"def main(i):\n    return {{'type': 'replace', 'messages': [*{many}, {last}]}}\n")
    model = ScriptedModel([text("hello")])
    hooks = [Lambda("lib/x.py:main", seam="transform_context", workspace=place)]
    result = await Agent(model=model, hooks=hooks).run("hi", check=False)
    if broken:
        assert "replace.messages that cannot be used" in str(result.error)
        assert model.requests == []
    else:
        assert [len(r.messages) for r in model.requests] == [4001]


# --- what it leaves for the window ---


@pytest.mark.parametrize(
    "change",
    [
        "r['options']['providerParams'] = {'prefix': 'x' * 100000}",
        "r['messages'] += [{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': '', 'signature': 'x' * 100000}]}]",
        "r['messages'] += [{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 'x' * 100000}]}]",
    ],
)
async def test_a_hook_cannot_fill_the_window_unseen(place, change):
    (place / "lib" / "x.py").write_text(f"def main(i):\n    r = i['request']\n    {change}\n    return r\n")
    model = ScriptedModel([text("hello")])
    agent = Agent(model=model, workspace=place, pre_llm_hook={"source": "lib/x.py"}, limits=Limits(context_tokens=1000))
    result = await agent.run("hi", check=False)
    assert isinstance(result.error, RequestTooLarge)
    assert model.requests == []


def test_what_the_shape_leaves_open_is_left_open():
    for value in (
        GOOD,
        messages(("assistant", "first")),
        messages(("user", ""), ("user", [])),
        messages(("user", [{"type": "text", "text": ""}])),
    ):
        assert read_request(value, ORIGINAL).request.system == ""
