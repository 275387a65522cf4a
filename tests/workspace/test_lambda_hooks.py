"""Lambdas as hooks of real runs."""

import asyncio
import contextlib
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from beforehand import Agent, Hook, HookDefinitionError, HookFailed, Limits, ToolContext, ToolResult, hook, tool
from beforehand.sandbox import SandboxLimits
from beforehand.seams import BY_NAME, SEAMS
from beforehand.testing import FunctionModel, ScriptedModel, text, tool_call
from beforehand.workspace import Lambda, Workspace

both = pytest.mark.parametrize("language", ["py", "ts"])
SEAMS_PAGE = Path(__file__).parents[2] / "docs" / "seams.md"


def write(place, language, py, ts):
    (place / "lib" / f"x.{language}").write_text(py if language == "py" else ts)
    return f"lib/x.{language}:hook"


class Tickets:
    """A tool that remembers what it sold."""

    def __init__(self):
        self.sold = []

        @tool
        async def book_ticket(train: int, seat_class: str) -> str:
            """Book one seat."""
            self.sold.append(seat_class)
            return f"Booked for DNI 12.345 in {seat_class}"

        self.tool = book_ticket


def books(seat_class):
    return tool_call("book_ticket", {"train": 1, "seat_class": seat_class}, id=f"call_{seat_class}")


class Unreadable:
    def __str__(self):
        raise RuntimeError("nobody can read this")


@pytest.mark.parametrize(
    ("detail", "shown"),
    [("caf\udce9.txt", "caf\\udce9.txt"), ({"caf\udce9": 1}, {"caf\\udce9": 1}), (Unreadable(), "Unreadable")],
    ids=["a name that is no UTF-8", "a key that is none", "what cannot be shown"],
)
@pytest.mark.parametrize("seam", ["after_tool_call", "on_message", "finish_turn", "transform_context", "before_turn"])
async def test_what_no_json_holds_is_shown_as_far_as_it_goes(place, seam, detail, shown):
    """Such as the name of a file: nothing that a tool found may keep lambdas from being asked for the rest of a talk."""

    @tool
    async def find() -> ToolResult:
        """Find a file."""
        return ToolResult("found", details={"file": detail})

    (place / "lib" / "x.py").write_text("""
def details(value):
    if isinstance(value, dict):
        return [value['details']] if value.get('details') else [d for item in value.values() for d in details(item)]
    return [d for item in value for d in details(item)] if isinstance(value, list) else []
async def main(c):
    found = details(c)
    if found:
        await adf.sys_set_meta(key='details', value=found[0])
""")
    look = Lambda("lib/x.py", seam=seam, workspace=place, timeout=60)
    model = ScriptedModel([tool_call("find", {}), text("done"), text("bye")])
    talk = Agent(model=model, tools=[find], hooks=[look]).conversation()
    for prompt in ("Find it", "Thanks"):
        assert (await talk.run(prompt)).stop_reason == "completed"
    assert Workspace(place).get_meta() == {"details": {"file": shown}}


# --- what a lambda decides happens ---


@both
async def test_a_lambda_refuses_a_call_and_the_model_reads_why(place, language):
    source = write(
        place,
        language,
        "def hook(c):\n    if c['args']['seat_class'] == 'first':\n        return {'type': 'block', 'reason': 'Book tourist.'}",
        "export function hook(call) { if (call.args.seat_class === 'first') return {type: 'block', reason: 'Book tourist.'} }",
    )
    tickets, model = Tickets(), ScriptedModel([[books("first"), books("tourist")], text("done")])
    gate = Lambda(source, seam="before_tool_call", workspace=place, timeout=60)
    result = await Agent(model=model, tools=[tickets.tool], hooks=[gate]).run("Book")
    assert tickets.sold == ["tourist"]
    assert [m.text for m in model.requests[1].messages[-2:]] == ["Book tourist.", "Booked for DNI 12.345 in tourist"]
    assert [(d.hook, d.seam, d.verdict, d.reason) for d in result.decisions] == [
        (source, "before_tool_call", "Block", "Book tourist.")
    ]


@both
async def test_a_lambda_changes_arguments_and_results(place, language):
    source = write(
        place,
        language,
        "import re\ndef hook(c):\n    if c['seam'] == 'prepare_tool_call':\n"
        "        return {'type': 'replace', 'args': {**c['args'], 'seat_class': 'tourist'}}\n"
        "    return {'type': 'replace', 'content': re.sub(r'DNI [\\d.]+', 'DNI ***', c['content'])}",
        "export function hook(c) {\n"
        "  if (c.seam === 'prepare_tool_call') return {type: 'replace', args: {...c.args, seat_class: 'tourist'}};\n"
        "  return {type: 'replace', content: c.content.replace(/DNI [\\d.]+/g, 'DNI ***')} }",
    )
    tickets, model = Tickets(), ScriptedModel([books("first"), text("done")])
    hooks = [Lambda(source, seam=seam, workspace=place, timeout=60) for seam in ("prepare_tool_call", "after_tool_call")]
    await Agent(model=model, tools=[tickets.tool], hooks=hooks).run("Book")
    assert tickets.sold == ["tourist"]
    assert model.requests[1].messages[-1].text == "Booked for DNI *** in tourist"


async def test_several_decisions_of_one_lambda_all_count(place):
    source = write(
        place,
        "py",
        "def hook(c):\n    return [{'type': 'block', 'reason': 'no'}, {'type': 'queue', 'message': 'Think again.'}]",
        "",
    )
    tickets, model = Tickets(), ScriptedModel([books("first"), text("done")])
    await Agent(
        model=model, tools=[tickets.tool], hooks=[Lambda(source, seam="before_tool_call", workspace=place, timeout=60)]
    ).run("Book")
    assert [m.text for m in model.requests[1].messages[-2:]] == ["no", "Think again."]


async def test_a_block_of_a_lambda_cannot_be_lifted_by_another_hook(place):
    from beforehand import Answer

    source = write(place, "py", "def hook(c):\n    return {'type': 'block', 'reason': 'no'}", "")
    refuse = Lambda(source, seam="before_tool_call", workspace=place, timeout=60)
    mock = hook.before_tool_call(lambda call: Answer("mocked"))
    for hooks in ([refuse, mock], [mock, refuse]):
        tickets, model = Tickets(), ScriptedModel([books("first"), text("done")])
        await Agent(model=model, tools=[tickets.tool], hooks=hooks).run("Book")
        assert model.requests[1].messages[-1].text == "no"


async def test_lambdas_are_confined_to_tools_and_ordered_like_other_hooks(place):
    (place / "lib" / "a.py").write_text("def main(c):\n    return {'type': 'block', 'reason': 'a'}")
    (place / "lib" / "b.py").write_text("def main(c):\n    return {'type': 'block', 'reason': 'b'}")
    tickets, model = Tickets(), ScriptedModel([books("first"), text("done")])
    hooks = [
        Lambda("lib/a.py", seam="before_tool_call", workspace=place, timeout=60, order=2),
        Lambda("lib/b.py", seam="before_tool_call", workspace=place, timeout=60, order=1),
        Lambda("lib/a.py", seam="before_tool_call", workspace=place, timeout=60, tools=["other"]),
    ]
    result = await Agent(model=model, tools=[tickets.tool], hooks=hooks).run("Book")
    assert model.requests[1].messages[-1].text == "b"
    assert [d.reason for d in result.decisions] == ["b", "a"]


# --- at every seam ---

LISTENS = "async def main(c):\n    await adf.sys_set_meta(key=c.get('seam', 'before_provider_call'), value=list(c))"


async def test_a_lambda_can_stand_at_every_seam_and_sees_its_whole_context(place):
    (place / "lib" / "x.py").write_text(LISTENS)
    (place / "lib" / "y.py").write_text(LISTENS + "\n    return c['request']")
    workspace = Workspace(place)
    hooks = [
        Lambda("lib/y.py" if spec.name == "before_provider_call" else "lib/x.py", seam=spec.name, workspace=workspace, timeout=60)
        for spec in SEAMS
    ]
    tickets, model = Tickets(), ScriptedModel([books("tourist"), text("done"), text("summary")])
    talk = Agent(model=model, tools=[tickets.tool], hooks=hooks).conversation()
    await talk.run("Book")
    await talk.compact(keep=0)
    seen = workspace.get_meta()
    assert seen.pop("before_provider_call") == ["request", "loop"]
    listed = {
        seam: [name for name in re.findall(r"`(.*?)`", fields) if not name.endswith("()")]
        for seam, fields in re.findall(r"### \d+ `(\w+)`\n.*?Context `\w+`: (.*?)\n", SEAMS_PAGE.read_text(), re.DOTALL)
    }
    del listed["before_provider_call"]
    assert {seam: set(fields) for seam, fields in seen.items()} == {s: {"seam", "run", *fields} for s, fields in listed.items()}
    assert tickets.sold == ["tourist"]


async def test_a_context_shows_values_and_nothing_of_the_host(place):
    (place / "lib" / "x.py").write_text("import json\nasync def main(c):\n    await adf.sys_set_meta(key='c', value=c)")
    workspace, tickets = Workspace(place), Tickets()
    model = ScriptedModel([books("tourist"), text("done")])
    gate = Lambda("lib/x.py", seam="before_tool_call", workspace=workspace, timeout=60)
    await Agent(model=model, tools=[tickets.tool], hooks=[gate]).run("Book", deps={"password": "hunter2"})
    shown = workspace.get_meta()["c"]
    assert shown["args"] == {"train": 1, "seat_class": "tourist"}
    assert shown["tool"].keys() == {"name", "description", "parameters"}
    assert shown["run"].keys() == {"run_id", "parent_call_id", "loop", "turn", "elapsed", "cost", "usage", "calls"}
    assert [m["role"] for m in shown["context"]] == ["user", "assistant"]
    assert "hunter2" not in str(shown)
    assert " at 0x" not in str(shown)


# --- it fails closed ---

FAILURES = {
    "raises": ("def hook(c):\n    raise ValueError('broken')", "raised LambdaRaised: lib/x.py:2: raised ValueError: broken"),
    "never answers": ("def hook(c):\n    while True:\n        pass", "gave no answer within 0.7 s"),
    "returns nonsense": ("def hook(c):\n    return {'block': True}", "but a lambda at before_tool_call may return null"),
    "returns an undeclared decision": (
        "def hook(c):\n    return {'type': 'replace', 'args': {}}",
        "but a lambda at before_tool_call may return",
    ),
    "has no function": ("", "has no function 'hook'"),
    "needs too much": ("def hook(c):\n    return 'x' * 10**12", "bytes of memory"),
}


@pytest.mark.parametrize("how", FAILURES)
async def test_a_lambda_that_fails_lets_nothing_pass(place, how):
    py, why = FAILURES[how]
    source = write(place, "py", py, "")
    gate = Lambda(source, seam="before_tool_call", workspace=place, timeout=0.7 if how == "never answers" else 60)
    tickets, model = Tickets(), ScriptedModel([books("first"), text("done")])
    result = await Agent(model=model, tools=[tickets.tool], hooks=[gate]).run("Book")
    assert tickets.sold == []
    assert why in model.requests[1].messages[-1].text
    assert [d.verdict for d in result.decisions] == ["failed"]
    assert why in result.decisions[0].reason


async def test_a_lambda_whose_file_has_gone_since_lets_nothing_pass(place):
    source = write(place, "py", "def hook(c):\n    return None", "")
    gate = Lambda(source, seam="before_tool_call", workspace=place, timeout=60)
    (place / "lib" / "x.py").unlink()
    tickets, model = Tickets(), ScriptedModel([books("first"), text("done")])
    result = await Agent(model=model, tools=[tickets.tool], hooks=[gate]).run("Book")
    assert tickets.sold == []
    assert "lib/x.py cannot be read" in result.decisions[0].reason


async def test_a_failing_lambda_before_a_request_lets_no_request_leave(place):
    source = write(place, "py", "def hook(c):\n    raise ValueError('invalid api key')", "")
    model = ScriptedModel([text("done")])
    with pytest.raises(HookFailed, match="invalid api key"):
        await Agent(model=model, hooks=[Lambda(source, seam="before_provider_call", workspace=place, timeout=60)]).run("Hi")
    assert model.requests == []


@pytest.mark.parametrize(("on_error", "sold"), [("closed", []), ("open", ["first"])])
async def test_on_error_means_what_it_means_for_every_hook(place, on_error, sold):
    source = write(place, "py", "def hook(c):\n    return 1 / 0", "")
    gate = Lambda(source, seam="before_tool_call", workspace=place, timeout=60, on_error=on_error)
    tickets, model = Tickets(), ScriptedModel([books("first"), text("done")])
    await Agent(model=model, tools=[tickets.tool], hooks=[gate]).run("Book")
    assert tickets.sold == sold


async def test_a_changed_file_counts_from_the_next_call(place):
    source = write(place, "py", "def hook(c):\n    return {'type': 'block', 'reason': 'old'}", "")
    tickets, model = Tickets(), ScriptedModel([books("first"), books("tourist"), text("done")])

    @hook.after_turn
    def rewrite(turn):
        write(place, "py", "def hook(c):\n    return None", "")

    gate = Lambda(source, seam="before_tool_call", workspace=place, timeout=60)
    await Agent(model=model, tools=[tickets.tool], hooks=[gate, rewrite]).run("Book")
    assert tickets.sold == ["tourist"]


@both
async def test_what_a_lambda_does_about_a_tools_progress_is_told_while_it_is_asked(place, language):
    source = write(
        place,
        language,
        "async def hook(c):\n    if c['partial']:\n        await adf.loop_inject(content='seen')\n"
        "        await adf.note_down(what=c['content'])",
        "export async function hook(c) { if (c.partial) { await adf.loop_inject({content: 'seen'}); "
        "await adf.note_down({what: c.content}) } }",
    )
    told, heard = [], asyncio.Event()

    @tool
    async def note_down(what: str) -> str:
        return what

    @tool
    async def search(ctx: ToolContext) -> str:
        ctx.update("half")
        await heard.wait()
        return "found"

    def listen(event):
        told.append(event.type)
        if event.type == "tool_execution_update":
            heard.set()

    judge = Lambda(source, seam="after_tool_call", workspace=place, timeout=60, tools=["search"])
    model = ScriptedModel([tool_call("search"), text("done")])
    talk = Agent(model=model, tools=[search, note_down], hooks=[judge]).conversation()
    for name in ("decision", "tool_execution_start", "tool_execution_update", "tool_execution_end"):
        talk.on(name, listen)
    result = await talk.run("go")
    assert [d.verdict for d in result.decisions] == ["Injected"]
    started = ["tool_execution_start", "decision", "tool_execution_start", "tool_execution_end"]
    assert told == [*started, "tool_execution_update", "tool_execution_end"]


@pytest.mark.parametrize("judged_by", ["python", "lambda"])
async def test_progress_of_a_tool_that_a_lambda_has_called_is_judged_and_told(place, judged_by):
    first = write(place, "py", "async def hook(c):\n    await adf.search()\n    return c['request']", "")
    (place / "lib" / "judge.py").write_text(
        "async def hook(c):\n    if c['partial']:\n        await adf.loop_inject(content='seen')\n"
        "        await adf.note_down(what=c['content'])"
    )
    told = []

    @tool
    async def note_down(what: str) -> str:
        return what

    @tool
    async def search(ctx: ToolContext) -> str:
        ctx.update("half")
        return "found"

    asks = Lambda(first, seam="before_provider_call", workspace=place, timeout=60)
    if judged_by == "lambda":
        judge = Lambda("lib/judge.py:hook", seam="after_tool_call", workspace=place, timeout=60, tools=["search"])
    else:
        judge = hook.after_tool_call(tools=["search"])(lambda outcome: None)
    talk = Agent(model=ScriptedModel([text("done")]), tools=[search, note_down], hooks=[asks, judge]).conversation()
    for name in ("tool_execution_start", "tool_execution_update", "tool_execution_end"):
        talk.on(name, lambda event: told.append(event.type))
    talk.on("decision", lambda event: told.append(event.record.verdict))
    await talk.run("go")
    progress = ["Injected", "tool_execution_start", "tool_execution_end"] if judged_by == "lambda" else []
    assert told == ["tool_execution_start", *progress, "tool_execution_update", "tool_execution_end", "Replace"]


async def test_progress_of_what_a_lambda_calls_about_progress_is_told_before_its_end(place):
    source = write(place, "py", "async def hook(c):\n    if c['partial']:\n        await adf.note_down()", "")
    told = []

    @tool
    async def note_down(ctx: ToolContext) -> str:
        ctx.update("half")
        return "noted"

    @tool
    async def search(ctx: ToolContext) -> str:
        ctx.update("half")
        return "found"

    judge = Lambda(source, seam="after_tool_call", workspace=place, timeout=60, tools=["search"])
    model = ScriptedModel([tool_call("search", id="c0"), text("done")])
    talk = Agent(model=model, tools=[search, note_down], hooks=[judge]).conversation()
    for name in ("start", "update", "end"):
        talk.on(f"tool_execution_{name}", lambda event: told.append(f"{event.type[15:]} {event.call_id}"))
    await talk.run("go")
    inner = [f"{what} c0/update_1/1" for what in ("start", "update", "end")]
    assert told == ["start c0", *inner, "update c0", "end c0"]


class Heard(logging.Handler):
    """Sets an event when something is logged."""

    def __init__(self):
        super().__init__()
        self.something = asyncio.Event()

    def emit(self, record):
        self.something.set()


async def test_a_listener_at_work_when_a_lambda_ends_is_not_cut_and_not_told_of_anything_else(place, caplog):
    body = "import asyncio\n    print('failing')\n    await asyncio.gather(adf.search(), adf.fs_read(path='no'))"
    source = write(place, "py", f"async def hook(c):\n    {body}", "")
    told, ended = [], Heard()  # what a lambda wrote is logged once it has ended
    caplog.set_level(logging.INFO, logger="beforehand.lambdas")

    @tool
    async def search() -> str:
        return "found"

    async def listen(event):
        told.append(event.type)
        if event.type == "tool_execution_start":
            logging.getLogger("beforehand.lambdas").addHandler(ended)
            await ended.something.wait()
        await asyncio.sleep(0)
        told.append(f"done {event.type}")

    gate = Lambda(source, seam="before_provider_call", workspace=place, timeout=60)
    talk = Agent(model=ScriptedModel([text("done")]), tools=[search], hooks=[gate]).conversation()
    for name in ("tool_execution_start", "tool_execution_end", "decision"):
        talk.on(name, listen)
    try:
        result = await talk.run("go", check=False)
    finally:
        logging.getLogger("beforehand.lambdas").removeHandler(ended)
    assert result.stop_reason == "error"
    assert told[:2] == ["tool_execution_start", "done tool_execution_start"]
    assert told[1::2] == [f"done {name}" for name in told[::2]]


async def test_calls_inside_a_call_that_a_lambda_has_left_have_their_end_too(place):
    body = "import asyncio\n    await asyncio.gather(adf.search(), adf.fail())"
    source = write(place, "py", f"async def hook(c):\n    {body}", "")
    told, looking = [], asyncio.Event()

    @tool
    async def search(ctx: ToolContext) -> str:
        await ctx.call_tool("look", {})
        return "found"

    @tool
    async def look() -> str:
        looking.set()
        await asyncio.Event().wait()
        return "never"

    @tool
    async def fail() -> str:
        await looking.wait()
        raise OSError("gone")

    gate = Lambda(source, seam="before_provider_call", workspace=place, timeout=60)
    talk = Agent(model=ScriptedModel([text("done")]), tools=[search, look, fail], hooks=[gate]).conversation()
    talk.on("tool_execution_end", lambda event: told.append((event.name, event.outcome)))
    result = await talk.run("go", check=False)
    assert result.stop_reason == "error"
    assert told == [("fail", "failed"), ("look", "aborted"), ("search", "aborted")]


@pytest.mark.parametrize("seam", ["before_provider_call", "before_tool_call", "after_tool_call", "finish_turn"])
async def test_a_stream_hears_of_what_a_lambda_does_while_it_does_it(place, seam):
    body = "await adf.search()\n    await adf.loop_inject(content='seen')\n    return c['request'] if 'request' in c else None"
    source = write(place, "py", f"async def hook(c):\n    {body}", "")
    heard = None

    @tool
    async def search(ctx: ToolContext) -> str:
        ctx.update("half")
        await heard.wait()  # progress is told while the call goes on
        return "found"

    @tool
    async def work() -> str:
        return "worked"

    def agent():
        gate = Lambda(source, seam=seam, workspace=place, timeout=60, tools=["work"] if "tool" in seam else [])
        return Agent(model=ScriptedModel([tool_call("work", id="c0"), text("done")]), tools=[search, work], hooks=[gate])

    def shown(event):
        if event.type == "tool_execution_update":
            heard.set()
        return event.type, getattr(event, "call_id", None)

    streamed, heard = [], asyncio.Event()
    async with agent().conversation().stream("go") as events:
        async for event in events:
            streamed.append(shown(event))
    told, heard = [], asyncio.Event()
    talk = agent().conversation()
    talk.subscribe(lambda event: told.append(shown(event)))
    await talk.run("go")
    assert streamed == told
    assert sum(name == "tool_execution_update" for name, _ in told) == (1 if "tool" in seam else 2)


async def test_what_a_call_tells_that_its_lambda_has_left_is_heard_once_and_in_order(place, caplog):
    source = write(place, "py", "async def hook(c):\n    import asyncio\n    await asyncio.gather(adf.search(), adf.fail())", "")
    caplog.set_level(logging.INFO, logger="beforehand.lambdas")
    searching, asked, ended = asyncio.Event(), asyncio.Event(), Heard()

    @tool
    async def search(ctx: ToolContext) -> str:
        searching.set()
        while not asked.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asked.wait()
        logging.getLogger("beforehand.lambdas").addHandler(ended)
        ctx.update("late")
        raise asyncio.CancelledError

    @tool
    async def fail() -> str:
        await searching.wait()
        raise OSError("gone")

    async def reply(request):
        asked.set()
        await ended.something.wait()
        return text("done")

    gate = Lambda(source, seam="before_provider_call", workspace=place, timeout=60, on_error="open")
    talk = Agent(model=FunctionModel(reply), tools=[search, fail], hooks=[gate]).conversation()
    told, streamed = [], []
    talk.subscribe(lambda event: told.append(event))
    try:
        async for event in talk.stream("go"):
            streamed.append(event)
    finally:
        logging.getLogger("beforehand.lambdas").removeHandler(ended)
    assert streamed == told
    assert [e.type[15:] for e in told if getattr(e, "name", "") == "search"] == ["start", "update", "end"]
    assert [e.record.verdict for e in told if e.type == "decision"] == ["LeftBehind", "failed_open", "Cut"]


@both
async def test_a_lambda_is_not_asked_for_ever_about_progress_that_it_has_caused_itself(place, language):
    source = write(
        place,
        language,
        "async def hook(c):\n    if c['partial']:\n        await adf.search()",
        "export async function hook(c) { if (c.partial) await adf.search({}) }",
    )
    calls, told = [], []

    @tool
    async def search(ctx: ToolContext) -> str:
        calls.append(ctx.call_id)
        if len(calls) > 9:
            talk.abort("it goes on and on")
        ctx.update("half")
        return "found"

    judge = Lambda(source, seam="after_tool_call", workspace=place, timeout=60)
    model = ScriptedModel([tool_call("search", id="c0"), text("done")])
    talk = Agent(model=model, tools=[search], hooks=[judge]).conversation()
    talk.on("tool_execution_update", lambda event: told.append(event.call_id))
    result = await talk.run("go")
    assert (result.stop_reason, calls) == ("completed", ["c0", "c0/update_1/1"])
    assert told == ["c0"], "what it has caused itself is withheld, and not judged"
    assert [d.reason for d in result.decisions if d.verdict == "failed"] == []


async def test_lambdas_that_judge_progress_do_not_cause_more_of_it_to_be_judged(place):
    calls, told = [], []

    @tool
    async def search(ctx: ToolContext) -> str:
        calls.append(ctx.call_id)
        if len(calls) > 50:
            talk.abort("it goes on and on")
        for n in range(3):
            ctx.update(n)
        return "found"

    judges = []
    for name in ("one", "two", "three"):
        (place / "lib" / f"{name}.py").write_text("async def hook(c):\n    if c['partial']:\n        await adf.search()")
        judges.append(Lambda(f"lib/{name}.py:hook", seam="after_tool_call", workspace=place, timeout=60))
    talk = Agent(model=ScriptedModel([tool_call("search", id="c0"), text("done")]), tools=[search], hooks=judges).conversation()
    talk.on("tool_execution_update", lambda event: told.append(event.call_id))
    assert (await talk.run("go")).stop_reason == "completed"
    assert calls == ["c0", *[f"c0/update_{n}/1" for n in range(1, 10)]]
    assert told == ["c0"] * 3


@both
async def test_an_abort_while_a_lambda_runs_ends_the_run_and_nothing_lands_later(place, language):
    source = write(
        place,
        language,
        "async def hook(c):\n    await adf.emit_event(event_type='custom.reached')\n    while True:\n        pass",
        "export async function hook() { await adf.emit_event({event_type: 'custom.reached'}); for (;;); }",
    )
    reached = asyncio.Event()
    workspace = Workspace(place, on_event=lambda name, payload: reached.set())
    model = ScriptedModel([text("done")])
    talk = Agent(model=model, hooks=[Lambda(source, seam="before_provider_call", workspace=workspace, timeout=60)]).conversation()
    run = asyncio.ensure_future(talk.run("Hi"))
    await reached.wait()
    talk.abort()
    result = await asyncio.wait_for(run, 30)
    assert result.stop_reason == "aborted"
    assert model.requests == []


@both
@pytest.mark.parametrize("seam", ["finish_turn", "after_turn"])
async def test_an_aborted_turn_is_put_to_lambdas_as_to_other_hooks(place, language, seam):
    source = write(
        place,
        language,
        "async def hook(c):\n    refused = []\n    for call in (adf.note_down, adf.model_invoke):\n        try:\n"
        "            await call({'prompt': 'x'})\n"
        "        except Exception as error:\n            refused.append(str(error)[:13])\n"
        "    await adf.sys_set_meta(key='saved', value=[c['number'], *refused])",
        "export async function hook(c) { const refused = []; for (const call of [adf.note_down, adf.model_invoke]) {"
        "try { await call({prompt: 'x'}) } catch (error) { refused.push(error.code) } }"
        "await adf.sys_set_meta({key: 'saved', value: [c.number, ...refused]}) }",
    )
    begun, noted, asked, requests = asyncio.Event(), [], [], []

    @tool
    async def note_down(prompt: str) -> None:
        noted.append(prompt)

    async def hang(request):
        requests.append(request)
        begun.set()
        await asyncio.Event().wait()

    workspace = Workspace(place)
    hooks = [Lambda(source, seam=seam, workspace=workspace, timeout=60), Hook(seam=seam, fn=lambda c: asked.append(c.number))]
    talk = Agent(model=FunctionModel(hang), tools=[note_down], hooks=hooks).conversation()
    running = asyncio.ensure_future(talk.run("Hi"))
    await begun.wait()
    talk.abort()
    assert (await running).stop_reason == "aborted"
    assert workspace.get_meta() == {"saved": [1, "INVALID_STATE", "INVALID_STATE"]}
    assert (asked, noted, len(requests)) == ([1], [], 1)


@both
async def test_what_was_shown_before_an_abort_stays_in_the_history_if_a_lambda_lets_it(place, language):
    source = write(place, language, "def hook(c):\n    return None", "export function hook() {}")
    model = ScriptedModel([text("", ["hello ", "world"])])
    talk = Agent(model=model, hooks=[Lambda(source, seam="on_message", workspace=place, timeout=60)]).conversation()
    talk.on("message_update", lambda event: talk.abort())
    result = await talk.run("Hi")
    assert result.stop_reason == "aborted"
    assert [(m.role, m.text) for m in talk.messages] == [("user", "Hi"), ("assistant", "hello ")]


@both
async def test_a_result_that_came_in_time_passes_a_lambda_after_an_abort(place, language):
    source = write(
        place,
        language,
        "def hook(c):\n    return {'type': 'replace', 'content': 'checked ' + c['text']}",
        "export function hook(c) { return {type: 'replace', content: 'checked ' + c.text} }",
    )
    begun = asyncio.Event()

    @tool
    async def search(ctx: ToolContext) -> str:
        begun.set()
        await ctx.signal.wait()
        return "found"

    judge = Lambda(source, seam="after_tool_call", workspace=place, timeout=60)
    talk = Agent(
        model=ScriptedModel([tool_call("search")]), tools=[search], hooks=[judge], limits=Limits(abort_grace=60)
    ).conversation()
    running = asyncio.ensure_future(talk.run("Hi"))
    await begun.wait()
    talk.abort()
    result = await running
    assert [(m.outcome, m.text) for m in result.messages if m.role == "tool"] == [("ran", "checked found")]


async def test_what_a_lambda_writes_goes_to_the_log_even_when_it_fails(place, caplog):
    source = write(place, "py", "def hook(c):\n    print('looked at', c['name'])\n    return 1 / 0", "")
    caplog.set_level("INFO", logger="beforehand.lambdas")
    model = ScriptedModel([books("first"), text("done")])
    await Agent(
        model=model, tools=[Tickets().tool], hooks=[Lambda(source, seam="before_tool_call", workspace=place, timeout=60)]
    ).run("Book")
    assert [r.getMessage() for r in caplog.records if r.name == "beforehand.lambdas"] == [
        "lambda lib/x.py:hook at before_tool_call wrote: looked at book_ticket\n"
    ]


# --- what can never work is refused when it is written down ---


@pytest.mark.parametrize(
    ("source", "options", "complaint"),
    [
        ("lib/none.py", {}, "cannot be read"),
        ("lib/x.rb:hook", {}, "must end in .py, .ts or .js"),
        ("", {}, "named by its file and function"),
        ("../x.py", {}, "stay inside the workspace"),
        ("lib/x.py:hook", {"seam": "before_tool_cal"}, "did you mean 'before_tool_call'"),
        ("lib/x.py:hook", {"timeout": 0}, "a number of seconds above 0, at most 300"),
        ("lib/x.py:hook", {"timeout": 301}, "a number of seconds above 0, at most 300"),
        ("lib/x.py:hook", {"timeout": True}, "a number of seconds above 0, at most 300"),
        ("lib/x.py:hook", {"on_eror": "open"}, "Lambda has no option 'on_eror'"),
        ("lib/x.py:hook", {"seam": "on_message", "tools": ["a"]}, "on_message is about no tool"),
    ],
)
def test_a_lambda_that_can_never_work_is_refused_at_once(place, source, options, complaint):
    write(place, "py", "def hook(c):\n    pass", "")
    with pytest.raises(HookDefinitionError) as caught:
        Lambda(source, **{"seam": "before_tool_call", "workspace": place, **options})
    assert complaint in str(caught.value)


def test_a_lambda_is_a_hook_with_a_time_limit_and_a_place(place):
    made = Lambda(write(place, "py", "def hook(c):\n    pass", ""), seam="before_tool_call", workspace=place)
    assert isinstance(made, Hook)
    assert (made.name, made.timeout, made.on_error, made.is_async) == ("lib/x.py:hook", 5.0, "closed", True)
    assert made.where.endswith("agent/lib/x.py")
    assert Lambda("lib/x.py", seam="on_chunk", workspace=place, limits=SandboxLimits(wall_time=9)).timeout == 9


def test_without_lambdas_nothing_of_them_is_imported_or_started():
    script = (
        "import sys, asyncio\nfrom beforehand import Agent\nfrom beforehand.testing import ScriptedModel, text\n"
        "Agent(model=ScriptedModel([text('hi')])).run_sync('hi')\n"
        "ours = ('beforehand.sandbox', 'beforehand.workspace', 'pydantic_monty', 'deno')\n"
        "print([m for m in sys.modules if m.startswith(ours)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_python_lambda_loads_nothing_of_deno(place):
    write(place, "py", "def hook(c):\n    pass", "")
    script = (
        "import sys\nfrom beforehand.workspace import Lambda\n"
        f"Lambda('lib/x.py:hook', seam='before_tool_call', workspace={str(place)!r})\n"
        "engines = ('deno', 'pydantic_monty', 'beforehand.sandbox.deno', 'beforehand.sandbox.monty')\n"
        "print([m for m in sys.modules if m in engines])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_seam_has_a_name_that_a_lambda_can_be_put_at(place):
    write(place, "py", "def hook(c):\n    pass", "")
    made = [Lambda("lib/x.py:hook", seam=name, workspace=place) for name in BY_NAME]
    assert [h.seam for h in made] == [spec.name for spec in SEAMS]


@pytest.mark.parametrize("seam", ["prepare_request", "prepare_next_turn"])
async def test_a_model_that_is_given_back_as_it_was_shown_stays(place, seam):
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    (place / "lib" / "x.py").write_text("def main(c):\n    return {'type': 'replace', 'model': c['model']}")
    model = ScriptedModel([tool_call("look", {}), text("done")])
    async with Agent(model=model, tools=[look], hooks=[Lambda("lib/x.py", seam=seam, workspace=place, timeout=60)]) as agent:
        result = await agent.run("Hi")
    assert (result.text, len(model.requests)) == ("done", 2)
