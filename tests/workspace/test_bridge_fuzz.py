"""Whatever a lambda hands the bridge, it gets a value or a refusal with a code, and nothing outside its folder changes."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand import Agent, hook, tool
from beforehand.sandbox import METHODS, BridgeRefused, Console, SandboxLimits
from beforehand.testing import FunctionModel, text
from beforehand.workspace import Bridge, Workspace
from beforehand.workspace.caller import Caller

CODES = {
    "INVALID_INPUT", "NOT_FOUND", "DISABLED", "PROTECTION_DENIED", "WRITE_ERROR", "REQUIRES_AUTHORIZED_CODE", "EXCLUDED_TOOL",
    "BLOCKED", "TOOL_ERROR", "LIMIT", "CIRCULAR_CALL",
}  # fmt: skip

words = st.sampled_from(
    ["", "a.txt", "../out.txt", "/etc/passwd", "lib/x.py", ".beforehand/meta.json", "~", "a\0b", "link/out.txt", "custom.x",
     "user", "approve", "write", "append", "edit", "__proto__"]
) | st.text(max_size=8)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(
    ["path", "content", "mode", "edits", "prefix", "start_line", "key", "value", "delta", "source", "args", "section",
     "event_type", "payload", "prompt", "messages", "system", "temperature", "provider_params", "role", "task_id", "action",
     "_full", "_async", "_authorized", "to"]
) | st.text(max_size=5)  # fmt: skip
arguments = st.dictionaries(keys, words | values, max_size=5) | values
names = st.sampled_from([*METHODS, "find_train", "say", "loop_clear", "__proto__", "__class__", "_run", "note", ""])


@tool
async def find_train(to: str) -> str:
    """Find a train."""
    return to


def everything_in(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A workspace in a folder with other things, one of which a link in the workspace leads to."""
    around = tmp_path_factory.mktemp("around")
    inside = around / "agent"
    (inside / "lib").mkdir(parents=True)
    (inside / "lib" / "x.py").write_text("def main(a):\n    return 1")
    (around / "outside").mkdir()
    (around / "outside" / "out.txt").write_text("mine")
    (inside / "link").symlink_to(around / "outside")
    return inside


def in_a_hook(stage, do):
    """Run `do(bridge)` inside a hook of a real run."""
    outcomes = []

    @hook.before_turn
    async def work(turn):
        run = turn.run._run
        caller = Caller(run, work, name="fuzz", where="here", seam="before_turn", call_id=None, deadline=float("inf"))
        deadline = asyncio.get_running_loop().time() + 60
        limits = SandboxLimits()
        bridge = Bridge(Workspace(stage), limits, (("lib/x.py", "main"),), Console(10), None, deadline, caller)
        outcomes.append(await do(bridge))

    agent = Agent(model=FunctionModel(lambda request: text("done")), tools=[find_train], hooks=[work])
    result = asyncio.run(agent.run("Hi"))
    return outcomes[0], result


@settings(max_examples=150, deadline=None)
@given(names, arguments)
def test_any_call_gives_a_value_or_a_refusal(stage, name, argument):
    around = stage.parent
    before = {k: v for k, v in everything_in(around).items() if not k.startswith("agent/")}
    code_before = (stage / "lib" / "x.py").read_bytes()

    async def do(bridge):
        try:
            await bridge(name, argument)
        except BridgeRefused as refused:
            return refused.code
        return "OK"

    outcome, result = in_a_hook(stage, do)
    assert outcome == "OK" or outcome in CODES
    assert result.text == "done"
    assert {k: v for k, v in everything_in(around).items() if not k.startswith("agent/")} == before
    assert (stage / "lib" / "x.py").read_bytes() == code_before
