"""Lambdas and a journal: what is recorded is not run again, and what a lambda did through the bridge is done once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import Agent, Approve, Ask, Hook, ToolContext, Usage, tool
from beforehand.testing import FunctionModel, finish, text, tool_call
from beforehand.workspace import Lambda, Workspace

from combinations.cuts import World, every_cut
from journal.cutting import all_records, cut, done_by, parents
from journal.stories import came_to

pytestmark = pytest.mark.usefixtures("no_spares_are_left")

SEAMS = {
    "transform_context": "c['messages']",
    "before_provider_call": None,
    "authorize_request": None,
    "prepare_tool_call": None,
    "before_tool_call": None,
    "after_tool_call": None,
}


def workspace(folder: Path, body: str, request: bool = False) -> Workspace:
    (folder / "agent" / "lib").mkdir(parents=True, exist_ok=True)
    last = "return c['request']" if request else "return None"
    lines = "\n    ".join([*body.splitlines(), last])
    (folder / "agent" / "lib" / "gate.py").write_text(f"async def gate(c):\n    {lines}\n")
    return Workspace(folder / "agent")


def tools(world: World) -> list[Any]:
    @tool
    async def work(ctx: ToolContext, x: int = 0) -> str:
        world.effects.append(ctx.idempotency_key)
        return f"worked {x}"

    @tool
    async def pay(ctx: ToolContext, amount: int) -> str:
        world.effects.append(ctx.idempotency_key)
        return f"paid {amount}"

    return [work, pay]


def reply(request: Any) -> Any:
    if request.system == "Aside.":
        return [text("an aside"), finish("stop", Usage(7, 1))]
    done = sum(m.role == "tool" for m in request.messages)
    seen = sum(m.role == "user" for m in request.messages)
    if done < 2:
        return [text(f"seen {seen}"), tool_call("work", {"x": done}, id=f"c{done}"), finish(None, Usage(5, 5))]
    return [text(f"done, seen {seen}"), finish("stop", Usage(5, 5))]


def maker(place: Workspace, seam: str, asked: list[str], **more: Any) -> Any:
    def make(world: World) -> Agent:
        gate = Lambda("lib/gate.py:gate", seam=seam, workspace=place, timeout=60, name="gate", tools=more.get("only", ()))
        watch = Hook(seam=seam, fn=lambda c: asked.append(seam), name="watch", order=1, where="here")
        return Agent(
            model=FunctionModel(reply), tools=tools(world), hooks=[gate, watch], journal=world.journal,
            recovery=world.recovery(),
        )  # fmt: skip

    return make


ONLY_WORK = {seam: ("work",) if "tool" in seam else () for seam in SEAMS}


@pytest.mark.parametrize("seam", SEAMS)
async def test_a_lambda_that_injects_a_message_injects_it_once(tmp_path: Path, seam: str) -> None:
    place = workspace(tmp_path, "await adf.loop_inject(content='injected')", seam == "before_provider_call")
    whole, _ = await every_cut(tmp_path, maker(place, seam, [], only=ONLY_WORK[seam]))
    assert whole.stop_reason == "completed"
    assert sum(m.text == "injected" for m in whole.messages) >= 2


@pytest.mark.parametrize("seam", SEAMS)
async def test_a_lambda_that_asks_the_model_asks_and_pays_once(tmp_path: Path, seam: str) -> None:
    body = "await adf.model_invoke(prompt='Which?', system='Aside.', max_tokens=5)"
    place = workspace(tmp_path, body, seam == "before_provider_call")
    whole, records = await every_cut(tmp_path, maker(place, seam, [], only=ONLY_WORK[seam]))
    assert whole.stop_reason == "completed"
    assert sum(r.kind == "direct" for r in records) >= 2


@pytest.mark.parametrize("seam", SEAMS)
async def test_a_lambda_that_calls_tools_never_repeats_one(tmp_path: Path, seam: str) -> None:
    body = "await adf.pay(amount=3)\nawait adf.pay(amount=4)"
    place = workspace(tmp_path, body, seam == "before_provider_call")
    whole, records = await every_cut(tmp_path, maker(place, seam, [], only=ONLY_WORK[seam]))
    assert whole.stop_reason == "completed", whole.error
    assert sum(r.kind == "intent" and r.data["name"] == "pay" for r in records) >= 4


def another(place: Workspace, name: str, body: str, seam: str, **options: Any) -> Any:
    """One more lambda in this workspace."""
    lines = "\n    ".join(body.splitlines())
    (place.folder.root / "lib" / f"{name}.py").write_text(f"async def gate(c):\n    {lines}\n")
    return Lambda(f"lib/{name}.py:gate", seam=seam, workspace=place, timeout=60, name=name, **options)


@pytest.mark.parametrize("seam", ["prepare_request", "transform_context", "before_provider_call", "authorize_request"])
async def test_a_lambda_in_the_shadow_does_not_make_another_repeat_its_calls(tmp_path: Path, seam: str) -> None:
    place = workspace(tmp_path, "await adf.pay(amount=3)\nawait adf.pay(amount=4)", request=True)
    answer = "return c['request']" if seam == "before_provider_call" else "return None"
    shadow = another(place, "shadow", f"await adf.fs_list()\n{answer}", seam)
    make = maker(place, "before_provider_call", [])
    whole, records = await every_cut(tmp_path, lambda world: make(world).replace(shadow_hooks=[shadow]))
    assert whole.stop_reason == "completed", whole.error
    paid = [r.data["call"] for r in records if r.kind == "intent" and r.data["name"] == "pay"]
    assert paid == [f"lambda_{n}/{call}" for n in (1, 2, 3) for call in (1, 2)], "named as they are without a shadow"


@pytest.mark.parametrize("seam", ["get_api_key", "authorize_request"])
async def test_a_lambda_that_is_asked_about_anothers_question_acts_once(tmp_path: Path, seam: str) -> None:
    asks = "\n".join(f"await adf.model_invoke(prompt='{which}?', system='Aside.')" for which in ("This", "That"))
    place = workspace(tmp_path, f"{asks}\nawait adf.pay(amount=5)")
    judge = another(place, "judge", "await adf.pay(amount=1)", seam)

    def make(world: World) -> Agent:
        gate = Lambda("lib/gate.py:gate", seam="transform_context", workspace=place, timeout=60, name="gate")
        return Agent(
            model=FunctionModel(reply), tools=tools(world), hooks=[gate, judge], journal=world.journal, recovery=world.recovery()
        )

    whole, records = await every_cut(tmp_path, make)
    assert whole.stop_reason == "completed", whole.error
    paid = [r.data["call"] for r in records if r.kind == "intent" and r.data["name"] == "pay"]
    assert paid[:4] == ["lambda_1/ask_1/lambda_1/1", "lambda_1/ask_2/lambda_1/1", "lambda_1/1", "lambda_2/1"]


async def test_a_lambda_that_has_seen_a_tools_progress_does_not_repeat_its_calls(tmp_path: Path) -> None:
    place = workspace(tmp_path, "await adf.pay(amount=1 if c['partial'] else 3)")
    heard, seen = asyncio.Event(), asyncio.Event()

    def make(world: World) -> Agent:
        @tool(replay="safe")
        async def search(ctx: ToolContext) -> str:
            ctx.update("half")
            if not seen.is_set():
                await heard.wait()
            return "found"

        gate = Lambda("lib/gate.py:gate", seam="after_tool_call", workspace=place, timeout=60, name="gate", tools=["search"])
        model = FunctionModel(lambda r: text("done") if len(r.messages) > 1 else tool_call("search", {}, id="c0"))
        return Agent(model=model, tools=[search, *tools(world)], hooks=[gate], journal=world.journal)

    world = World(tmp_path / "whole.db")
    talk = make(world).conversation()
    talk.on("tool_execution_update", lambda event: heard.set())
    await talk.run("go", run_id="R")
    seen.set()
    assert world.effects == ["R:c0/update_1/1", "R:c0/lambda_1/1"]

    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in [k for k, r in enumerate(records, 1) if r.kind == "outcome" and r.data["call"] != "c0"]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        result = await make(again).resume("R")
        assert result.text == "done"
        assert not {*again.effects} & done_by(records[:k])[1], f"cut after record {k}: paid twice"
        assert len(again.effects) <= 1
    assert again.effects == []


SIDE_BY_SIDE = """
export async function gate({request}) {
  await Promise.all([1, 2].map(async (n) => {
    await adf.look({n})
    await adf.model_invoke({prompt: `Question ${n}?`, system: "Aside."})
    await adf.pay({amount: n})
  }))
  return request
}"""


async def test_calls_side_by_side_are_made_once_though_they_come_in_another_order(tmp_path: Path) -> None:
    place = workspace(tmp_path, "")
    (tmp_path / "agent" / "lib" / "both.ts").write_text(SIDE_BY_SIDE)

    def make(world: World, first: asyncio.Event) -> Agent:
        @tool(replay="safe")
        async def look(n: int) -> str:
            if n == 1:  # the first of them comes last
                await first.wait()
            return f"{n}"

        @tool
        async def pay(amount: int) -> str:
            world.effects.append(f"paid {amount}")
            first.set()
            return "paid"

        gate = Lambda("lib/both.ts:gate", seam="before_provider_call", workspace=place, timeout=60, name="gate")
        model = FunctionModel(lambda request: text("done"))
        return Agent(model=model, tools=[look, pay], hooks=[gate], journal=world.journal, recovery=world.recovery())

    def questions(agent: Agent) -> list[str]:
        return [r.messages[-1].text for r in agent.plan.model.requests if r.system == "Aside."]

    world = World(tmp_path / "whole.db")
    await make(world, asyncio.Event()).run("go", run_id="R")
    assert world.effects == ["paid 2", "paid 1"]
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    now = asyncio.Event()
    now.set()
    for k in range(1, len(records) + 1):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        agent = make(again, now)
        result = await agent.resume("R", check=False)
        answered = sum(r.kind == "direct" for r in records[:k])
        assert len(questions(agent)) <= 2 - answered, f"cut after record {k}: asked twice"
        paid = [r.data["args"]["amount"] for r in records[:k] if r.kind == "intent" and r.data["name"] == "pay"]
        assert not {*again.effects} & {f"paid {amount}" for amount in paid}, f"cut after record {k}: paid twice"
        assert len(again.effects) == len({*again.effects})
        over = {r.data["call"] for r in records[:k] if r.kind == "outcome" and r.data["name"] == "pay"}
        if len(over) == len(paid):
            assert result.text == "done", f"cut after record {k}: {result.error}"


@pytest.mark.parametrize("paid_first", [False, True])
async def test_a_call_that_may_be_repeated_need_not_be_the_same_again(tmp_path: Path, paid_first: bool) -> None:
    calls = ["await adf.look(n=await adf.sys_set_meta(key='n', delta=1))", "await adf.pay(amount=3)"]
    place = workspace(tmp_path, "\n".join(reversed(calls) if paid_first else calls), request=True)
    looked: list[int] = []

    def make(world: World) -> Agent:
        @tool(replay="safe")
        async def look(n: int) -> str:
            looked.append(n)
            return f"{n}"

        gate = Lambda("lib/gate.py:gate", seam="before_provider_call", workspace=place, timeout=60, name="gate")
        model = FunctionModel(lambda request: text("done"))
        return Agent(model=model, tools=[look, *tools(world)], hooks=[gate], journal=world.journal)

    world = World(tmp_path / "whole.db")
    await make(world).run("go", run_id="R")
    assert (len(world.effects), looked) == (1, [1])
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in [k for k, r in enumerate(records, 1) if r.kind in ("intent", "outcome")]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        result = await make(again).resume("R", check=False)
        _, over = done_by(records[:k])
        paid = {r.data["call"] for r in records[:k] if r.kind == "intent" and r.data["name"] == "pay"}
        assert len(again.effects) == 1 - len(paid), f"cut after record {k}"
        if len(paid) == sum(key in over for key in world.effects):
            assert result.text == "done", f"cut after record {k}: {result.error}"


@pytest.mark.parametrize("also", ["", "await adf.look(n=1)"])
async def test_a_call_that_may_not_be_repeated_is_not_made_in_another_way(tmp_path: Path, also: str) -> None:
    pays = "await adf.pay(amount=await adf.sys_set_meta(key='n', delta=1))"
    place = workspace(tmp_path, f"{also}\n{pays}" if also else pays, request=True)

    def make(world: World) -> Agent:
        @tool(replay="safe")
        async def look(n: int) -> str:
            return f"{n}"

        gate = Lambda("lib/gate.py:gate", seam="before_provider_call", workspace=place, timeout=60, name="gate")
        model = FunctionModel(lambda request: text("done"))
        return Agent(model=model, tools=[look, *tools(world)], hooks=[gate], journal=world.journal)

    world = World(tmp_path / "whole.db")
    await make(world).run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    paid = next(k for k, r in enumerate(records, 1) if r.kind == "intent" and r.data["name"] == "pay")
    for k in (paid, paid + 1):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        for _ in range(2):
            again = World(tmp_path / f"{k}.db")
            result = await make(again).resume("R", check=False)
            assert again.effects == [], f"cut after record {k}: paid twice"
            assert "is not the one that is on record in its place" in str(result.error)


async def test_a_recorded_ruling_of_a_lambda_runs_no_sandbox(tmp_path: Path) -> None:
    place = workspace(tmp_path, "await adf.pay(amount=3)")
    world = World(tmp_path / "whole.db")
    expected = came_to(await maker(place, "before_tool_call", [], only=("work",))(world).run("go", run_id="R"))
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    cut(records[:-1], of, tmp_path / "cut.db").close()
    (tmp_path / "agent" / "lib" / "gate.py").write_text("def gate(c):\n    raise ValueError('asked again')\n")
    again = World(tmp_path / "cut.db")
    came = came_to(await maker(place, "before_tool_call", [], only=("work",))(again).resume("R"))
    assert came["messages"] == expected["messages"]
    assert again.effects == []


async def test_what_is_not_known_of_a_lambdas_call_is_recorded_once_however_often_the_run_goes_on(tmp_path: Path) -> None:
    place = workspace(tmp_path, "await adf.pay(amount=3)", request=True)
    make = maker(place, "before_provider_call", [])
    await make(World(tmp_path / "whole.db")).run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    begun = next(k for k, r in enumerate(records, 1) if r.kind == "intent")
    cut(records[:begun], of, tmp_path / "cut.db").close()
    for _ in range(4):
        again = World(tmp_path / "cut.db")
        result = await make(again).resume("R", check=False)
        assert again.effects == [] and "Whether it took effect is not known" in str(result.error)
        assert [d.verdict for d in result.decisions if d.call_id == "lambda_1/1"] == ["Uncertain"]
    noted = [r for r in all_records(tmp_path / "cut.db") if r.kind == "note" and r.data["verdict"] == "Uncertain"]
    assert len(noted) == 1


TWO_MODELS = """
export async function gate({request}) {
  const answers = await Promise.all([1, 2].map(async (n) => {
    await adf.look({n})
    return adf.model_invoke({prompt: "The same?", system: "Aside.", model: `openai:model-${n}`})
  }))
  return {...request, system: answers.join()}
}"""


async def test_one_question_put_to_two_models_has_the_answer_of_each(tmp_path: Path) -> None:
    place = workspace(tmp_path, "")
    (tmp_path / "agent" / "lib" / "two.ts").write_text(TWO_MODELS)

    def make(world: World, last: int) -> Agent:
        other = asyncio.Event()

        @tool(replay="safe")
        async def look(n: int) -> str:
            if n == last:
                await other.wait()
            return f"{n}"

        def says(answer: str, name: str) -> FunctionModel:
            def reply(request: Any) -> Any:
                other.set()
                return text(answer)

            return FunctionModel(reply, name=name)

        gate = Lambda("lib/two.ts:gate", seam="before_provider_call", workspace=place, timeout=60, name="gate")
        agent = Agent(model=says("done", "main"), tools=[look], hooks=[gate], journal=world.journal)
        for n in (1, 2):
            agent.plan.resolved[f"openai:model-{n}"] = says(f"answer {n}", f"model-{n}")
        return agent

    await make(World(tmp_path / "whole.db"), last=1).run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    answered = [k for k, r in enumerate(records, 1) if r.kind == "direct"]
    assert [records[k - 1].data["model"] for k in answered] == ["model-2", "model-1"]
    cut(records[: answered[0]], of, tmp_path / "cut.db").close()
    again = make(World(tmp_path / "cut.db"), last=0)
    await again.resume("R")
    assert [request.system for request in again.plan.model.requests] == ["answer 1,answer 2"]


@pytest.mark.parametrize("seam", ["before_provider_call", "before_tool_call", "after_tool_call"])
@pytest.mark.parametrize(("then", "now"), [("pays", "looks pays"), ("looks pays", "pays"), ("also pays", "pays also")])
async def test_a_lambda_finds_what_it_did_though_others_have_come_or_gone(tmp_path: Path, seam: str, then: str, now: str) -> None:
    place = workspace(tmp_path, "pass")
    last = "return c['request']" if seam == "before_provider_call" else ""
    bodies = {"looks": "pass", "pays": "await adf.pay(amount=3)", "also": "await adf.pay(amount=4)"}

    def make(world: World, names: str) -> Agent:
        of = {"tools": ("work",)} if "tool" in seam else {}
        gates = [another(place, name, f"{bodies[name]}\n{last}".rstrip(), seam, **of) for name in names.split()]
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=gates, journal=world.journal)

    world = World(tmp_path / "whole.db")
    await make(world, then).run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    ends = [k for k, r in enumerate(records, 1) if r.kind in ("intent", "outcome") and r.data["name"] == "pay"]
    assert len(ends) == 2 * sum("paid" in str(r.data) for r in records if r.kind == "outcome") >= 4
    for k in ends:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        result = await make(again, now).resume("R", check=False)
        begun = {f"R:{r.data['call']}" for r in records[:k] if r.kind == "intent" and r.data["name"] == "pay"}
        assert not begun & {*again.effects}, f"cut after record {k}: done twice"
        paid = [key for key in again.effects if "lambda" in key]
        if result.stop_reason == "completed":
            assert len(begun) + len(paid) == len(ends) // 2, f"cut after record {k}: paid {begun} and then {paid}"
        else:
            assert records[k - 1].kind == "intent" and "Whether it took effect is not known" in str(result.error)


async def test_a_new_lambda_at_another_seam_is_not_taken_for_one_that_is_gone(tmp_path: Path) -> None:
    place = workspace(tmp_path, "pass")

    def make(world: World, amount: int, seam: str) -> Agent:
        gate = another(place, f"pays_{amount}", f"await adf.pay(amount={amount})", seam)
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=[gate], journal=world.journal)

    await make(World(tmp_path / "whole.db"), 3, "transform_context").run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in [k for k, r in enumerate(records, 1) if r.kind != "end"]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        result = await make(again, 4, "prepare_request").resume("R")
        assert result.stop_reason == "completed"
        assert not {*again.effects} & done_by(records[:k])[0], f"cut after record {k}"
        answered = sum(r.kind == "reply" for r in records[:k])
        assert sum("lambda" in key for key in again.effects) == 3 - answered, f"cut after record {k}"


@pytest.mark.parametrize("older", [False, True])
async def test_a_run_can_be_read_after_a_new_lambda_has_judged_a_call_that_another_had_judged(
    tmp_path: Path, older: bool
) -> None:
    place = workspace(tmp_path, "pass")

    def make(world: World, *names: str) -> Agent:
        gates = [another(place, name, "await adf.pay(amount=3)", "before_tool_call", tools=("work",)) for name in names]
        return Agent(model=FunctionModel(reply), tools=tools(world), hooks=gates, journal=world.journal)

    await make(World(tmp_path / "whole.db"), "old").run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    ruled = next(k for k, r in enumerate(records, 1) if r.kind == "ruling")
    if older:  # it said how many there had been
        records = [msgspec.structs.replace(r, body=r.body.replace(b'"lambdas":[1]', b'"lambdas":1')) for r in records]
    cut(records[:ruled], of, tmp_path / "cut.db").close()
    whole = await make(World(tmp_path / "cut.db"), "old", "new").resume("R")
    joined = all_records(tmp_path / "cut.db")
    said = [r.data["lambdas"] for r in joined if r.kind == "ruling" and r.data.get("call") == "c0"]
    assert said == [1 if older else [1], [2]]
    for k in range(ruled + 1, len(joined) + 1):
        cut(joined[:k], of, tmp_path / f"{k}.db").close()
        result = await make(World(tmp_path / f"{k}.db"), "old", "new").resume("R", check=False)
        assert result.text == whole.text, f"cut after record {k}: {result.error}"


@pytest.mark.parametrize("act", ["await adf.pay(amount=3)", "await adf.model_invoke(prompt='Which?', system='Aside.')"])
@pytest.mark.parametrize("when", ["progress", "pieces"])
async def test_a_lambda_that_acts_only_when_it_is_asked_again_acts_once(tmp_path: Path, when: str, act: str) -> None:
    place = workspace(tmp_path, "pass")
    asks = "c['partial'] and 'second' in str(c['content'])" if when == "progress" else "'second' in c['pending']"
    seam = "after_tool_call" if when == "progress" else "on_chunk"

    def make(world: World, questions: list[Any]) -> Any:
        heard = asyncio.Event()

        @tool(replay="safe")
        async def search(ctx: ToolContext) -> str:
            ctx.update("first")
            ctx.update("second")
            await heard.wait()
            return "found"

        def listens(outcome: Any) -> None:
            if "second" in str(outcome.content):
                heard.set()

        def model(request: Any) -> Any:
            if request.system == "Aside.":
                questions.append(request)
                return text("an aside")
            if when == "progress" and len(request.messages) == 1:
                return tool_call("search", {}, id="c0")
            return [text("the first "), text("the second "), text("the third")]

        only = ["search"] if when == "progress" else ()
        gate = another(place, "gate", f"if {asks}:\n    {act}", seam, tools=only)
        ear = Hook(seam="after_tool_call", fn=listens, name="ear", order=1, where="here")
        agent = Agent(model=FunctionModel(model), tools=[search, *tools(world)], hooks=[gate, ear], journal=world.journal)
        talk = agent.conversation()
        talk.on("tool_execution_update", lambda event: None)  # else nobody judges what nobody hears of
        return talk

    world, questions = World(tmp_path / "whole.db"), []
    whole = await make(world, questions).run("go", run_id="R")
    assert len(world.effects) + len(questions) == 1 and whole.error is None
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    acted = [k for k, r in enumerate(records, 1) if "lambda" in r.data and r.kind in ("intent", "direct")]
    assert len(acted) == 1
    for k in range(acted[0], len(records)):
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again, questions = World(tmp_path / f"{k}.db"), []
        await make(again, questions).resume_recorded("R", check=False)
        assert again.effects == questions == [], f"cut after record {k}: done twice"


async def test_a_lambda_that_acts_when_it_gives_a_key_acts_once_for_each_request(tmp_path: Path) -> None:
    place = workspace(tmp_path, "await adf.pay(amount=3)")
    make = maker(place, "get_api_key", [])
    world = World(tmp_path / "whole.db")
    await make(world).run("go", run_id="R")
    paid = [key for key in world.effects if "lambda" in key]
    assert len(paid) == 3
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for k in [k for k, r in enumerate(records, 1) if r.kind != "end" and records[k - 1].data.get("name") != "pay"]:
        cut(records[:k], of, tmp_path / f"{k}.db").close()
        again = World(tmp_path / f"{k}.db")
        await make(again).resume("R")
        begun, _ = done_by(records[:k])
        assert {*paid} & {*again.effects} == {*paid} - begun, f"cut after record {k}"


# --- other hooks are asked when the run goes on --------------------------------------------------


@pytest.mark.parametrize(
    ("seam", "before"),
    [
        ("before_tool_call", "before_tool_call"), ("before_tool_call", "prepare_tool_call"),
        ("transform_context", "prepare_request"), ("authorize_request", "transform_context"),
    ],
)  # fmt: skip
async def test_a_lambda_that_paid_does_not_pay_again_though_another_is_asked_before_it_now(
    tmp_path: Path, seam: str, before: str
) -> None:
    """It had paid when the process ended, and what it had decided was not on record, or is asked once more."""
    place = workspace(tmp_path, "await adf.pay(amount=3)")
    only = ONLY_WORK.get(seam, ())
    new = another(place, "new", "return None", before, tools=only)
    make = maker(place, seam, [], only=only)
    world = World(tmp_path / "whole.db")
    async with make(world) as agent:
        await agent.run("go", run_id="R")
    records, of = all_records(tmp_path / "whole.db"), parents(tmp_path / "whole.db")
    for length, last in enumerate(records, 1):
        if last.kind not in ("outcome", "ruling", "request", "reply"):
            continue
        path = tmp_path / f"{length}.db"
        cut(records[:length], of, path).close()
        paid = sum(r.kind == "intent" and r.data["name"] == "pay" for r in records[:length])
        for expected in (sum("lambda" in key for key in world.effects) - paid, 0):  # nor in the process after that
            again = World(path)
            agent = make(again)
            async with agent.replace(hooks=[new, *agent.hooks]) as agent:
                result = await agent.resume("R", check=False)
            assert result.error is None, f"cut after {length}: {result.error}"
            assert sum("lambda" in key for key in again.effects) == expected, f"cut after {length}: {again.effects}"


@pytest.mark.parametrize("other", [False, True])
async def test_a_new_lambda_that_is_asked_about_a_waiting_call_leaves_a_record_that_can_be_gone_over(
    tmp_path: Path, other: bool
) -> None:
    """Another one had been asked about it, or none. Both do something of their own, once."""
    place = workspace(tmp_path, "await adf.pay(amount=3)")
    new = another(place, "new", "await adf.pay(amount=4)", "before_tool_call", tools=("work",))
    asks = Hook(seam="before_tool_call", fn=lambda call: Ask("May it?"), tools=("work",), name="asks")
    gate = Lambda("lib/gate.py:gate", seam="before_tool_call", workspace=place, timeout=60, name="old", tools=("work",))
    old = [gate] if other else []

    def make(world: World, *hooks: Any) -> Agent:
        replies = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else tool_call("work", {"x": 1}, id="c"))
        return Agent(model=replies, tools=tools(world), hooks=[*hooks, asks], journal=world.journal)

    async with make(World(tmp_path / "runs.db"), *old) as agent:
        assert (await agent.run("go", run_id="R")).stop_reason == "suspended"
    began = len(all_records(tmp_path / "runs.db"))
    async with make(World(tmp_path / "runs.db"), new, *old) as agent:
        whole = await agent.resume("R", {"c": Approve()})
    records, of = all_records(tmp_path / "runs.db"), parents(tmp_path / "runs.db")
    for length in range(began + 1, len(records) + 1):
        path = tmp_path / f"{length}.db"
        cut(records[:length], of, path).close()
        begun = [r.data["key"] for r in records[:length] if r.kind == "intent"]
        world = World(path)
        async with make(world, new, *old) as agent:
            result = await agent.resume("R", check=False)
        assert not set(begun) & set(world.effects), length
        if records[length - 1].kind != "intent":
            assert (result.messages, len(begun) + len(world.effects)) == (whole.messages, 2 + other), length
