"""The small model on this machine: what it is shown, what it is allowed to say, and what comes of it.

The engine here is a stand-in that writes given tokens; `make demo-local` uses the real one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from beforehand import Agent, BadRequest, ConfigError, ContextTooLong, InvalidResponse, Options, Request, ToolSpec, tool
from beforehand.cli import story
from beforehand.cli.demo import play_local
from beforehand.cli.printer import Printer
from beforehand.messages import AssistantMessage, Image, Text, ToolCall, ToolMessage, UserMessage
from beforehand.models.base import Finish, TextDelta, ToolCallDelta
from beforehand.models.local_llama import LocalLlama, prompt_of, shape_of

FIND = story.find_trains.spec
BOOK = story.book_ticket.spec
END = -1


class Engine:
    """llama.cpp as the adapter uses it: each reply is a list of tokens, given by `write(prompt, grammar)`."""

    LlamaContextParams = LlamaModelParams = LlamaSamplerChainParams = type("Params", (), {})

    def __init__(self, write: Any) -> None:
        self.write = write
        self.prompts: list[str] = []
        self.grammars: list[str] = []
        self.samplers: list[list[str]] = []
        self.closed = 0

    def disable_logging(self) -> None: ...
    def ggml_backend_load_all(self) -> None: ...

    def json_schema_to_grammar(self, schema: str) -> str:
        return f'schema ::= {schema}\nspace ::= | " " | "\\n"{{1,2}} [ \\t]{{0,20}}\n'

    def llama_batch_get_one(self, tokens: list[Any], position: int) -> list[Any]:
        return tokens

    def LlamaModel(self, path: str, params: Any) -> Any:
        engine = self

        class Model:
            def get_vocab(self) -> Any:
                return Vocabulary(engine)

        return Model()

    def LlamaContext(self, model: Any, params: Any, verbose: bool) -> Any:
        engine = self

        class Context:
            def decode(self, tokens: list[Any]) -> None: ...

            def close(self) -> None:
                engine.closed += 1

        return Context()

    def LlamaSampler(self, params: Any) -> Any:
        engine, used = self, []
        self.samplers.append(used)

        class Sampler:
            tokens: Any = None

            def __getattr__(self, name: str) -> Any:  # add_greedy, add_temp and their like
                return lambda *args: used.append(name.removeprefix("add_"))

            def add_grammar(self, vocabulary: Any, grammar: str, root: str) -> None:
                used.append("grammar")
                engine.grammars.append(grammar)

            def sample(self, context: Any, index: int) -> Any:
                if self.tokens is None:
                    grammar = engine.grammars[-1] if "grammar" in used else None
                    self.tokens = itertools.chain(engine.write(engine.prompts[-1], grammar), [END])
                return next(self.tokens)

            def close(self) -> None:
                engine.closed += 1

        return Sampler()


class Vocabulary:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[str]:
        self.engine.prompts.append(text)
        return text.split()

    def is_eog(self, token: Any) -> bool:
        return token == END

    def token_to_piece(self, token: Any, special: bool) -> str:
        return token.encode("latin-1").decode()  # which fails for a part of a character, as the real one does


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.touch()
    return path


async def reply(model: LocalLlama, request: Request) -> list[Any]:
    return [event async for event in model.stream(request)]


def asks(*tools: ToolSpec, said: str = "trains to Mar del Plata on Friday?", **options: Any) -> Request:
    return Request("Be brief.", (UserMessage(said),), tools, Options(**options))


async def test_text_comes_token_by_token_and_ends_with_the_usage(weights: Path) -> None:
    engine = Engine(lambda prompt, grammar: ["Hel", "lo", "."])
    events = await reply(LocalLlama(weights, engine=engine), asks())
    assert [e.text for e in events[:-1]] == ["Hel", "lo", "."]
    assert events[-1].stop_reason == "stop"
    assert (events[-1].usage.input_tokens, events[-1].usage.output_tokens) == (len(engine.prompts[0].split()), 3)
    assert engine.closed == 2


async def test_a_call_forced_by_the_grammar_comes_as_a_tool_call(weights: Path) -> None:
    engine = Engine(lambda prompt, grammar: ['{"tool": "book_ticket", ', '"arguments": {"train": 305, "seat_class": "first"}}'])
    events = await reply(LocalLlama(weights, engine=engine), asks(BOOK))
    call = ToolCallDelta(0, None, "book_ticket", '{"train":305,"seat_class":"first"}')
    assert events == [call, Finish("tool_calls", events[-1].usage)]


async def test_an_answer_instead_of_a_call_comes_as_text(weights: Path) -> None:
    engine = Engine(lambda prompt, grammar: ['{"answer": "No train."}'])
    events = await reply(LocalLlama(weights, engine=engine), asks(FIND))
    assert events == [TextDelta("No train."), Finish("stop", events[-1].usage)]


async def test_a_reply_that_the_limit_cuts_says_so_and_calls_nothing(weights: Path) -> None:
    engine = Engine(lambda prompt, grammar: ['{"tool": ', '"book_ticket"', ', "arguments"'])
    events = await reply(LocalLlama(weights, engine=engine), asks(BOOK, max_tokens=2))
    assert events == [TextDelta('{"tool": "book_ticket"'), Finish("length", events[-1].usage)]


async def test_what_the_grammar_does_not_admit_is_an_error(weights: Path) -> None:
    with pytest.raises(InvalidResponse, match="something else than its grammar admits"):
        await reply(LocalLlama(weights, engine=Engine(lambda prompt, grammar: ["all aboard"])), asks(FIND))


async def test_half_a_character_is_left_out(weights: Path) -> None:
    events = await reply(LocalLlama(weights, engine=Engine(lambda prompt, grammar: ["a", "\xc3", "b"])), asks())
    assert "".join(e.text for e in events[:-1]) == "ab"


async def test_an_engine_that_fails_is_heard_of(weights: Path) -> None:
    def write(prompt: str, grammar: str | None) -> list[str]:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        await reply(LocalLlama(weights, engine=Engine(write)), asks())


async def test_a_request_longer_than_the_window_is_refused(weights: Path) -> None:
    model = LocalLlama(weights, engine=Engine(lambda prompt, grammar: []), context_tokens=8)
    with pytest.raises(ContextTooLong, match="a window of 8"):
        await reply(model, asks(said="word " * 20))


async def test_leaving_the_stream_stops_the_engine_at_the_next_token(weights: Path) -> None:
    written: list[int] = []
    go_on = threading.Event()

    def write(prompt: str, grammar: str | None) -> Any:
        yield "x"
        go_on.wait(10)
        for number in range(1_000):
            written.append(number)
            yield "x"

    engine = Engine(write)
    stream = LocalLlama(weights, engine=engine).stream(asks(max_tokens=1_000))
    await anext(stream)
    leaving = asyncio.ensure_future(stream.aclose())
    asyncio.get_running_loop().call_soon(go_on.set)  # after the first step of `leaving`
    await leaving
    assert len(written) <= 1
    assert engine.closed == 2


@pytest.mark.parametrize(("option", "value"), [("stop", ("x",)), ("provider_params", {"top_k": 1}), ("thinking_level", "high")])
async def test_an_option_that_it_cannot_honour_is_refused_by_name(weights: Path, option: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=option):
        await reply(LocalLlama(weights, engine=Engine(lambda prompt, grammar: [])), asks(**{option: value}))


async def test_images_are_refused(weights: Path) -> None:
    request = Request("", (UserMessage((Text("what is it?"), Image(url="http://127.0.0.1/x.png"))),))
    with pytest.raises(BadRequest, match="images"):
        await reply(LocalLlama(weights, engine=Engine(lambda prompt, grammar: [])), request)


async def test_replies_are_greedy_unless_a_temperature_is_asked_for(weights: Path) -> None:
    engine = Engine(lambda prompt, grammar: ["x"])
    model = LocalLlama(weights, engine=engine)
    await reply(model, asks())
    await reply(model, asks(temperature=0.5, top_p=0.9))
    assert engine.samplers == [["penalties", "greedy"], ["penalties", "top_p", "temp", "dist"]]


async def test_the_grammar_leaves_room_for_one_blank_between_tokens(weights: Path) -> None:
    engine = Engine(lambda prompt, grammar: ['{"answer": "x"}'])
    await reply(LocalLlama(weights, engine=engine), asks(FIND))
    assert engine.grammars[0].splitlines()[-1] == 'space ::= | " "'


def arguments(shape: dict[str, Any], name: str) -> dict[str, Any]:
    """What the arguments of this tool must look like."""
    form = next(form for form in shape["anyOf"] if form["properties"].get("tool") == {"const": name})
    return form["properties"]["arguments"]["properties"]


def test_free_text_may_only_be_a_name_or_number_that_the_user_said() -> None:
    fields = arguments(shape_of(asks(FIND)), "find_trains")
    assert fields["date"] == fields["to"] == {"enum": ["Mar", "Plata", "Friday", "Mar del Plata", "Plata on Friday"]}


def test_without_names_it_may_be_any_words_that_the_user_said() -> None:
    assert arguments(shape_of(asks(FIND, said="go home")), "find_trains")["to"] == {"enum": ["go", "home", "go home"]}


def test_choices_of_the_schema_stay_as_they_are() -> None:
    fields = arguments(shape_of(asks(BOOK)), "book_ticket")
    assert fields["seat_class"]["enum"] == ["first", "tourist"]
    assert fields["train"]["type"] == "integer"


@pytest.mark.parametrize(
    ("choice", "forms"),
    [
        (None, ["find_trains", "book_ticket", "answer"]), ("auto", ["find_trains", "book_ticket", "answer"]),
        ("required", ["find_trains", "book_ticket"]), ("book_ticket", ["book_ticket"]), ("none", []),
    ],
)  # fmt: skip
def test_the_tool_choice_decides_which_forms_a_reply_may_have(choice: str | None, forms: list[str]) -> None:
    shape = shape_of(asks(FIND, BOOK, tool_choice=choice))
    shown = [form["properties"].get("tool", {"const": "answer"})["const"] for form in shape["anyOf"]] if shape else []
    assert shown == forms


def test_the_prompt_shows_tools_calls_and_results() -> None:
    call = ToolCall("c1", "book_ticket", '{"train": 305, "seat_class": "first"}')
    refusal = ToolMessage("c1", "book_ticket", "No.", is_error=True)
    messages = (UserMessage("Book."), AssistantMessage((Text("So."), call)), refusal)
    assert prompt_of(Request("Be brief.", messages, (BOOK,)), with_tools=True) == (
        "<|im_start|>system\nBe brief.\nTools, called with one JSON object:\n"
        f"- book_ticket(train: integer, seat_class: first or tourist): {BOOK.description}<|im_end|>\n"
        "<|im_start|>user\nBook.<|im_end|>\n"
        '<|im_start|>assistant\n{"tool": "book_ticket", "arguments": {"train": 305, "seat_class": "first"}}<|im_end|>\n'
        "<|im_start|>assistant\nSo.<|im_end|>\n"
        "<|im_start|>user\nError from book_ticket: No.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_where_no_call_is_possible_the_prompt_shows_none() -> None:
    call = ToolCall("c1", "book_ticket", "{}")
    messages = (UserMessage("Book."), AssistantMessage((call,)), ToolMessage("c1", "book_ticket", "Booked."))
    prompt = prompt_of(Request("", messages), with_tools=False)
    assert "Tools" not in prompt
    assert '{"tool"' not in prompt
    assert "Result of book_ticket: Booked." in prompt


def test_missing_weights_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no model file"):
        LocalLlama(tmp_path / "nowhere.gguf")


async def test_it_is_a_model_like_any_other(weights: Path) -> None:
    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    replies = iter([['{"tool": "add", "arguments": {"a": 1, "b": 2}}'], ['{"answer": "It is 3."}']])
    model = LocalLlama(weights, engine=Engine(lambda prompt, grammar: next(replies)))
    result = await Agent(model=model, tools=[add]).run("1 + 2?")
    assert result.text == "It is 3."
    assert result.messages[2].text == "3"


async def test_the_demonstration_leads_a_silly_model_through_the_story(weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offered: list[list[str]] = []

    def write(prompt: str, grammar: str | None) -> list[str]:
        """Asks for the first thing it is offered, whatever that is."""
        assert grammar is not None, "it is never asked to speak"
        form = json.loads(grammar.partition("::= ")[2].splitlines()[0])["anyOf"]
        offered.append([f["properties"]["tool"]["const"] for f in form])
        call = form[0]["properties"]
        chosen = {name: field["enum"][0] if "enum" in field else 305 for name, field in call["arguments"]["properties"].items()}
        return [json.dumps({"tool": call["tool"]["const"], "arguments": chosen})]

    results = await play_local(Printer(None), LocalLlama(weights, engine=Engine(write)))
    out = capsys.readouterr().out
    assert [result.stop_reason for result in results] == ["completed", "completed"]
    assert offered == [["find_trains"], ["book_ticket"], ["book_ticket"], ["find_trains"], ["book_ticket"]]
    assert [result.text for result in results] == [
        "Booked: train 305, tourist class, coach 6, seat 31C, for Ana Ruiz, DNI ***",
        "Booked: train 305, first class, coach 1, seat 4A, for Ana Ruiz, DNI ***",
    ]
    assert f"first_class_is_refused       before_tool_call: Block: {story.REASON}" in out
    assert "the_tool_speaks_for_itself   authorize_request: Answer" in out
