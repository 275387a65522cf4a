"""What a lambda hands over is measured before anything large is made of it."""

import json

import msgspec
import pytest
from sandbox.sandboxed import run

from beforehand.sandbox import BridgeRefused, LambdaRaised, LambdaResultTooLarge
from beforehand.sandbox.values import DEEPEST, MAX_HANDED, MAX_NESTED, MAX_VALUES, decode_handed, decode_json, least_size

both = pytest.mark.parametrize("language", ["py", "ts"])


def doubled(times):
    """One list that holds one list twice, which holds one list twice, and so on: few objects, and 2**times texts."""
    value = ["x" * 1000]
    for _ in range(times):
        value = [value, value]
    return value


def deep(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("value", [
    None, True, 7, -2**70, 1.5, "text", "", [], {}, [1, [2, "three", {"four": [None, False, 1e300]}]], {"a": {"b": ["c"] * 9}},
    [[1, 2]] * 5, b"bytes", (1, {"x": (2,)}),
])  # fmt: skip
def test_the_least_size_is_never_more_than_the_text_has(value):
    assert least_size(value, 10_000) <= len(msgspec.json.encode(value)) + 2


def test_a_text_is_counted_as_often_as_it_would_be_written():
    assert least_size(["x" * 100] * 50, 10_000) >= 50 * 100
    assert least_size([["x" * 100] * 5] * 10, 10_000) >= 50 * 100
    assert least_size({"x" * 100: 1}, 10_000) >= 100


def test_a_small_value_that_would_be_a_giant_text_is_told_without_making_it():
    most = 4 * 2**20
    assert least_size(doubled(14), most) > most
    assert least_size([["x" * 1000] * 1000] * 1000, most) > most
    assert least_size([10**4000] * 3000, most) > most


def test_more_lists_than_one_text_may_have_and_a_ring_are_errors():
    with pytest.raises(ValueError, match="more than 50,000 lists, objects and fields"):
        least_size(doubled(60), 2**80)
    with pytest.raises(ValueError, match="more than 50,000 lists, objects and fields"):
        least_size([{"a": 1, "b": 2, "c": 3}] * 13_000, 2**80)
    ring = []
    ring.append(ring)
    for value in (ring, deep(DEEPEST + 1)):
        with pytest.raises(RecursionError, match=f"more than {DEEPEST} deep"):
            least_size(value, 10**9)
    assert least_size(deep(DEEPEST - 1), 10**9)


def test_a_text_has_at_most_so_many_lists_and_objects():
    most = b"[" + b"[]," * (MAX_NESTED - 2) + b"{}]"
    assert len(decode_json(most)) == MAX_NESTED - 1
    with pytest.raises(msgspec.DecodeError, match="250,001 lists and objects, more than 250,000"):
        decode_json(most[:-1] + b",[]]")


HANDED = {
    "lists": "[" + "[]," * (MAX_HANDED - 2) + "[]]",
    "objects": "[" + "{}," * (MAX_HANDED - 2) + "{}]",
    "fields": "{" + ",".join(f'"{n}":0' for n in range(MAX_HANDED - 1)) + "}",
    "values": "[" + "1," * (MAX_VALUES - 1) + "1]",
}


@pytest.mark.parametrize("of", HANDED)
def test_a_bridge_call_hands_over_so_much_and_no_more(of):
    most = HANDED[of].encode()
    assert decode_handed(most) == json.loads(most)
    more = most[:-1] + (b',"one more":0}' if of == "fields" else b",{}]")
    with pytest.raises(msgspec.DecodeError, match="250,001 values, more" if of == "values" else "50,001 lists, objects"):
        decode_handed(more)


def test_what_a_bridge_call_hands_over_in_texts_is_text():
    value = {"code": "[{:,\"" * MAX_VALUES}
    assert decode_handed(json.dumps(value).encode()) == value


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_bridge_call_hands_over_nothing_too_deep(opening):
    def deep_text(levels):
        return (opening * (levels - 1) + "[" + "]" + ("]" if opening == "[" else "}") * (levels - 1)).encode()

    assert decode_handed(deep_text(DEEPEST)) == json.loads(deep_text(DEEPEST))
    with pytest.raises(RecursionError, match=f"more than {DEEPEST} deep"):
        decode_handed(deep_text(DEEPEST + 1))


def test_brackets_in_texts_are_no_lists():
    value = {"code": "[" * MAX_NESTED + '\\"{' * 10, "\\": '"[' * MAX_NESTED, "end\\": "{" * MAX_NESTED}
    assert decode_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", [rb'"\ud83d"', rb'"a\ud83d b"', rb'{"a": ["\uDE00x"]}'])
def test_half_a_character_is_named(text):
    with pytest.raises(msgspec.DecodeError, match="half of a surrogate pair"):
        decode_json(text)


def test_other_text_that_is_no_json_is_told_as_before():
    assert decode_json(rb'"\\ud83d \u00e9"') == "\\ud83d é"
    with pytest.raises(msgspec.DecodeError, match="truncated"):
        decode_json(b'{"a": "')


# --- with a sandbox ------------------------------------------------------------------------------


async def test_a_value_that_holds_itself_many_times_never_reaches_the_bridge():
    given = []

    async def bridge(method, argument):
        given.append(argument)

    source = """
async def main(a):
    value = ['x' * 1000]
    for i in range({times}):
        value = [value, value]
    return await adf.fs_write(path='x', content=value)
"""
    with pytest.raises(LambdaResultTooLarge, match=r"handed the bridge at least .* more than 4,194,304"):
        await run(source.format(times=14), bridge=bridge)
    with pytest.raises(LambdaRaised, match=r"INVALID_INPUT: .* more than 50,000 lists, objects and fields"):
        await run(source.format(times=60), bridge=bridge)
    assert given == []


@both
async def test_more_than_a_bridge_call_may_hand_over_is_refused_and_a_result_may_hold_it(language):
    source = """
async def main(a):
    values = [{} for i in range(60_000)]
    try:
        await adf.fs_write(values=values)
    except Exception as error:
        return [str(error), values]
""" if language == "py" else """
export async function main() {
    const values = Array.from({length: 60_000}, () => ({}))
    try { await adf.fs_write({values}) } catch (error) { return [error.message, values] }
}
"""  # fmt: skip
    told, values = (await run(source, language=language)).value
    assert told.startswith("INVALID_INPUT: adf.fs_write was given what JSON cannot hold")
    assert "lists, objects and fields of objects" in told and "50,000" in told
    assert len(values) == 60_000


@both
async def test_a_value_that_is_too_deep_is_refused_whole(language):
    source = """
async def main(a):
    value = []
    for i in range(2000):
        value = [value]
    try:
        await adf.fs_write(value=value)
    except Exception as error:
        return str(error)
""" if language == "py" else """
export async function main() {
    let value = []
    for (let i = 0; i < 2000; i++) value = [value]
    try { await adf.fs_write({value}) } catch (error) { return error.message }
}
"""  # fmt: skip
    assert (await run(source, language=language)).value.startswith("INVALID_INPUT: adf.fs_write was given what JSON cannot hold")


async def test_half_a_character_in_a_script_is_told_to_it_and_ends_nothing():
    source = """
export async function main() {
    const half = "a😀".slice(0, 2)
    try { await adf.fs_write({content: half}) } catch (error) { return error.message }
}
"""
    told = (await run(source, language="ts")).value
    assert told.startswith("INVALID_INPUT: adf.fs_write was given what JSON cannot hold: a text that seems to end inside")
    with pytest.raises(LambdaRaised, match="returned what JSON cannot hold: a text that seems to end inside a character"):
        await run("export const main = () => '😀'.slice(0, 1)", language="ts")


async def test_an_exception_whose_text_is_cut_inside_a_character_keeps_its_line():
    with pytest.raises(LambdaRaised, match=r"lib/x\.ts:2: raised Error: aaa") as failed:
        await run("export const main = () => {\n  throw new Error('a'.repeat(1999) + '😀') }", language="ts")
    assert failed.value.line == 2


@both
async def test_an_answer_that_json_cannot_hold_is_a_refusal_and_not_the_end_of_waiting(language):
    answers = iter([object(), {"name": "\udcff"}])

    async def bridge(method, argument):
        return next(answers)

    source = """
async def ask():
    try:
        return await adf.fs_list()
    except Exception as error:
        return str(error)
async def main(a):
    return [await ask(), await ask()]
""" if language == "py" else """
const ask = () => adf.fs_list().catch((error) => error.message)
export const main = async () => [await ask(), await ask()]
"""  # fmt: skip
    for told in (await run(source, language=language, bridge=bridge)).value:
        assert told.startswith("INTERNAL_ERROR: the answer is none that JSON can hold")


@both
async def test_a_refusal_with_half_a_character_in_it_arrives(language):
    async def bridge(method, argument):
        raise BridgeRefused("NOT_FOUND", "there is no \udcff.txt")

    source = "async def main(a):\n    await adf.fs_list()" if language == "py" else "export const main = () => adf.fs_list()"
    with pytest.raises(LambdaRaised, match=r"NOT_FOUND: there is no \\udcff\.txt"):
        await run(source, language=language, bridge=bridge)
