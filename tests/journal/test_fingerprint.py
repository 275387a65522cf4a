"""A run that goes on notices other tools and hooks: their code, and what that is configured with; and no state."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from beforehand import Agent, Approve, Ask, Block, Hook, Replace, hook, tool
from beforehand.errors import RunChanged
from beforehand.hooks.group import HookGroup
from beforehand.journal.fingerprint import differences, of_hook, of_tool, prints_of
from beforehand.testing import FunctionModel, text, tool_call


def at_gate(fn: Any, **options: Any) -> Hook:
    return Hook(seam="before_tool_call", fn=fn, name="guard", **options)


def changed(then: Hook, now: Hook) -> bool:
    return differences({"tools": {}, "hooks": prints_of([then])}, [], [now]) == ["hook guard at before_tool_call has changed"]


# --- what configures a guard ----------------------------------------------------------------------


def held(limit: Any) -> Any:
    return lambda call: Block("no") if call.args["n"] > limit else None


def by_default(limit: int) -> Any:
    def fn(call: Any, most: Any = limit) -> Any:
        return Block("no") if call.args["n"] > most else None

    return fn


def by_keyword(limit: int) -> Any:
    def fn(call: Any, *, most: Any = limit) -> Any:
        return Block("no") if call.args["n"] > most else None

    return fn


def check(limit: Any, call: Any, log: Any = None) -> Any:
    return Block("no") if call.args["n"] > limit else None


class Guard:
    most: Any = 0

    def __init__(self, limit: Any, log: Any = None) -> None:
        self._limit, self.log, self.seen, self.__inner = limit, log, 0, limit

    def __call__(self, call: Any) -> Any:
        self.seen += 1
        return Block("no") if call.args["n"] > self._limit else None

    def judge(self, call: Any) -> Any:
        return Block("no") if call.args["n"] > self._limit + self.__inner else None

    def made(self) -> Any:
        return lambda call: self.judge(call)


class Slotted:
    __slots__ = ("limit",)

    def __init__(self, limit: Any) -> None:
        self.limit = limit

    def __call__(self, call: Any) -> Any:
        return Block("no") if call.args["n"] > self.limit else None


class Decorated:
    def __init__(self, limit: Any) -> None:
        self.limit = limit

    @hook.before_tool_call(name="guard")
    def judge(self, call: Any) -> Any:
        return Block("no") if call.args["n"] > self.limit else None


@dataclasses.dataclass
class Data:
    limit: Any

    def __call__(self, call: Any) -> Any:
        return Block("no") if call.args["n"] > self.limit else None


@dataclasses.dataclass(frozen=True)
class Settings:
    limit: Any


class Struct(msgspec.Struct, frozen=True):
    limit: Any


class Level(enum.Enum):
    LOW = 1
    HIGH = 1000


def fixed_in_class(limit: Any) -> Any:
    return type("Fixed", (Guard,), {"most": limit})(1)


def constant(limit: Any) -> Any:
    scope: dict[str, Any] = {"LIMIT": limit, "Block": Block}
    exec("def fn(call):\n    return Block('no') if call.args['n'] > LIMIT else None", scope)  # noqa: S102 - our own text
    return scope["fn"]


def wrapped(limit: Any) -> Any:
    def decorate(fn: Any) -> Any:
        @functools.wraps(fn)
        def around(call: Any) -> Any:
            return fn(call) if call.args["n"] > limit else None

        return around

    return decorate(lambda call: Block("no"))


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "a closure": held, "a default value": by_default, "a keyword's default": by_keyword, "a decorator": wrapped,
    "a partial's argument": lambda n: functools.partial(check, n),
    "a partial's keyword": lambda n: functools.partial(check, 5, log=n),
    "an object": Guard, "an object's method": lambda n: Guard(n).judge, "an object in slots": Slotted, "a dataclass": Data,
    "an object that made it": lambda n: Guard(n).made(), "its class": fixed_in_class, "a constant of its module": constant,
    "a partial of a method": lambda n: functools.partial(Guard(n).judge),
    "a frozen dataclass": lambda n: held(Settings(n)), "a frozen struct": lambda n: held(Struct((n, "a"))),
    "a tuple in a tuple": lambda n: held(((n,), None)), "a frozen set": lambda n: held(frozenset({n, "a"})),
    "a pattern": lambda n: held(re.compile(f"a{{{n}}}")), "a member of an enum": lambda n: held(Level(n)),
    "a function": lambda n: held(held(n)), "a text": lambda n: held(str(n)), "bytes": lambda n: held(b"%d" % n),
    "a number with a point": lambda n: held(n / 7), "a truth": lambda n: held(n == 1),
    "nothing": lambda n: held(None if n == 1 else n), "a path": lambda n: held(Path(f"/{n}")),
}  # fmt: skip


@pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
def test_another_limit_is_another_guard_whatever_holds_it(make: Callable[[Any], Any]) -> None:
    assert not changed(at_gate(make(1)), at_gate(make(1)))
    assert changed(at_gate(make(1)), at_gate(make(1000)))


def test_a_decorated_method_is_another_one_with_another_object() -> None:
    assert not changed(Decorated(1).judge, Decorated(1).judge)
    assert changed(Decorated(1).judge, Decorated(1000).judge)


@pytest.mark.parametrize("options", [{"timeout": 1}, {"order": 1}, {"on_error": "open"}, {"final": True}, {"tools": ("a*",)},
                                     {"loops": ("main",)}], ids=str)  # fmt: skip
def test_another_option_is_another_hook(options: dict[str, Any]) -> None:
    assert changed(at_gate(check), at_gate(check, **options))


def repaired(args: dict[str, Any]) -> dict[str, Any]:
    return args


TOOLS = [
    {}, {"timeout": 5}, {"timeout": 6}, {"mode": "sequential"}, {"replay": "safe"}, {"prepare_arguments": repaired},
    {"prepare_arguments": lambda args: {"n": 5}}, {"canonical": {"n": abs}}, {"canonical": {"n": lambda n: n}},
]  # fmt: skip


def test_another_option_is_another_tool() -> None:
    def made(options: dict[str, Any]) -> str:
        @tool(**options)
        async def work(n: int) -> str:
            return "ok"

        return of_tool(work)

    assert [made(options) for options in TOOLS] == [made(options) for options in TOOLS]
    assert len({made(options) for options in TOOLS}) == len(TOOLS)


def test_hooks_that_are_asked_in_another_order_are_named_by_their_seam() -> None:
    one, two = (Hook(seam="before_tool_call", fn=held(1), name=name) for name in ("one", "two"))
    three = Hook(seam="before_tool_call", fn=held(1), name="three", order=-1)
    before = {"tools": {}, "hooks": prints_of([one, two, three])}

    assert differences(before, [], [one, two, three]) == []
    assert differences(before, [], [three, one, two]) == [], "it was asked first before, too"
    assert differences(before, [], [two, one, three]) == ["the hooks at before_tool_call are asked in another order"]


# --- state ----------------------------------------------------------------------------------------


class Counter:
    started = 0.0

    def __init__(self, budget: int, log: list[Any], cache: dict[str, Any]) -> None:
        self.budget, self.log, self.cache, self.calls, self.last = budget, log, cache, 0, ""

    def __call__(self, call: Any) -> None:
        self.budget -= 1
        self.calls += 1
        self.started = self.last = call
        self.log.append(call)
        self.cache[call] = call


def counting() -> Any:
    calls, seen, log, cache = 0, set(), [], {}  # type: ignore[var-annotated]

    def fn(call: Any) -> None:
        nonlocal calls
        calls += 1
        seen.add(call)
        log.append(call)
        cache[call] = call

    return fn


@functools.lru_cache
def looked_up(call: Any) -> None:
    return None


@pytest.mark.parametrize("fn", [Counter(5, [], {}), counting(), looked_up], ids=["an object", "a closure", "a cache"])
def test_what_goes_on_changing_while_a_guard_works_is_no_change(fn: Any) -> None:
    before = of_hook(at_gate(fn))
    for call in "abc":
        fn(call)
    assert of_hook(at_gate(fn)) == before


@pytest.mark.parametrize("then", ["a", b"a"], ids=["text", "bytes"])
@pytest.mark.parametrize("name", ["api_key", "token", "PASSWORD", "client_secret"])
def test_a_new_key_is_no_other_hook_and_no_digest_of_it_is_kept(name: str, then: Any) -> None:
    def using(key: Any) -> Hook:
        scope: dict[str, Any] = {}
        exec(f"def make({name}):\n    return lambda call, *, {name}2={name}: {name}", scope)  # noqa: S102 - our own text
        return at_gate(scope["make"](key))

    assert not changed(using(then), using(then * 2))
    assert changed(using(1), using(2)), "a number is no key"
    (one, other) = (Hook(seam="get_api_key", fn=lambda c, k=k: Replace(key=k), name="keys") for k in ("one", "two"))
    assert of_hook(one) == of_hook(other)


# --- how it is told -------------------------------------------------------------------------------


def unasked(said: str) -> None:
    if armed:
        raise AssertionError(said)


armed: list[bool] = []


class Hostile:
    """An object whose own code nobody has asked for."""

    def __init__(self, limit: Any) -> None:
        self.__dict__["limit"] = limit

    def __getattr__(self, name: str) -> Any:
        unasked(f"asked for {name}")
        raise AttributeError(name)

    def __repr__(self) -> str:
        unasked("shown")
        return ""

    def __eq__(self, other: object) -> bool:
        unasked("compared")
        return self is other

    def __hash__(self) -> int:
        unasked("hashed")
        return 1

    def __bool__(self) -> bool:
        unasked("judged")
        return True

    def __iter__(self) -> Any:
        unasked("gone through")
        return iter(())

    @property
    def __class__(self) -> Any:
        unasked("asked for its class")
        return Hostile

    @property
    def fingerprint(self) -> Any:
        unasked("read")

    @property
    def __wrapped__(self) -> Any:
        unasked("read")
        raise AttributeError("__wrapped__")

    def __call__(self, call: Any) -> Any:
        return None


def test_nothing_of_what_a_user_wrote_is_run_for_it() -> None:
    holders = [Hostile(1), held(Hostile(1)), held((Hostile(1),)), Guard(Hostile(1)), functools.partial(check, Hostile(1))]
    hooks = [at_gate(fn) for fn in holders]
    then, now = at_gate(Hostile(1)), at_gate(Hostile(1000))
    armed.append(True)
    try:
        for one in hooks:
            of_hook(one)
        assert changed(then, now)
    finally:
        armed.clear()


def test_an_object_can_speak_for_itself() -> None:
    class Policy:
        def __init__(self, version: str) -> None:
            self.versions = [version]

        def fingerprint(self) -> str:
            return self.versions[-1]

        def __call__(self, call: Any) -> None:
            return None

    for make in (Policy, lambda version: held(Policy(version)), lambda version: Policy(version).__call__):
        assert not changed(at_gate(make("1")), at_gate(make("1")))
        assert changed(at_gate(make("1")), at_gate(make("2")))


def test_what_holds_itself_or_is_very_large_has_a_fingerprint_too() -> None:
    def again(call: Any, depth: int = 1) -> Any:
        return again(call, depth - 1) if depth else None

    nested: Any = ()
    for _ in range(200):
        nested = (nested, nested)
    assert of_hook(at_gate(again)) == of_hook(at_gate(again))
    assert of_hook(at_gate(held(nested))) == of_hook(at_gate(held(nested)))
    assert of_hook(at_gate(held(tuple(range(100_000))))) != of_hook(at_gate(held(1)))


ELSEWHERE = """
import sys
sys.path[:0] = {paths!r}
from journal.test_fingerprint import HOLDERS, at_gate, tool
from beforehand.journal.fingerprint import of_hook, of_tool
@tool
def pay(to: str, kind: str = "a") -> str:
    return "no" if to in {{"ada", "bob", "eve"}} or (kind, frozenset({{"x", "y"}})) else "ok"
print([of_hook(at_gate(make(1))) for make in HOLDERS.values()], of_tool(pay))
"""


def test_it_is_the_same_in_every_process() -> None:
    def said(seed: str) -> str:
        script = ELSEWHERE.format(paths=[str(Path(__file__).parent.parent)])
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("1") == said("2") == said("3")


def test_older_records_are_compared_by_what_they_have() -> None:
    def older(hooks: list[Hook]) -> dict[str, Any]:
        return {"tools": {}, "hooks": {name: mark.partition(".")[0] for name, mark in prints_of(hooks).items()}}

    assert differences(older([at_gate(held(1))]), [], [at_gate(held(1000))]) == []
    other = [at_gate(lambda call: None)]
    assert differences(older([at_gate(held(1))]), [], other) == ["hook guard at before_tool_call has changed"]


# --- rules ----------------------------------------------------------------------------------------

RULES: list[dict[str, Any]] = [
    {"target": "tool", "event": "before", "args": {"/amount": {"equals": 42}}, "actions": [{"type": "block", "reason": "no"}]},
    {"target": "tool", "event": "after", "regex": "42", "actions": [{"type": "replace", "with": "x"}]},
    {"target": "stream", "regex": "42", "actions": [{"type": "interrupt"}]},
    {"target": "chat", "roles": ["tool"], "regex": "42", "actions": [{"type": "queue-message", "role": "user", "message": "x"}]},
    {"target": "request", "regex": "42", "actions": [{"type": "block", "reason": "x"}]},
    {"target": "turn", "event": "before", "regex": "42", "actions": [{"type": "end", "reason": "x"}]},
    {"target": "run", "regex": "42", "actions": [{"type": "block", "reason": "x"}]},
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['target']} {rule.get('event', '')}".strip())
def test_a_rule_that_says_something_else_is_another_rule(rule: dict[str, Any], tmp_path: Path) -> None:
    def loaded(rules: list[dict[str, Any]]) -> list[Any]:
        (tmp_path / "rules.json").write_text(json.dumps([{"label": "one of them", **each} for each in rules]))
        hooks = Agent(model=FunctionModel(lambda r: text("")), hooks=[str(tmp_path / "rules.json")]).plan.hooks.current.hooks
        return [one for hook in hooks for one in (hook.members if isinstance(hook, HookGroup) else (hook,))]

    before = {"tools": {}, "hooks": prints_of(loaded([rule]))}
    other = json.loads(json.dumps(copy.deepcopy(rule)).replace("42", "43"))

    assert differences(before, [], loaded([rule])) == []
    assert differences(before, [], loaded([other]))[0].endswith("has changed")


# --- a run ----------------------------------------------------------------------------------------


def helper_with(limit: int, pays: str = "paid", name: str = "helper") -> Any:
    """An agent as a tool, whose guard has this limit and whose tool says this."""

    def act(n: int) -> str:
        """Act."""
        return f"{pays} {n}"

    model = FunctionModel(lambda _: tool_call("act", {"n": 1}, id="c"))
    inner = Agent(model=model, tools=[tool(act)], hooks=[at_gate(held(limit))])
    return inner.as_tool(name, "Helps.")


@pytest.mark.parametrize("now", [helper_with(2), helper_with(1, "kept")], ids=["its guard", "its tool"])
def test_an_agent_that_is_a_tool_has_changed_if_its_own_tools_or_hooks_have(now: Any) -> None:
    then = {"tools": {"helper": of_tool(helper_with(1))}, "hooks": {}}
    assert differences(then, [helper_with(1)], []) == []
    assert differences(then, [now], []) == ["tool helper has changed"]
    two_parts = {"tools": {"helper": ".".join(then["tools"]["helper"].split(".")[:2])}, "hooks": {}}
    assert differences(two_parts, [now], []) == [], "an older record does not tell what was inside"


async def test_a_run_whose_subagent_has_another_guard_does_not_go_on_strictly(tmp_path: Path) -> None:
    def calls(name: str, arguments: dict[str, Any]) -> Any:
        call = tool_call(name, arguments, id="c")
        return FunctionModel(lambda r: text(r.messages[-1].text) if r.messages[-1].role == "tool" else call)

    @tool
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    def outer(guard: Any) -> Agent:
        inner = Agent(model=calls("pay", {"n": 1}), tools=[pay], hooks=[guard])
        return Agent(model=calls("sub", {"prompt": "go"}), tools=[inner.as_tool("sub", "Pays.")], journal=tmp_path / "runs.db")

    async with outer(at_gate(lambda call: Ask("Pay?"))) as first, outer(at_gate(lambda call: None)) as second:
        assert (await first.run("go", run_id="r")).stop_reason == "suspended"
        with pytest.raises(RunChanged, match="tool sub has changed"):
            await second.resume("r", {"c/c": Approve()}, strict=True)
        assert (await second.resume("r", {"c/c": Approve()})).text == "paid 1"


async def test_a_run_does_not_go_on_strictly_with_a_guard_whose_limit_was_raised(tmp_path: Path) -> None:
    @tool
    async def pay(n: int = 0) -> str:
        return f"paid {n}"

    def agent(limit: int) -> Agent:
        asks = Hook(seam="before_tool_call", fn=lambda call: Ask("?"), name="asks")
        model = FunctionModel(lambda r: text("done") if r.messages[-1].role == "tool" else tool_call("pay", {"n": 7}, id="c"))
        return Agent(model=model, tools=[pay], hooks=[at_gate(Guard(limit)), asks], journal=tmp_path / "runs.db")

    async with agent(10) as first:
        assert (await first.run("go", run_id="r")).stop_reason == "suspended"
    async with agent(1000) as second:
        with pytest.raises(RunChanged, match="hook guard at before_tool_call has changed"):
            await second.resume("r", {"c": Approve()}, strict=True)
        assert (await second.resume("r", strict=True)).pending, "the answer did not count"
    async with agent(10) as third:
        assert (await third.resume("r", {"c": Approve()}, strict=True)).text == "done"
