"""One function, one argument, one result: the same in every language."""

import asyncio

import pytest
from sandbox.sandboxed import run

from beforehand.sandbox import (
    BridgeRefused,
    LambdaMissing,
    LambdaOutOfMemory,
    LambdaRaised,
    LambdaResultTooLarge,
    LambdaTimedOut,
    LambdaTooManyCalls,
    SandboxLimits,
)

both = pytest.mark.parametrize("language", ["py", "ts"])


def written(language: str, py: str, ts: str) -> str:
    return py if language == "py" else ts


@pytest.mark.parametrize("language", ["py", "ts", "js"])
async def test_a_function_gets_the_argument_and_gives_the_result(language):
    source = written(language, "def main(a):\n    return {'got': a}", "export function main(a) { return {got: a} }")
    value = {"text": "ä 😀 \u2028", "list": [1, 2.5, None, True], "nested": {"": []}}
    assert (await run(source, value, language=language)).value == {"got": value}


@both
async def test_an_async_function_is_awaited(language):
    source = written(language, "async def main(a):\n    return 1", "export async function main(a) { return 1 }")
    assert (await run(source, language=language)).value == 1


@both
async def test_nothing_returned_is_none(language):
    source = written(language, "def main(a):\n    pass", "export function main(a) {}")
    assert (await run(source, language=language)).value is None


@both
async def test_any_top_level_function_can_be_called(language):
    source = written(
        language, "def gate(a):\n    return 'gate'\ndef other(a):\n    return 1", "function gate(a) { return 'gate' }"
    )
    assert (await run(source, language=language, function="gate")).value == "gate"


@both
async def test_console_text_is_kept_apart_from_the_result(language):
    source = written(
        language,
        "def main(a):\n    print('{\"type\":', a)\n    return [1]",
        "export function main(a) { console.log('{\"type\":', a); return [1] }",
    )
    outcome = await run(source, 5, language=language)
    assert outcome.value == [1]
    assert outcome.console == '{"type": 5\n'


@both
async def test_console_text_over_its_limit_is_cut_and_counted(language):
    source = written(
        language,
        "def main(a):\n    print('x' * 99)\n    return 1",
        "export function main(a) { console.log('x'.repeat(99)); return 1 }",
    )
    outcome = await run(source, language=language, limits=SandboxLimits(wall_time=60, console=10))
    assert outcome.value == 1
    assert outcome.console.startswith("x" * 10 + "\n[")


@both
async def test_a_bridge_call_reaches_the_host_and_its_answer_the_lambda(language):
    async def bridge(method, argument):
        return {"method": method, "argument": argument}

    source = written(
        language,
        "async def main(a):\n    return await adf.fs_read({'path': a})",
        "export const main = async (a) => await adf.fs_read({path: a})",
    )
    assert (await run(source, "p", language=language, bridge=bridge)).value == {"method": "fs_read", "argument": {"path": "p"}}


@both
async def test_two_bridge_calls_run_side_by_side(language):
    both_here, waiting = asyncio.Event(), []

    async def bridge(method, argument):
        waiting.append(argument["n"])
        if len(waiting) == 2:
            both_here.set()
        await both_here.wait()
        return argument["n"]

    source = written(
        language,
        "import asyncio\nasync def main(a):\n    return await asyncio.gather(adf.fs_read(n=1), adf.fs_read(n=2))",
        "export const main = (a) => Promise.all([adf.fs_read({n: 1}), adf.fs_read({n: 2})])",
    )
    assert (await run(source, language=language, bridge=bridge)).value == [1, 2]


@both
async def test_a_refused_bridge_call_can_be_caught(language):
    source = written(
        language,
        "async def main(a):\n    try:\n        await adf.fs_read(path='x')\n    except Exception as e:\n        return str(e)",
        "export async function main() { try { await adf.fs_read({path: 'x'}) } catch (e) { return e.message } }",
    )
    assert (await run(source, language=language)).value == "NOT_FOUND: adf.fs_read does not exist here"


@both
async def test_a_refused_bridge_call_that_is_not_caught_ends_the_lambda_with_its_line(language):
    async def bridge(method, argument):
        raise BridgeRefused("DISABLED", "not today")

    source = written(
        language,
        "async def main(a):\n\n    await adf.fs_read(path='x')",
        "export async function main() {\n\n  await adf.fs_read({path: 'x'})\n}",
    )
    with pytest.raises(LambdaRaised, match=r"lib/x\.(py|ts|js):3: raised .*DISABLED: not today"):
        await run(source, language=language, bridge=bridge)


@both
async def test_an_exception_is_one_line_with_file_and_line(language):
    source = written(
        language,
        "def check(a):\n    raise ValueError('no\\nsuch train')\n\ndef main(a):\n    return check(a)",
        "// a comment\nexport function main(a) { throw new TypeError('no\\nsuch train') }",
    )
    with pytest.raises(LambdaRaised) as caught:
        await run(source, language=language)
    assert str(caught.value) == f"lib/x.{language}:2: raised {written(language, 'Value', 'Type')}Error: no such train"
    assert (caught.value.path, caught.value.line) == (f"lib/x.{language}", 2)


@both
async def test_what_was_written_before_a_failure_is_kept(language):
    source = written(
        language,
        "def main(a):\n    print('before')\n    return 1 / 0",
        "export function main() { console.log('before'); throw 1 }",
    )
    with pytest.raises(LambdaRaised) as caught:
        await run(source, language=language)
    assert caught.value.console == "before\n"


@both
async def test_a_missing_function_is_named(language):
    source = written(language, "def other(a):\n    return 1", "export function other() {}")
    with pytest.raises(LambdaMissing, match=r"lib/x\.\w+:main: has no function 'main'"):
        await run(source, language=language)


@both
async def test_what_is_no_function_is_not_called(language):
    with pytest.raises(LambdaMissing, match="main"):
        await run(written(language, "main = 3", "export const main = 3"), language=language)


@both
async def test_a_file_that_is_no_program_is_told_with_its_line(language):
    source = written(language, "x = 1\ndef main(a:\n    return", "const x = 1;\nexport function main( { return")
    with pytest.raises(LambdaRaised, match=r"lib/x\.\w+:[23]: is no"):
        await run(source, language=language)


@both
@pytest.mark.parametrize("kind", ["not a number", "no JSON type"])
async def test_a_result_that_is_no_json_is_refused(language, kind):
    if language != "py" and kind == "not a number":
        source = "export function main() { return 1n }"  # JSON.stringify makes null of NaN
    else:
        source = written(
            language,
            f"def main(a):\n    return {'float(chr(110)+chr(97)+chr(110))' if kind == 'not a number' else '{1, 2}'}",
            "export function main() { return () => 1 }",
        )
    with pytest.raises(LambdaRaised, match="returned what JSON cannot hold"):
        await run(source, language=language)


@both
async def test_an_endless_loop_ends_at_the_wall_time(language):
    source = written(language, "def main(a):\n    while True:\n        pass", "export function main() { while (true); }")
    with pytest.raises(LambdaTimedOut, match=r"gave no answer within 0.5 s"):
        await run(source, language=language, limits=SandboxLimits(wall_time=0.5))


@both
async def test_the_wall_time_includes_waiting_for_the_bridge_whose_call_is_cancelled(language):
    cancelled = asyncio.Event()

    async def bridge(method, argument):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    source = written(language, "async def main(a):\n    await adf.fs_read({})", "export const main = () => adf.fs_read({})")
    with pytest.raises(LambdaTimedOut):
        await run(source, language=language, bridge=bridge, limits=SandboxLimits(wall_time=1.5))
    await asyncio.wait_for(cancelled.wait(), 10)


@both
async def test_a_giant_result_is_refused(language):
    source = written(language, "def main(a):\n    return 'x' * 200_000", "export function main() { return 'x'.repeat(200_000) }")
    with pytest.raises(LambdaResultTooLarge, match=r"returned 200,002 bytes of JSON, more than 100,000"):
        await run(source, language=language, limits=SandboxLimits(wall_time=60, output=100_000))


@both
async def test_a_result_is_measured_in_bytes(language):
    source = written(language, "def main(a):\n    return '€' * 50_000", "export function main() { return '€'.repeat(50_000) }")
    with pytest.raises(LambdaResultTooLarge, match=r"returned 150,002 bytes of JSON, more than 100,000"):
        await run(source, language=language, limits=SandboxLimits(wall_time=60, output=100_000))


@both
async def test_a_giant_bridge_argument_is_refused_and_never_delivered(language):
    delivered = []

    async def bridge(method, argument):
        delivered.append(argument)

    source = written(
        language,
        "async def main(a):\n    try:\n        await adf.fs_read({'path': 'x' * 200_000})\n"
        "    except Exception:\n        pass\n    return 1",
        "export async function main() { try { await adf.fs_read({path: 'x'.repeat(200_000)}) } catch {} return 1 }",
    )
    with pytest.raises(LambdaResultTooLarge, match="handed the bridge"):
        await run(source, language=language, bridge=bridge, limits=SandboxLimits(wall_time=60, output=100_000))
    assert delivered == []


@both
async def test_bridge_calls_are_counted_and_too_many_end_the_lambda_even_if_it_catches(language):
    made = []

    async def bridge(method, argument):
        made.append(method)

    source = written(
        language,
        "async def main(a):\n    for i in range(20):\n        try:\n            await adf.fs_read({})\n"
        "        except Exception:\n            pass\n    return 1",
        "export async function main() { for (let i = 0; i < 20; i++) try { await adf.fs_read({}) } catch {} return 1 }",
    )
    with pytest.raises(LambdaTooManyCalls, match="more than 5 bridge calls"):
        await run(source, language=language, bridge=bridge, limits=SandboxLimits(wall_time=60, suspensions=5))
    assert made == ["fs_read"] * 5


@both
async def test_endless_recursion_ends(language):
    source = written(language, "def main(a):\n    return main(a)", "export function main(a) { return main(a) }")
    with pytest.raises(LambdaOutOfMemory, match="too deeply"):
        await run(source, language=language)


@both
async def test_a_result_that_is_nested_without_end_is_refused(language):
    source = written(
        language,
        "def main(a):\n    x = []\n    for i in range(100_000):\n        x = [x]\n    return x",
        "export function main() { let x = []; for (let i = 0; i < 100_000; i++) x = [x]; return x }",
    )
    with pytest.raises(LambdaOutOfMemory, match="too deeply"):
        await run(source, language=language)
