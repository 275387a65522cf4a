"""What a lambda reaches through `adf`, in a real sandbox."""

import asyncio
import contextlib
import fcntl
import os
import threading

import pytest
from msgspec.structs import replace

from beforehand.sandbox import BridgeRefused, Console, LambdaRaised, LambdaTimedOut, SandboxLimits, call
from beforehand.settings import CodeExecution
from beforehand.signals import AbortSignal
from beforehand.workspace import Bridge, Gates, Workspace

ROOMY = SandboxLimits(wall_time=60)


def bridge_of(workspace, step=("lib/start.py", "main"), limits=ROOMY):
    deadline = asyncio.get_running_loop().time() + limits.wall_time
    return Bridge(workspace, limits, (step,), Console(limits.console), None, deadline)


async def start(workspace, path="lib/start.py", argument=None, limits=ROOMY):
    """Run `main` of a workspace file, with the bridge a hook would have."""
    bridge = bridge_of(workspace, (path, "main"), limits)
    return await call(workspace.source(path), "main", argument, limits=limits, bridge=bridge, console=bridge.console)


async def test_nothing_begins_once_the_time_is_over_or_the_run_aborted(place):
    workspace, signal = Workspace(place), AbortSignal()
    late = replace(bridge_of(workspace), deadline=asyncio.get_running_loop().time())
    aborted = replace(bridge_of(workspace), signal=signal)
    signal.set()
    for bridge, why in ((late, "the lambda's time was over"), (aborted, "the run was aborted")):
        with pytest.raises(BridgeRefused, match=f"INVALID_STATE: .*{why}"):
            await bridge("fs_write", {"path": "a.txt", "content": ""})
    assert not (place / "a.txt").exists()


async def test_lambdas_that_call_lambdas_are_bounded_by_one_number_for_all(place):
    (place / "lib" / "start.ts").write_text("""
const both = (source) => Promise.all([1, 2].map(() => adf.sys_lambda({source}).catch((e) => e.code)))
export const main = () => both("lib/start.ts:a")
export const a = () => both("lib/start.ts:b")
export const b = () => "done"
""")
    limits = SandboxLimits(wall_time=60, suspensions=3)
    answers = (await start(Workspace(place), "lib/start.ts", limits=limits)).value
    assert sorted(answers[0] + answers[1]) == ["LIMIT", "LIMIT", "LIMIT", "done"]


async def test_files_are_written_read_listed_and_deleted(place):
    (place / "lib" / "start.py").write_text("""
async def main(a):
    await adf.fs_write(path="notes/a.txt", content="one\\ntwo\\nthree\\n")
    await adf.fs_write(path="notes/a.txt", mode="append", content="four\\n")
    await adf.fs_write(path="notes/a.txt", mode="edit", edits=[{"old_text": "two", "new_text": "2"}])
    whole = await adf.fs_read(path="notes/a.txt")
    part = await adf.fs_read(path="notes/a.txt", start_line=2, end_line=3)
    listed = await adf.fs_list(prefix="notes/")
    await adf.fs_delete(path="notes/a.txt")
    return [whole, part["content"], listed, await adf.fs_list(prefix="notes/")]
""")
    whole, part, listed, after = (await start(Workspace(place))).value
    standing = {"protection": "none", "authorized": False}
    assert whole == {"path": "notes/a.txt", "content": "one\n2\nthree\nfour\n", "size": 17, **standing}
    assert part == "2\nthree\n"
    assert listed == [{"path": "notes/a.txt", "size": 17}]
    assert after == []


LONG = "".join(f"<{n:06}>" for n in range(130_000))
"""More text than two edits look through on the event loop."""


async def test_a_line_ends_where_editors_end_it_and_nowhere_else(place):
    lines = ["page one\fpage two\u2028still two\x85\x1c\x0b\r\n", "second\n", "third"]
    (place / "a.txt").write_bytes("".join(lines).encode())
    bridge = bridge_of(Workspace(place))
    for number, line in enumerate(lines, 1):
        found = await bridge("fs_read", {"path": "a.txt", "start_line": number, "end_line": number})
        assert found["content"] == line
    assert (await bridge("fs_read", {"path": "a.txt", "start_line": 2}))["content"] == "second\nthird"
    assert (await bridge("fs_read", {"path": "a.txt", "start_line": 4}))["content"] == ""


def edits(*numbers):
    return [{"old_text": f"<{n:06}>", "new_text": f"[{n}]"} for n in numbers]


async def test_a_long_text_is_edited_beside_the_event_loop(place):
    bridge = bridge_of(Workspace(place))
    (place / "long.txt").write_text(LONG)
    editing = asyncio.ensure_future(bridge("fs_write", {"path": "long.txt", "mode": "edit", "edits": edits(7, 129_999)}))
    await asyncio.sleep(0)
    assert not editing.done()
    await editing
    assert (place / "long.txt").read_text() == LONG.replace("<000007>", "[7]").replace("<129999>", "[129999]")


async def test_files_are_listed_beside_the_event_loop(place):
    listing = asyncio.ensure_future(bridge_of(Workspace(place))("fs_list", {}))
    (place / "a.txt").write_text("x")
    await asyncio.sleep(0)
    assert not listing.done()
    assert await listing == [{"path": "a.txt", "size": 1}]


async def test_a_text_that_is_changed_while_it_is_edited_is_not_written_over(place):
    bridge = bridge_of(Workspace(place))
    (place / "long.txt").write_text(LONG)
    editing = asyncio.ensure_future(bridge("fs_write", {"path": "long.txt", "mode": "edit", "edits": edits(7, 8)}))
    await asyncio.sleep(0)
    await bridge("fs_write", {"path": "long.txt", "content": "new"})
    with pytest.raises(BridgeRefused, match=r"INVALID_STATE: 'long\.txt' was changed while it was edited"):
        await editing
    assert (place / "long.txt").read_text() == "new"


async def test_a_text_that_is_protected_while_it_is_edited_is_not_written(place):
    workspace = Workspace(place)
    (place / "long.txt").write_text(LONG)
    edit = {"path": "long.txt", "mode": "edit", "edits": edits(7, 8)}
    editing = asyncio.ensure_future(bridge_of(workspace)("fs_write", edit))
    await asyncio.sleep(0)
    workspace.authority.protect("long.txt", "read_only")
    with pytest.raises(BridgeRefused, match="PROTECTION_DENIED"):
        await editing
    assert (place / "long.txt").read_text() == LONG


@contextlib.contextmanager
def locked_by_another(folder):
    """Somebody else is the only writer of the folder, until what is yielded is set: whether it was, in time, is in the list."""
    locked, let_go, was_let_go = threading.Event(), threading.Event(), []

    def hold():
        fd = os.open(folder, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        locked.set()
        was_let_go.append(let_go.wait(30))
        os.close(fd)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(30)
    try:
        yield let_go, was_let_go
    finally:
        let_go.set()
        holder.join()


WRITES = [
    ("fs_write", {"path": "a.txt", "content": "new"}), ("fs_write", {"path": "a.txt", "mode": "append", "content": "new"}),
    ("fs_write", {"path": "a.txt", "mode": "edit", "edits": [{"old_text": "old", "new_text": "new"}]}),
    ("sys_set_meta", {"key": "k", "value": 2}), ("sys_set_meta", {"key": "k", "delta": 1}), ("sys_delete_meta", {"key": "k"}),
    ("authorize_file", {"path": "lib/start.py"}),
]  # fmt: skip


def all_that_is_there(place):
    return {path: path.read_bytes() for path in place.parent.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("method", "argument"), WRITES)
@pytest.mark.parametrize("given_up", [False, True])
async def test_who_waits_for_another_writer_holds_up_nobody_and_writes_nothing_once_it_has_ended(
    place, method, argument, given_up
):  # fmt: skip
    (place / "a.txt").write_text("old")
    (place / "lib" / "start.py").write_text("def main(a):\n    return 1\n")
    workspace = Workspace(place)
    workspace.change_meta(lambda values: values.update(k=1))
    bridge, before = replace(bridge_of(workspace), authorized=True), all_that_is_there(place)
    with locked_by_another(place.parent if method == "authorize_file" else place) as (let_go, was_let_go):
        writing = asyncio.ensure_future(bridge(method, argument))
        for _ in range(10):
            assert (await bridge("fs_read", {"path": "a.txt"}))["content"] == "old"
            await asyncio.sleep(0)
        assert not writing.done() and all_that_is_there(place) == before
        if given_up:
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
        let_go.set()
        if not given_up:
            await writing
    assert was_let_go == [True]
    assert (all_that_is_there(place) == before) is given_up


async def test_edits_stop_when_nobody_waits_for_them(place):
    begun, go_on, looked_at = threading.Event(), threading.Event(), []

    class Edit(dict):
        def keys(self):
            looked_at.append(self)
            begun.set()
            assert go_on.wait(30)
            return super().keys()

    (place / "long.txt").write_text(LONG)
    given = [Edit(edit) for edit in edits(7, 8)]
    edit = {"path": "long.txt", "mode": "edit", "edits": given}
    editing = asyncio.ensure_future(bridge_of(Workspace(place))("fs_write", edit))
    assert await asyncio.to_thread(begun.wait, 30)
    editing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await editing
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "beforehand:_edited":
            thread.join()
    assert looked_at == [given[0]]
    assert (place / "long.txt").read_text() == LONG


REFUSALS = {
    "fs_read": [
        ({"path": "../x"}, "INVALID_INPUT"),
        ({"path": "none"}, "NOT_FOUND"),
        ({}, "INVALID_INPUT"),
        ({"path": 3}, "INVALID_INPUT"),
        ({"path": "a.txt", "start_line": 0}, "INVALID_INPUT"),
        ({"path": "a.txt", "line": 1}, "INVALID_INPUT"),
        ({"path": "b.bin"}, "INVALID_INPUT"),
    ],
    "fs_write": [
        ({"path": "/x", "content": ""}, "INVALID_INPUT"),
        ({"path": "a.txt", "mode": "edit", "edits": [{"old_text": "t", "new_text": "u"}]}, "INVALID_INPUT"),
        ({"path": "a.txt", "mode": "more"}, "INVALID_INPUT"),
        ({"path": "b.bin", "mode": "append", "content": "x"}, "INVALID_INPUT"),
        ({"path": "b.bin", "mode": "edit", "edits": [{"old_text": "t", "new_text": "u"}]}, "INVALID_INPUT"),
        ({"path": "lib", "content": "x"}, "WRITE_ERROR"),
        ({"path": "lib/start.py", "content": "x"}, "PROTECTION_DENIED"),
        ({"path": "new.ts", "content": "x"}, "PROTECTION_DENIED"),
        ({"path": "alias.txt", "content": "x"}, "PROTECTION_DENIED"),
    ],
    "fs_delete": [({"path": "none"}, "NOT_FOUND"), ({"path": "lib/start.py"}, "PROTECTION_DENIED")],
    "sys_lambda": [
        ({"source": "lib/none.py"}, "NOT_FOUND"),
        ({"source": "lib/start.py:none"}, "NOT_FOUND"),
        ({"source": "a.txt"}, "INVALID_INPUT"),
        ({"source": "../x.py"}, "INVALID_INPUT"),
    ],
    "sys_set_meta": [
        ({"key": "k"}, "INVALID_INPUT"),
        ({"key": "k", "value": 1, "delta": 1}, "INVALID_INPUT"),
        ({"key": "text", "delta": 1}, "INVALID_INPUT"),
        ({"key": "k", "value": "x" * 1_100_000}, "INVALID_INPUT"),
        ({"key": "huge", "delta": 1e308}, "INVALID_INPUT"),
        ({"key": "huge", "delta": float("nan")}, "INVALID_INPUT"),
        ({"key": "huge", "delta": 10**400}, "INVALID_INPUT"),
        ({"key": "k", "value": float("inf")}, "INVALID_INPUT"),
        ({"key": "k", "value": {"a": [1, float("nan")]}}, "INVALID_INPUT"),
    ],
    "sys_get_config": [({"section": "none"}, "NOT_FOUND")],
    "emit_event": [({"event_type": "custom.x"}, "DISABLED"), ({"event_type": "turn_end"}, "INVALID_INPUT")],
    "model_invoke": [({"prompt": "Hi"}, "DISABLED"), ({"temperature": 1, "made_up": 1}, "INVALID_INPUT")],
    "loop_inject": [({"content": "Hi"}, "DISABLED"), ({}, "INVALID_INPUT")],
    "task_resolve": [({"task_id": "t", "action": "approve"}, "REQUIRES_AUTHORIZED_CODE")],
    "authorize_file": [({"path": "lib/start.py"}, "REQUIRES_AUTHORIZED_CODE")],
    "say": [({}, "EXCLUDED_TOOL")],
    "loop_clear": [({"_authorized": True}, "EXCLUDED_TOOL")],
    "made_up": [({}, "NOT_FOUND")],
}


@pytest.mark.parametrize(("method", "argument", "code"), [(m, a, c) for m, cases in REFUSALS.items() for a, c in cases])
async def test_what_the_bridge_refuses_has_a_code(place, method, argument, code):
    (place / "lib" / "start.py").write_text("def main(a):\n    return 1")
    (place / "a.txt").write_text("text")
    (place / "b.bin").write_bytes(b"\xff\xfe")
    (place / "alias.txt").symlink_to("lib/start.py")
    workspace = Workspace(place)
    await bridge_of(workspace)("sys_set_meta", {"key": "text", "value": "t"})
    await bridge_of(workspace)("sys_set_meta", {"key": "huge", "value": 1e308})
    with pytest.raises(BridgeRefused) as caught:
        await bridge_of(workspace)(method, argument)
    assert caught.value.code == code
    assert workspace.get_meta() == {"text": "t", "huge": 1e308}
    assert (place / "b.bin").read_bytes() == b"\xff\xfe"
    assert (place / "lib" / "start.py").read_text() == "def main(a):\n    return 1"


async def test_no_lambda_adds_to_what_is_no_text(place):
    (place / "b.bin").write_bytes(b"\xff\xfe")
    (place / "lib" / "start.py").write_text("async def main(a):\n    await adf.fs_write(path='b.bin', mode='append', content='')")
    with pytest.raises(LambdaRaised, match=r"INVALID_INPUT: 'b.bin' is no text in UTF-8"):
        await start(Workspace(place))


@pytest.mark.parametrize("argument", [None, [], "text", 1])
async def test_a_method_takes_one_object(place, argument):
    with pytest.raises(BridgeRefused, match="takes one object"):
        await bridge_of(Workspace(place))("fs_list", argument)


async def test_files_that_hold_lambdas_can_be_written_where_the_owner_says_so(place):
    await bridge_of(Workspace(place, code_writable=True))("fs_write", {"path": "lib/new.py", "content": "x = 1"})
    assert (place / "lib" / "new.py").read_text() == "x = 1"


@pytest.mark.parametrize("path", ["lib/start.py", "lib/start.PY", "lib/new.Ts", "lib/new.jS"])
async def test_no_lambda_writes_what_could_run_in_whatever_case_its_name_is(place, path):
    """Where a file system does not tell them apart `start.PY` is `start.py`."""
    with pytest.raises(BridgeRefused) as caught:
        await bridge_of(Workspace(place))("fs_write", {"path": path, "content": "x = 1"})
    assert caught.value.code == "PROTECTION_DENIED"


async def test_values_are_kept_from_one_call_to_the_next(place):
    (place / "lib" / "start.py").write_text("""
async def main(a):
    await adf.sys_set_meta(key="seen", value=["x"])
    await adf.sys_set_meta(key="count", delta=2)
    await adf.sys_set_meta(key="gone", value=1)
    return await adf.sys_delete_meta(key="gone")
""")
    assert (await start(Workspace(place))).value is True
    assert await bridge_of(Workspace(place))("sys_get_meta", {}) == {"seen": ["x"], "count": 2}
    assert await bridge_of(Workspace(place))("sys_get_meta", {"key": "count"}) == 2
    assert await bridge_of(Workspace(place))("sys_get_meta", {"key": "none"}) is None


async def test_the_configuration_can_be_read_whole_or_in_part(place):
    workspace = Workspace(place, config={"limits": {"execution_timeout_ms": 5000}})
    assert await bridge_of(workspace)("sys_get_config", {}) == {"limits": {"execution_timeout_ms": 5000}}
    assert await bridge_of(workspace)("sys_get_config", {"section": "limits"}) == {"execution_timeout_ms": 5000}


async def test_events_reach_who_takes_them(place):
    taken = []
    workspace = Workspace(place, on_event=lambda name, payload: taken.append((name, payload)))
    await bridge_of(workspace)("emit_event", {"event_type": "custom.seen", "payload": {"n": 1}})
    assert taken == [("custom.seen", {"n": 1})]


# --- lambdas that call lambdas ---


async def test_a_lambda_calls_one_of_another_language_which_may_write_to_the_console(place):
    (place / "lib" / "start.py").write_text("""
async def main(a):
    found = await adf.sys_lambda(source="lib/rank.ts:best", args={"trains": [3, 1, 2]})
    return found["best"]
""")
    (place / "lib" / "rank.ts").write_text(
        "export function best({trains}) { console.log('ranking'); return {best: Math.min(...trains)} }"
    )
    outcome = await start(Workspace(place))
    assert outcome.value == 1
    assert outcome.console == "ranking\n"


async def test_two_calls_of_one_lambda_side_by_side_are_no_cycle(place):
    (place / "lib" / "start.py").write_text("""
import asyncio
async def main(a):
    return await asyncio.gather(*[adf.sys_lambda(source="lib/twice.py", args={"n": n}) for n in (1, 2)])
""")
    (place / "lib" / "twice.py").write_text("def main(a):\n    return a['n'] * 2")
    assert (await start(Workspace(place))).value == [2, 4]


@pytest.mark.parametrize("name", ["lib/start.py", "./lib/start.py", "lib//start.py:main", "lib/alias.py"])
async def test_a_lambda_that_calls_itself_is_refused_under_whatever_name(place, name):
    (place / "lib" / "start.py").write_text(f"async def main(a):\n    return await adf.sys_lambda(source={name!r})")
    (place / "lib" / "alias.py").symlink_to("start.py")
    with pytest.raises(LambdaRaised, match=r"CIRCULAR_CALL: .*lib/start\.py:main -> lib/start.py:main"):
        await start(Workspace(place))


async def test_a_ring_of_lambdas_is_refused(place):
    (place / "lib" / "start.py").write_text("async def main(a):\n    return await adf.sys_lambda(source='lib/b.ts')")
    (place / "lib" / "b.ts").write_text("export const main = () => adf.sys_lambda({source: 'lib/start.py'})")
    with pytest.raises(LambdaRaised, match="CIRCULAR_CALL"):
        await start(Workspace(place))


async def test_lambdas_call_lambdas_only_so_deep(place):
    (place / "lib" / "start.py").write_text(
        "async def main(a):\n    return await adf.sys_lambda(source='lib/start.py:f1')\n"
        + "\n".join(f"async def f{n}(a):\n    return await adf.sys_lambda(source='lib/start.py:f{n + 1}')" for n in range(1, 12))
    )
    with pytest.raises(LambdaRaised, match="LIMIT: lambdas call lambdas at most 8 deep"):
        await start(Workspace(place))


async def test_a_failing_inner_lambda_fails_the_outer_that_does_not_catch(place):
    (place / "lib" / "start.py").write_text("async def main(a):\n    return await adf.sys_lambda(source='lib/b.py')")
    (place / "lib" / "b.py").write_text("def main(a):\n    raise ValueError('index gone')")
    with pytest.raises(LambdaRaised, match=r"lib/start.py:2: .*FN_ERROR: lib/b.py:2: raised ValueError: index gone"):
        await start(Workspace(place))


async def test_an_inner_lambda_has_only_the_time_that_is_left(place):
    (place / "lib" / "start.py").write_text(
        "async def main(a):\n    try:\n        await adf.sys_lambda(source='lib/b.py')\n    except Exception:\n        pass\n"
        "    while True:\n        pass"
    )
    (place / "lib" / "b.py").write_text("def main(a):\n    while True:\n        pass")
    with pytest.raises(LambdaTimedOut):
        await start(Workspace(place), limits=SandboxLimits(wall_time=0.7))


async def test_lambdas_calling_lambdas_can_be_switched_off(place):
    (place / "lib" / "b.py").write_text("def main(a):\n    return 1")
    with pytest.raises(BridgeRefused, match="DISABLED"):
        await bridge_of(Workspace(place, gates=Gates.of(CodeExecution(sys_lambda=False))))("sys_lambda", {"source": "lib/b.py"})
