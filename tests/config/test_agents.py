"""An agent made from a project file, and what each block makes of it."""

import os
import re
import subprocess
import sys

import pytest

from beforehand import Agent, ConfigError, HookFailed, Limits, Recovery, Replace, ToolContext, hook, tool
from beforehand.decisions import Approve, Deny
from beforehand.settings import GRANTED, PreLlmHook
from beforehand.testing import ScriptedModel, text, tool_call
from beforehand.workspace import Workspace


@tool
def search(query: str) -> str:
    """Find something."""
    return f"found {query}"


@tool(replay="safe")
def wipe(path: str) -> str:
    """Delete something."""
    return f"wiped {path}"


RULE = '{"label": "%s", "target": "tool", "event": "before", "tools": ["search"], "actions": [{"type": "block", "reason": "%s"}]}'
ONCE = "[recovery]\nauto_retry = false\n"
HOOKED = 'workspace = "agent"\n[pre_llm_hook]\nsource = "lib/x.py:transform"\n'


def test_the_file_makes_the_agent(folder):
    folder.toml('model = "openai:some-model"\nbase_url = "http://localhost:1/v1"\ninstructions = "Be brief."\n'
                "[limits]\nmax_turns = 7\n")  # fmt: skip
    agent = Agent.from_project(folder.root, tools=[search])
    assert (agent.plan.model.name, agent.plan.model.endpoint) == ("some-model", "http://localhost:1/v1/chat/completions")
    assert agent.plan.system == "Be brief."
    assert agent.plan.limits == Limits(max_turns=7, compact_at=100_000)
    assert [t.name for t in agent.plan.tools] == ["search"]
    assert agent.plan.project.instructions == "Be brief."


async def test_arguments_count_instead_of_the_file(folder):
    folder.toml('model = "openai:some-model"\nbase_url = "http://localhost:1/v1"\ninstructions = "Be brief."\n')
    model = ScriptedModel([text("hello")])
    agent = Agent.from_project(folder.root / "beforehand.toml", model=model, instructions="Be long.", name="other")
    await agent.run("hello")
    assert model.requests[0].system == "Be long."
    assert agent.plan.name == "other"


def test_models_that_are_named_are_where_the_file_says_whatever_model_is_handed_over(folder):
    file = 'model = "openai:some-model"\nbase_url = "http://localhost:1/v1"\n'
    folder.toml(file + '[[loops]]\nname = "a"\nmodel = "openai:small"\n')
    for given in ({}, {"model": "openai:large"}, {"model": ScriptedModel([])}):
        agent = Agent.from_project(folder.root, **given)
        assert agent.loop("a").plan.model.endpoint == "http://localhost:1/v1/chat/completions"
        assert agent.plan.resolve_model("openai:other").endpoint == "http://localhost:1/v1/chat/completions"


def test_a_project_without_a_model_says_where_to_name_one(folder):
    folder.toml("")
    with pytest.raises(ConfigError, match="the field 'model' is missing: write model = \"openai:NAME\", or pass model="):
        Agent.from_project(folder.root)


# --- rules ---


async def test_the_rule_folder_of_the_file_wins_over_the_environment(folder, monkeypatch):
    other = folder.root / "other"
    other.mkdir()
    (other / "a.json").write_text(RULE % ("env", "by the environment"))
    (folder.root / "rules" / "a.json").write_text(RULE % ("file", "by the file"))
    monkeypatch.setenv("BEFOREHAND_HOOKS_DIR", str(other))
    for text_, reason in (('hooks_dir = "rules"', "by the file"), ("", "by the environment")):
        folder.toml(text_)
        model = ScriptedModel([tool_call("search", {"query": "x"}), text("done")])
        await Agent.from_project(folder.root, model=model, tools=[search]).run("go")
        assert model.requests[1].messages[-1].text == reason


def test_rules_of_the_file_are_loaded_strictly(folder):
    folder.toml('hooks_dir = "rules"')
    (folder.root / "rules" / "a.json").write_text('{"target": "tol"}')
    with pytest.raises(ConfigError, match=r"rules/a.json:1:2: target: there is no target 'tol', did you mean 'tool'"):
        Agent.from_project(folder.root, model=ScriptedModel([]))


# --- tools ---


async def test_a_tool_that_is_not_enabled_is_not_there(folder):
    folder.toml('[[tools]]\nname = "wipe"\nenabled = false\n')
    model = ScriptedModel([tool_call("wipe", {"path": "x"}), text("done")])
    await Agent.from_project(folder.root, model=model, tools=[search, wipe]).run("go")
    assert [t.name for t in model.requests[0].tools] == ["search"]
    assert model.requests[1].messages[-1].is_error
    assert "wiped" not in model.requests[1].messages[-1].text


async def test_a_tool_that_is_not_visible_is_not_shown_and_runs(folder):
    folder.toml('[[tools]]\nname = "wipe"\nvisible = false\n')
    model = ScriptedModel([tool_call("wipe", {"path": "x"}), text("done")])
    await Agent.from_project(folder.root, model=model, tools=[search, wipe]).run("go")
    assert [[t.name for t in request.tools] for request in model.requests] == [["search"], ["search"]]
    assert model.requests[1].messages[-1].text == "wiped x"


@pytest.mark.parametrize("approved", [True, False])
async def test_a_restricted_tool_needs_a_persons_approval(folder, approved):
    folder.toml('[[tools]]\nname = "wipe"\nrestricted = true\n')
    asked = []

    def on_ask(pending):
        asked.append((pending.name, pending.prompt))
        return Approve() if approved else Deny()

    model = ScriptedModel([[tool_call("wipe", {"path": "x"}), tool_call("search", {"query": "y"})], text("done")])
    result = await Agent.from_project(folder.root, model=model, tools=[search, wipe], on_ask=on_ask).run("go")
    assert asked == [("wipe", "wipe is restricted: may it run?")]
    first, second = [m for m in model.requests[1].messages if m.role == "tool"]
    assert (first.text == "wiped x") is approved
    assert second.text == "found y"
    assert [(d.hook, d.verdict, d.where) for d in result.decisions if d.verdict == "Ask"] == [
        ("tools.restricted", "Ask", "beforehand.toml:1")
    ]


async def test_a_restricted_tool_waits_where_nobody_answers_at_once(folder):
    folder.toml('[[tools]]\nname = "wipe"\nrestricted = true\n')
    model = ScriptedModel([tool_call("wipe", {"path": "x"})])
    result = await Agent.from_project(folder.root, model=model, tools=[wipe]).run("go")
    assert result.stop_reason == "suspended"


@pytest.mark.parametrize(
    ("granted", "path", "said"),
    [
        ("c1/1", ["wipe"], "wiped x"),
        ("", ["wipe"], "nobody can be asked from inside a tool"),
        ("c1", ["wipe"], "nobody can be asked from inside a tool"),
        ("c1/1", ["between", "wipe"], "nobody can be asked from inside a tool"),
        ("c1/1/1", ["between", "wipe"], "wiped x"),
    ],
)
async def test_authorised_code_may_make_the_one_call_it_was_granted(folder, granted, path, said):
    """As the bridge does it: the id of the call is granted in the context of that call."""
    folder.toml('[[tools]]\nname = "wipe"\nrestricted = true\n')

    @tool
    async def between(ctx: ToolContext) -> str:
        """Call on."""
        return (await ctx.call_tool("wipe", {"path": "x"})).text

    @tool
    async def code(ctx: ToolContext) -> str:
        """Run code."""
        GRANTED.set(granted)
        return (await ctx.call_tool(path[0], {} if path[1:] else {"path": "x"})).text

    model = ScriptedModel([tool_call("code", {}, id="c1"), text("done")])
    await Agent.from_project(folder.root, model=model, tools=[code, between, wipe]).run("go")
    assert said in model.requests[1].messages[-1].text


def test_an_owner_lowers_replay_and_cannot_raise_it(folder):
    folder.toml('[[tools]]\nname = "wipe"\nreplay = "never"\n')
    (lowered,) = Agent.from_project(folder.root, model=ScriptedModel([]), tools=[wipe]).plan.tools
    assert (lowered.replay, wipe.replay) == ("never", "safe")
    folder.toml('[[tools]]\nname = "search"\nreplay = "safe"\n')
    assert folder.mistakes() == ["3: tools[0].replay: 'safe' is not one of 'never'"]


def test_a_tool_nobody_brings_is_a_mistake_with_its_line(folder):
    folder.toml('model = "openai:x"\n[[tools]]\nname = "serach"\n')
    where = "beforehand.toml:3:1: tools[0].name: "
    with pytest.raises(ConfigError, match=re.escape(f"{where}there is no tool 'serach', did you mean 'search'?")):
        Agent.from_project(folder.root, tools=[search])
    with pytest.raises(ConfigError, match="there is no tool 'serach': the agent has none"):
        Agent.from_project(folder.root)
    folder.toml('model = "openai:x"\n[[loops]]\nname = "helper"\n[[tools]]\nname = "serach"\n')
    with pytest.raises(ConfigError, match=re.escape("the agent has none (give them as tools=, or with --tools)")):
        Agent.from_project(folder.root)


def test_what_is_said_about_tools_holds_for_every_agent_made_of_this_one(folder):
    folder.toml('[[tools]]\nname = "wipe"\nenabled = false\n')
    agent = Agent.from_project(folder.root, model=ScriptedModel([]), tools=[search, wipe])
    assert [t.name for t in agent.replace(name="other").plan.tools] == ["search"]
    assert [t.name for t in agent.replace(tools=[wipe]).plan.tools] == []


# --- the hook ---


async def test_a_block_in_python_is_the_same_hook(folder):
    for block in (
        {"source": "lib/x.py:transform", "scope": "loops", "loops": ("a",), "include_main": True, "timeout_ms": 60000},
        PreLlmHook(source="lib/x.py:transform", scope="main"),
    ):
        for place in ("agent", folder.root / "agent", Workspace(folder.root / "agent")):
            model = ScriptedModel([text("hello")])
            await Agent(model=model, workspace=place, pre_llm_hook=block).run("hello")
            assert model.requests[0].system == "seen"


def test_a_block_in_python_is_checked_when_the_agent_is_made(folder):
    model = ScriptedModel([])
    for block, why in (
        ({"source": "lib/x.py:transform", "scop": "all"}, "pre_llm_hook.scop: unknown field 'scop', did you mean 'scope'"),
        ({"source": "lib/x.py:transform", "timeout_ms": 5}, "pre_llm_hook.timeout_ms: expected a whole number"),
        ({"source": "lib/none.py"}, "lambda 'lib/none.py': its file cannot be read"),
        ("lib/x.py", "pre_llm_hook: expected an object, got 'lib/x.py'"),
        (PreLlmHook(source="lib/x.py", loops=("a",)), "pre_llm_hook.loops: 'loops' goes with scope"),
        (PreLlmHook(source="lib/x.py", timeout_ms=5), "pre_llm_hook.timeout_ms: expected a whole number"),
    ):
        with pytest.raises(ConfigError, match=why):
            Agent(model=model, workspace="agent", pre_llm_hook=block)
    with pytest.raises(ConfigError, match=r"pre_llm_hook= needs workspace=, the folder that its lambda 'lib/x.py' is in"):
        Agent(model=model, pre_llm_hook={"source": "lib/x.py"})
    with pytest.raises(ConfigError, match="there is no folder nowhere"):
        Agent(model=model, workspace="nowhere", pre_llm_hook={"source": "lib/x.py"})


async def test_the_hook_sees_what_the_other_hooks_made_of_the_request(folder):
    folder.lambda_("def transform(input):\n    r = input['request']\n    return {**r, 'system': r['system'] + ' lambda'}\n")
    folder.toml(HOOKED)

    def says(word, **options):
        @hook.before_provider_call(**options)
        def change(call):
            import msgspec

            return Replace(request=msgspec.structs.replace(call.request, system=f"{call.request.system} {word}"))

        return change

    model = ScriptedModel([text("hello")])
    hooks = [says("late", order=2), says("early"), says("usual", order=0.5)]
    await Agent.from_project(folder.root, model=model, hooks=hooks, instructions="first").run("hello")
    assert model.requests[0].system == "first early usual lambda late"


async def test_time_limits_of_other_hooks_are_not_the_hooks_own(folder):
    folder.toml(HOOKED + "timeout_ms = 20000\n[limits]\nhook_timeout = 0.000001\n")
    model = ScriptedModel([text("hello")])
    await Agent.from_project(folder.root, model=model).run("hello")
    assert model.requests[0].system == "seen"


async def test_what_the_file_says_is_what_a_lambda_may_read_of_it(folder):
    folder.lambda_(
        "import json\nasync def transform(i):\n    c = await adf.sys_get_config()\n"
        "    return {**i['request'], 'system': json.dumps(c)}\n"
    )
    folder.toml('model = "openai:m"\nbase_url = "http://user:secret@localhost/v1"\n' + HOOKED + '[[loops]]\nname = "a"\n')
    model = ScriptedModel([text("hello")])
    await Agent.from_project(folder.root, model=model).run("hello")
    said = model.requests[0].system
    assert '"execution_timeout_ms"' in said
    assert '"name": "a"' in said
    assert "secret" not in said
    assert "base_url" not in said


async def test_switching_nested_lambdas_off_counts_at_the_next_request(folder):
    folder.lambda_("async def transform(i):\n    return {**i['request'], 'system': await adf.sys_lambda(source='lib/y.py')}\n")
    folder.lambda_("def main(args):\n    return 'nested'\n", "y.py")
    folder.toml(HOOKED + ONCE)
    model = ScriptedModel([text("hello")])
    agent = Agent.from_project(folder.root, model=model)
    await agent.run("hello")
    assert model.requests[0].system == "nested"
    folder.toml(HOOKED + ONCE + "[code_execution]\nsys_lambda = false\n")
    with pytest.raises(HookFailed, match=r"DISABLED: adf.sys_lambda is switched off"):
        await agent.run("hello")
    assert len(model.requests) == 1


async def test_an_agent_made_of_this_one_keeps_the_hook(folder):
    folder.toml(HOOKED)
    model = ScriptedModel([text("hello")])
    await Agent.from_project(folder.root, model=model).replace(hooks=[]).run("hello")
    assert model.requests[0].system == "seen"


def test_a_project_without_a_hook_imports_and_starts_nothing(folder):
    folder.toml('model = "openai:m"\n[[tools]]\nname = "search"\nvisible = false\n[[loops]]\nname = "a"\n')
    script = (
        "import sys\n"
        "from beforehand import Agent, tool\n"
        "from beforehand.testing import ScriptedModel, text\n"
        "@tool\ndef search(query: str) -> str:\n    '''Find.'''\n    return ''\n"
        "agent = Agent.from_project('.', tools=[search], model=ScriptedModel([text('hi')]))\n"
        "assert agent.run_sync('hello').text == 'hi'\n"
        "print([name for name in sys.argv[1:] if name in sys.modules])\n"
    )
    heavy = ("beforehand.workspace", "beforehand.sandbox", "beforehand.rules", "pydantic_monty", "deno", "re2", "yaml", "tomlkit")
    done = subprocess.run([sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=False, cwd=folder.root)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_the_sandbox_a_selected_hook_fails_closed_in_one_line(folder):
    """As where the extra is not installed: the packages that run lambdas cannot be imported."""
    folder.lambda_("export function transform({ request }) { return request }", "x.ts")
    folder.toml(ONCE)
    script = (
        "import sys\n"
        "from beforehand import Agent\n"
        "from beforehand.testing import ScriptedModel, text\n"
        "model = ScriptedModel([text('hi')])\n"
        "sys.modules['deno'] = sys.modules['pydantic_monty'] = None\n"
        "agent = Agent.from_project('.', model=model)\n"
        "for name in ('x.ts', 'x.py'):\n"
        "    open('beforehand.toml', 'w').write(sys.argv[1].replace('x.py', name))\n"
        "    result = agent.run_sync('hello', check=False)\n"
        "    print(type(result.error).__name__, len(model.requests), str(result.error).count('\\n'), result.error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, HOOKED], capture_output=True, text=True, check=False, cwd=folder.root,
        env={"PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    assert all(line.startswith("HookFailed 0 0 hook 'pre_llm_hook' at before_provider_call") for line in lines)
    assert 'the extra "js" of beforehand' in lines[0]
    assert "nothing here can run lib/x.py:transform: the package pydantic_monty is missing" in lines[1]


@pytest.mark.parametrize("said", ["nothing", "by replace", "None", "the default one"])
async def test_a_hook_in_python_that_fails_leaves_a_row_unless_the_owner_wants_none(folder, said):
    folder.lambda_("def main(input):\n    raise ValueError('the index is gone ' + 'x' * 5000)\n", "y.py")
    model = ScriptedModel([text("hello")])
    more = {"None": {"recovery": None}, "the default one": {"recovery": Recovery(auto_retry=False)}}.get(said, {})
    if said == "by replace":
        agent = Agent(model=model, workspace="agent").replace(pre_llm_hook={"source": "lib/y.py"})
    else:
        agent = Agent(model=model, workspace="agent", pre_llm_hook={"source": "lib/y.py"}, **more)
    talk = agent.conversation()
    result = await talk.run("hello", check=False)
    assert (result.stop_reason, type(result.error), model.requests) == ("error", HookFailed, [])
    assert [d.verdict for d in result.decisions] == ["failed"]  # and nothing was tried again
    rows = [m.text for m in talk.messages if m.text.startswith("[Turn error] ")]
    assert len(rows) == (0 if said == "None" else 1)
    assert all("the index is gone" in row and len(row) <= len("[Turn error] ") + 2000 for row in rows)


async def test_an_agent_without_such_a_hook_has_no_recovery_unless_it_is_given_one():
    assert Agent(model=ScriptedModel([])).plan.recovery is None
    assert Agent(model=ScriptedModel([]), hooks=[hook.before_provider_call(lambda call: None)]).plan.recovery is None


async def test_a_block_in_python_counts_instead_of_the_files(folder):
    folder.lambda_("def main(input):\n    return {**input['request'], 'system': 'other'}\n", "y.py")
    folder.toml(HOOKED)
    model = ScriptedModel([text("hello"), text("hello")])
    await Agent.from_project(folder.root, model=model, pre_llm_hook={"source": "lib/y.py"}).run("hello")
    await Agent.from_project(folder.root, model=model).replace(pre_llm_hook={"source": "lib/y.py"}).run("hello")
    assert [r.system for r in model.requests] == ["other", "other"]


def test_a_workspace_that_is_not_there_is_a_mistake_without_a_hook_too(folder):
    with pytest.raises(ConfigError, match="there is no folder nowhere: a workspace is a folder that holds lambdas"):
        Agent(model=ScriptedModel([]), workspace="nowhere")


async def test_a_process_that_goes_elsewhere_keeps_its_project(folder, monkeypatch, tmp_path_factory):
    folder.toml('model = "openai:m"\n')
    model = ScriptedModel([text("hello"), text("hello")])
    agent = Agent.from_project(".", model=model)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    (elsewhere / "beforehand.toml").write_text("")
    folder.toml('model = "openai:m"\n' + HOOKED)
    await agent.run("hello")
    assert model.requests[0].system == "seen"
