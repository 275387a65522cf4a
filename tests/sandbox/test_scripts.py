"""TypeScript and JavaScript: how functions are found, and what an import may name."""

import re

import pytest
from sandbox.sandboxed import run, spare_after_a_call

from beforehand.sandbox import LambdaMissing, LambdaRaised, LambdaUnsupported

WAYS = {
    "exported": "export function main() { return 1 }",
    "not exported": "function main() { return 1 }",
    "an arrow": "export const main = async () => 1",
    "the default": "export default function main() { return 1 }",
    "under another name": "const inner = () => 1; export { inner as main }",
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_function_is_found_however_it_is_written(way):
    assert (await run(WAYS[way], language="ts")).value == 1


@pytest.mark.parametrize("written", ["export default function (a) { return a.n }", "export default async ({ n }) => n"])
async def test_a_default_export_is_called_default(written):
    assert (await run(written, {"n": 1}, language="ts", function="default")).value == 1


async def test_a_file_without_a_default_export_is_told_so():
    with pytest.raises(LambdaMissing, match=r"lib/x\.ts:default: has no function 'default'"):
        await run(WAYS["exported"], language="ts", function="default")


async def test_types_are_taken_away_and_lines_stay():
    source = "interface Train { number: number }\nenum Seat { first, tourist }\n"
    source += "export function main(t: Train): Seat { return Seat.tourist as Seat }"
    assert (await run(source, {"number": 1}, language="ts")).value == 1


STARTS = {
    "a comment": ("// What this is for.\n", 2),
    "a pragma": ("/* @jsxImportSource preact */\n", 2),
    "a hashbang": ("#!/usr/bin/env deno\n", 2),
    "a byte order mark": ("\ufeff", 1),
    "a directive": ("'use strict'; ", 1),
}


@pytest.mark.parametrize("language", ["ts", "js"])
@pytest.mark.parametrize("start", STARTS)
async def test_a_file_may_begin_with_anything_and_its_lines_are_counted_right(start, language):
    text, line = STARTS[start]
    with pytest.raises(LambdaRaised, match="raised Error: here") as caught:
        await run(text + "export function main() { throw new Error('here') }", language=language)
    assert caught.value.line == line


@pytest.mark.parametrize("worker", ["a spare", "a new one"])
async def test_an_argument_larger_than_every_buffer_arrives_whole(worker):
    if worker == "a spare":
        await spare_after_a_call("ts")
    found = await run("export function main(a) { return [a.length, a.at(-1)] }", "é" * 400_000 + "!", language="ts")
    assert found.value == [400_001, "!"]


IMPORTS = {
    "a sibling": "./rank.ts",
    "a package": "lodash",
    "npm": "npm:lodash",
    "jsr": "jsr:@std/path",
    "a URL": "https://example.com/x.ts",
}


@pytest.mark.parametrize("what", IMPORTS)
@pytest.mark.parametrize("when", ["at the top", "late"])
async def test_an_import_that_leads_anywhere_is_refused_with_a_way_out(what, when):
    at_top = f"import x from '{IMPORTS[what]}'\nexport function main() {{ return x }}"
    source = at_top if when == "at the top" else f"export async function main() {{ return await import('{IMPORTS[what]}') }}"
    with pytest.raises(LambdaUnsupported, match=r"lambdas import node: modules and nothing else; .* adf\.sys_lambda"):
        await run(source, language="ts")


async def test_modules_that_come_with_the_engine_can_be_imported():
    source = "import { createHash } from 'node:crypto'\n"
    source += "export const main = (a) => createHash('sha256').update(a).digest('hex').slice(0, 8)"
    assert (await run(source, "x", language="ts")).value == "2d711642"


async def test_objects_on_the_console_are_readable():
    source = "export function main() { console.log({a: [1, {b: 2}]}); console.warn('careful'); console.error('bad') }"
    assert (await run(source, language="ts")).console == "{ a: [ 1, { b: 2 } ] }\n[warn] careful\n[error] bad\n"


async def test_a_refused_bridge_call_has_its_code():
    source = "export async function main() { try { await adf.fs_read({}) } catch (e) { return e.code } }"
    assert (await run(source, language="ts")).value == "NOT_FOUND"


async def test_a_name_that_is_computed_and_known_to_nobody_is_refused_with_a_code_too():
    source = "export async function main(name) { try { await adf[name]({}) } catch (e) { return [e.code, e.message] } }"
    code, message = (await run(source, "made_" + "up", language="ts")).value
    assert (code, "made_up" in message) == ("NOT_FOUND", True)


async def test_the_bridge_itself_is_no_promise_and_can_be_awaited_and_printed():
    source = "export async function main() { const b = await adf; console.log(b); return [b === adf, JSON.stringify(b)] }"
    outcome = await run(source, language="ts")
    assert outcome.value == [True, "{}"]
    assert "fs_read" in outcome.console


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("/* no end\nexport const main = () => 1", "lib/x.js:1: is no program: Invalid or unexpected token at lib/x.js:1:2"),
        ("export function main() { throw new Error(import.meta.url) }", "lib/x.js:1: raised Error: lib/x.js"),
        ("export function main() {\n  return 1\n", "is no program: a bracket, a text or a comment is not closed"),
    ],
)
async def test_the_same_mistake_has_the_same_words_each_time_and_they_name_the_file(source, said):
    for _ in range(2):
        with pytest.raises(LambdaRaised) as caught:
            await run(source, language="js")
        assert said in str(caught.value)
        assert "blob:" not in str(caught.value)


async def test_a_js_file_is_javascript_and_no_typescript():
    assert (await run("export const main = (a) => a.n < 2 > (1)", {"n": 1}, language="js")).value is False
    with pytest.raises(LambdaRaised, match="is no program"):
        await run("export const main = (a: number) => a", language="js")


@pytest.mark.parametrize(("thrown", "said"), [
    ("{a: 1}", "raised { a: 1 }"), ("{message: 'no'}", "raised Error: no"), ("'no'", 'raised "no"'), ("null", "raised null"),
])  # fmt: skip
async def test_what_is_thrown_and_is_no_error_is_shown(thrown, said):
    with pytest.raises(LambdaRaised, match=re.escape(said) + "$"):
        await run(f"export const main = () => {{ throw {thrown} }}", language="ts")
