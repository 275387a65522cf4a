"""What a journal does not hold: keys, and what hooks took out. And what it says of text that was shown and then lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import Agent, Hook, Options, Replace, Request, ToolContext, tool
from beforehand.errors import AuthenticationError, RunError
from beforehand.journal import Journal, verify
from beforehand.models.base import CallInfo, Finish, Model, ModelEvent, TextDelta
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call

from journal.cutting import all_records, cut
from pipeline.virtual_time import in_virtual_time

KEY = "sk-0123456789abcdefABCDEF-never-written"


def every_byte(folder: Path) -> bytes:
    """The journal's file, its log and whatever else lies beside it."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


# --- keys -----------------------------------------------------------------------------------------


async def test_no_key_is_ever_written_wherever_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def failing(context: Any) -> Any:
        raise RuntimeError(f"the vault said {KEY}")

    gives = Hook(seam="get_api_key", fn=lambda c: Replace(key=KEY), name="gives")
    fails = Hook(seam="get_api_key", fn=failing, name="fails")
    opens = Hook(seam="get_api_key", fn=failing, name="opens", on_error="open")
    nowhere = {"model": "openai:gpt-4o-mini", "base_url": "http://127.0.0.1:9/v1"}
    for n, options in enumerate([
        {"model": ScriptedModel([text("hello")]), "hooks": [gives]}, {"model": ScriptedModel([text("hello")]), "hooks": [fails]},
        {"model": ScriptedModel([text("hello")]), "hooks": [opens]}, {**nowhere, "api_key": KEY}, nowhere,
        {**nowhere, "hooks": [gives]},
    ]):  # fmt: skip
        agent = Agent(**options, journal=tmp_path / "runs.db")
        await agent.run("go", run_id=f"R{n}", check=False)
        assert KEY.encode() not in every_byte(tmp_path)
        await agent.aclose()
    assert KEY.encode() not in every_byte(tmp_path)


class Echoes(Model):
    """Somebody's own adapter, whose failure repeats the key and the address. It fails as `raises` says."""

    name, provider, context_tokens = "echoes", "own", None
    endpoint = f"http://user:{KEY}-pass@127.0.0.1:9/v1?sig={KEY}-query"

    def __init__(self, raises: Callable[[str], Exception]) -> None:
        self.raises = raises

    async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
        raise self.raises(f"{self.endpoint} does not take {call.key}")
        yield Finish("stop")


@pytest.mark.parametrize("raises", [AuthenticationError, RuntimeError, lambda said: OSError(5, said)])
async def test_a_model_of_somebodys_own_that_repeats_its_key_puts_it_on_no_record(tmp_path: Path, raises: Any) -> None:
    gives = Hook(seam="get_api_key", fn=lambda c: Replace(key="hunter2!"), name="gives")
    async with Agent(model=Echoes(raises), hooks=[gives], journal=tmp_path / "runs.db") as agent:
        result = await agent.run("go", run_id="R", check=False)
    assert "does not take ***" in str(result.error) and "127.0.0.1:9/v1" in str(result.error)
    for secret in ("hunter2!", KEY):
        assert secret not in str(result.error)
        assert secret.encode() not in every_byte(tmp_path)


async def test_a_short_key_of_the_environment_is_hidden_in_the_error_of_a_hook_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "hunter2!")

    def failing(context: Any) -> Any:
        raise RuntimeError("the vault does not take hunter2! today")

    fails = Hook(seam="get_api_key", fn=failing, name="fails")
    async with Agent(model=ScriptedModel([text("x")]), hooks=[fails], journal=tmp_path / "runs.db") as agent:
        result = await agent.run("go", run_id="R", check=False)
    assert "the vault does not take *** today" in str(result.error)
    assert b"hunter2!" not in every_byte(tmp_path)


@pytest.mark.parametrize(
    ("params", "recorded"),
    [({"api_key": KEY}, False), ({"extra": [{"Authorization": f"Bearer {KEY}"}]}, False), ({"max_tokens": 5, "seed": 7}, True)],
)
async def test_a_key_among_the_parameters_is_on_no_record_and_the_hook_is_asked_again(
    tmp_path: Path, params: dict[str, Any], recorded: bool
) -> None:
    asked: list[str] = []

    def other_system(call: Any) -> Replace:
        asked.append("asked")
        return Replace(request=msgspec.structs.replace(call.request, system="s"))

    sees = Hook(seam="before_provider_call", fn=other_system, name="other_system")

    def agent(journal: Path, model: Any) -> Agent:
        return Agent(model=model, options=Options(provider_params=params), hooks=[sees], journal=journal)

    async with agent(tmp_path / "runs.db", ScriptedModel([text("x")])) as first:
        await first.run("go", run_id="R")
    assert KEY.encode() not in every_byte(tmp_path)
    records = all_records(tmp_path / "runs.db")
    last = max(r.n for r in records if r.kind == "ruling")
    cut(records[:last], {"R": None}, tmp_path / "cut.db").close()
    model = ScriptedModel([text("x")])
    async with agent(tmp_path / "cut.db", model) as again:
        await again.resume("R")
    assert model.requests[-1].system == "s"
    assert len(asked) == (1 if recorded else 2)


async def test_a_resumed_run_asks_for_its_key_again(tmp_path: Path) -> None:
    gives = Hook(seam="get_api_key", fn=lambda c: Replace(key=KEY), name="gives")
    call = tool_call("look", id="c")

    @tool(replay="safe")
    async def look() -> str:
        return "seen"

    first = Agent(model=ScriptedModel([call, text("x")]), tools=[look], hooks=[gives], journal=tmp_path / "whole.db")
    await first.run("go", run_id="R")
    await first.aclose()
    records = all_records(tmp_path / "whole.db")
    last = max(r.n for r in records if r.kind == "request")
    cut(records[: last - 1], {"R": None}, tmp_path / "cut.db").close()
    model = ScriptedModel([text("x")])
    again = first.replace(model=model, journal=tmp_path / "cut.db")
    assert (await again.resume("R")).text == "x"
    assert model.keys == [KEY]
    await again.aclose()


# --- what 13 took out -----------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [False, True])
async def test_what_a_hook_took_out_of_a_result_is_kept_only_if_that_is_asked_for(tmp_path: Path, raw: bool) -> None:
    @tool
    async def card(ctx: ToolContext) -> dict[str, str]:
        ctx.update("reading 4111-1111")
        return {"number": "4111-1111"}

    @tool(replay="safe")
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call_tool("card", {})).text

    redact = Hook(
        seam="after_tool_call", fn=lambda c: Replace(content=str(c.content).replace("4111-1111", "****")), name="redact"
    )
    model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else [tool_call("card"), tool_call("outer")])
    agent = Agent(model=model, tools=[card, outer], hooks=[redact], journal=tmp_path / "runs.db", journal_raw=raw)
    result = await agent.run("go", run_id="R")
    assert "4111" not in str(result.messages)
    assert (b"4111-1111" in every_byte(tmp_path)) is raw
    outcomes = [r.data for r in agent.plan.journal.records("R") if r.kind == "outcome"]
    assert all("4111-1111" not in str(o["result"]) for o in outcomes)
    assert any("4111-1111" in str(o.get("raw")) for o in outcomes) is raw
    await agent.aclose()


# --- text that was shown --------------------------------------------------------------------------


class Slow(Model):
    """Sends pieces that a test lets through one by one, in virtual time."""

    name, provider, endpoint, context_tokens = "slow", "scripted", "in-process", None

    def __init__(self, pieces: list[str], pause: float) -> None:
        self.pieces, self.pause = pieces, pause

    async def stream(self, request: Request, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008
        for piece in self.pieces:
            yield TextDelta(piece)
            await asyncio.sleep(self.pause)
        yield Finish("stop")


def opened(path: Path) -> Journal:
    """Virtual time does not wait for threads, so the file is open before it begins."""
    journal = Journal(path, durability="normal")
    assert list(journal.runs()) is not None
    return journal


def test_shown_text_is_recorded_in_pieces_of_a_quarter_of_a_second(tmp_path: Path) -> None:
    shown: list[str] = []

    async def go() -> None:
        agent = Agent(model=Slow(["ab"] * 50, 0.02), journal=opened(tmp_path / "runs.db"))
        talk = agent.conversation()
        talk.on("message_update", lambda e: shown.append(e.delta))
        await talk.run("go", run_id="R")
        agent.plan.journal.close()

    in_virtual_time(go())
    released = [r.data for r in all_records(tmp_path / "runs.db") if r.kind == "released"]
    assert "".join(shown) == "ab" * 50
    assert 3 <= len(released) <= 4, "a second of text"
    assert "".join(r["text"] for r in released) == ("ab" * 50)[: sum(r["chars"] for r in released)]


def test_after_a_death_in_the_middle_of_a_reply_what_was_shown_is_retracted_and_the_model_asked_again(tmp_path: Path) -> None:
    async def go() -> None:
        first = Agent(model=Slow(["ab"] * 50, 0.02), journal=opened(tmp_path / "whole.db"))
        talk = first.conversation()
        talk.on("message_update", lambda e: None)
        await talk.run("go", run_id="R")
        first.plan.journal.close()
        records = all_records(tmp_path / "whole.db")
        third = [r.n for r in records if r.kind == "released"][2]
        chars = sum(r.data["chars"] for r in records[:third] if r.kind == "released")
        cut(records[:third], {"R": None}, tmp_path / "cut.db").close()
        events: list[Any] = []
        again = Agent(model=ScriptedModel([text("anew")]), journal=opened(tmp_path / "cut.db"))
        async for event in again.stream_resume("R"):
            events.append(event)
        told = [e.type for e in events]
        assert told.index("message_retracted") < told.index("message_update")
        (retracted,) = [e for e in events if e.type == "message_retracted"]
        assert (retracted.message_id, retracted.chars) == (records[third - 1].data["message"], chars)
        written = [(r.kind, r.data) for r in again.plan.journal.records("R")[third:]]
        assert ("retracted", {"message": retracted.message_id, "chars": chars}) in written
        assert verify(again.plan.journal) == []
        assert (await again.resume("R")).text == "anew"
        again.plan.journal.close()

    in_virtual_time(go())


async def test_without_a_journal_nothing_of_it_is_imported(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = """
import asyncio, sys
from beforehand import Agent, tool
from beforehand.testing import ScriptedModel, text, tool_call
@tool
async def add(a: int) -> int:
    return a
asyncio.run(Agent(model=ScriptedModel([tool_call("add", {"a": 1}), text("x")]), tools=[add]).run("go"))
print([m for m in sys.modules if m.startswith(("beforehand.journal", "beforehand.durable", "sqlite3"))])
"""
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_an_error_of_the_provider_is_recorded_without_what_looks_like_a_key(tmp_path: Path) -> None:
    """An endpoint that echoes the key in its refusal."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(line for line in head.decode().split("\r\n") if line.lower().startswith("authorization")).split()[-1]
        body = f'{{"error": {{"message": "Incorrect API key provided: {key}"}}}}'.encode()
        writer.write(
            b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    agent = Agent(model="openai:x", base_url=url, api_key=KEY, journal=tmp_path / "runs.db")
    with pytest.raises(RunError, match="API key"):
        await agent.run("go", run_id="R")
    assert KEY.encode() not in every_byte(tmp_path)
    await agent.aclose()
    server.close()
