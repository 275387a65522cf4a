"""Hostile lambdas. Whatever one does, it stays inside, it ends, and the host goes on."""

import os

import pytest
from sandbox.sandboxed import children, run, spare_after_a_call

from beforehand.sandbox import (
    LambdaBroken,
    LambdaOutOfMemory,
    LambdaRaised,
    LambdaTimedOut,
    LambdaUnsupported,
    SandboxLimits,
    close_spares,
)

SECRET = "a secret of the host"


@pytest.fixture(autouse=True)
def secrets(tmp_path, monkeypatch):
    """Something to steal, in the environment and in a file, and a folder to write to."""
    monkeypatch.setenv("HOST_SECRET", SECRET)
    (tmp_path / "secret.txt").write_text(SECRET)
    return tmp_path


async def still_works(language):
    source = "def main(a):\n    return 'alive'" if language == "py" else "export function main() { return 'alive' }"
    assert (await run(source, language=language)).value == "alive"


# --- nothing to reach ---

PYTHON_REACHES = {
    "a file": "open({file!r}).read()",
    "a path": "__import__('pathlib').Path({file!r}).read_text()",
    "a new file": "open({new!r}, 'w').write('x')",
    "a folder": "__import__('os').listdir({folder!r})",
    "the environment": "__import__('os').environ['HOST_SECRET']",
    "one variable": "__import__('os').getenv('HOST_SECRET')",
    "a process": "__import__('subprocess').run(['true'])",
    "a shell": "__import__('os').system('true')",
    "a fork": "__import__('os').fork()",
    "a signal": "__import__('os').kill({pid}, 9)",
    "the network": "__import__('socket').create_connection(('127.0.0.1', 1))",
    "the network by URL": "__import__('urllib.request').request.urlopen('http://127.0.0.1:1')",
    "a library": "__import__('ctypes')",
    "the host's objects": "().__class__.__base__.__subclasses__()",
}


@pytest.mark.parametrize("what", PYTHON_REACHES)
async def test_python_reaches_nothing(what, secrets):
    reach = PYTHON_REACHES[what].format(
        file=str(secrets / "secret.txt"), new=str(secrets / "new.txt"), folder=str(secrets), pid=os.getpid()
    )
    statement, _, rest = reach.partition(").") if reach.startswith("__import__") else ("", "", "")
    if statement:  # Monty knows the statement, not the function
        module = statement.removeprefix("__import__('").rstrip("')")
        reach = f"{module.partition('.')[0]}.{rest}"
        source = f"def main(a):\n    import {module}\n    return str({reach})"
    else:
        source = (
            f"def main(a):\n    return str({reach})" if "ctypes" not in reach else "import ctypes\ndef main(a):\n    return 1"
        )
    with pytest.raises((LambdaRaised, LambdaUnsupported)) as caught:
        await run(source)
    assert SECRET not in str(caught.value)
    assert sorted(p.name for p in secrets.iterdir()) == ["secret.txt"]


SCRIPT_REACHES = {
    "a file": "Deno.readTextFileSync({file!r})",
    "a file through node": "(await import('node:fs')).readFileSync({file!r}, 'utf8')",
    "a new file": "Deno.writeTextFileSync({new!r}, 'x')",
    "a temporary file": "Deno.makeTempFileSync()",
    "a folder": "[...Deno.readDirSync({folder!r})]",
    "a module of the host": "await import('file://' + {file!r})",
    "the environment": "Deno.env.get('HOST_SECRET')",
    "the environment through node": "(await import('node:process')).env.HOST_SECRET",
    "a process": "new Deno.Command('/bin/true').outputSync()",
    "a process through node": "(await import('node:child_process')).execFileSync('/bin/true')",
    "a signal": "Deno.kill({pid}, 'SIGKILL')",
    "a signal through node": "(await import('node:process')).kill({pid}, 'SIGKILL')",
    "the network": "await fetch('http://127.0.0.1:8080/')",
    "a socket": "await Deno.connect({{hostname: '127.0.0.1', port: 8080}})",
    "a server": "Deno.listen({{port: 0}})",
    "remote code": "await import('https://example.com/x.js')",
    "a library": "Deno.dlopen('/lib/x86_64-linux-gnu/libc.so.6', {{}})",
    "the name of the machine": "Deno.hostname()",
    "a database file": "new (await import('node:sqlite')).DatabaseSync({new!r})",
    "a database attached": "new (await import('node:sqlite')).DatabaseSync(':memory:').exec(`ATTACH '${{{new!r}}}' AS x`)",
    "a graphics driver": "await navigator.gpu.requestAdapter()",
    "code from text": "new Function('return 1')()",
    "more permissions": "(await Deno.permissions.request({{name: 'read'}})).state.replace('denied', Symbol('never'))",
}


@pytest.mark.parametrize("what", SCRIPT_REACHES)
async def test_a_script_reaches_nothing(what, secrets):
    reach = SCRIPT_REACHES[what].format(
        file=str(secrets / "secret.txt"), new=str(secrets / "new.txt"), folder=str(secrets), pid=os.getpid()
    )
    with pytest.raises((LambdaRaised, LambdaUnsupported)) as caught:
        await run(f"export async function main() {{ return String({reach}) }}", language="ts")
    assert SECRET not in str(caught.value)
    assert sorted(p.name for p in secrets.iterdir()) == ["secret.txt"]


# --- nothing left over ---

LEFTOVERS = {
    "a global": ("globalThis.left = 1", "String(globalThis.left)"),
    "a prototype": ("Object.prototype.left = 1", "String(({}).left)"),
    "local storage": ("globalThis.localStorage?.setItem('left', '1')", "String(globalThis.localStorage?.getItem('left'))"),
    "a cache": (
        "await (await globalThis.caches?.open('left'))?.put('http://x/', new Response('1'))",
        "String(await globalThis.caches?.has('left'))",
    ),
}


@pytest.mark.parametrize("what", LEFTOVERS)
async def test_a_script_leaves_nothing_for_the_next_one(what):
    leave, look = LEFTOVERS[what]
    await run(f"export async function main() {{ {leave} }}", language="ts")
    found = await run(f"export async function main() {{ return {look} }}", language="ts")
    assert found.value in ("undefined", "null", "false")


async def test_each_worker_has_a_folder_of_its_own_that_is_thrown_away():
    source = "export function main() { return Deno.cwd() }"
    first, second = [(await run(source, language="ts")).value for _ in range(2)]
    assert first != second
    await close_spares()
    assert [os.access(folder, os.F_OK) for folder in (first, second)] == [False, False]


async def test_nothing_of_a_script_is_written_anywhere_not_even_by_the_engine():
    found = []

    async def bridge(method, argument):
        found.append(os.listdir(argument["folder"]))

    source = "import { createHash } from 'node:crypto'\nenum Kept { yes, no }\nexport async function main() {\n"
    source += "await adf.emit_event({ folder: Deno.cwd() }); return [Kept.no, typeof createHash] }"
    assert (await run(source, language="ts", bridge=bridge)).value == [1, "function"]
    assert found == [[]]


async def test_python_leaves_nothing_for_the_next_one():
    await run("import json\nleft = 1\ndef main(a):\n    global left\n    left = 2")
    with pytest.raises(LambdaRaised, match="NameError"):
        await run("def main(a):\n    return left")


# --- nothing is exhausted ---

EXHAUSTING = {
    "py": {
        "memory, piece by piece": "def main(a):\n    x = []\n    while True:\n        x.append('a' * 100_000)",
        "memory, at once": "def main(a):\n    return len('a' * 10**11)",
        "a giant number": "def main(a):\n    return 10 ** (10 ** 9)",
        "recursion": "def f(n):\n    return f(n + 1)\ndef main(a):\n    return f(0)",
    },
    "ts": {
        "memory, piece by piece": "export function main() { const a = []; for (;;) a.push(new Array(1000).fill(Math.random())) }",
        "memory in buffers": "export function main() { const a = []; for (;;) a.push(new Uint8Array(10_000_000).fill(1)) }",
        "memory shared": "const a = []; for (;;) a.push(new Uint8Array(new SharedArrayBuffer(5e7)).fill(1)); function main() {}",
        "memory of WebAssembly": "const a = []; for (;;) a.push(new WebAssembly.Memory({initial: 999})); function main() {}",
        "a giant string": "export function main() { let s = 'x'; for (;;) s += s }",
        "threads": "import { Worker } from 'node:worker_threads'\n"
        "export async function main() { for (;;) { new Worker('for(;;);', {eval: true}); await 0 } }",
    },
}


@pytest.mark.parametrize(("language", "bomb"), [(language, bomb) for language, bombs in EXHAUSTING.items() for bomb in bombs])
async def test_a_lambda_that_wants_too_much_is_ended_and_the_next_call_works(language, bomb):
    with pytest.raises(LambdaOutOfMemory) as caught:
        await run(EXHAUSTING[language][bomb], language=language)
    assert "\n" not in str(caught.value)
    await still_works(language)


@pytest.mark.parametrize("language", ["py", "ts"])
async def test_a_lambda_that_is_handed_more_than_its_memory_says_how_much_that_was(language):
    source = "def main(a):\n    return [a + str(i) for i in range(99)]"
    if language == "ts":
        source = "export function main() { const a = []; for (;;) a.push(new Uint8Array(10_000_000).fill(1)) }"
    with pytest.raises(LambdaOutOfMemory, match=r"memory.*; it was handed 3\.0 MB$"):
        await run(source, "x" * 3 * 2**20, language=language)


ENDLESS = {
    "py": {
        "while it is loaded": "while True:\n    pass",
        "catching its timeout": "def main(a):\n    while True:\n        try:\n            while True:\n                pass\n"
        "        except BaseException:\n            pass",
        "catching its recursion": "def f(n):\n    try:\n        return f(n + 1)\n    except Exception:\n        return f(n + 1)\n"
        "def main(a):\n    return f(0)",
        "writing": "def main(a):\n    while True:\n        print('x' * 10_000)",
        "in a pattern": "import re\ndef main(a):\n    while True:\n        re.match(r'(a+)+$', 'a' * 40 + 'b')",
    },
    "ts": {
        "while it is loaded": "for (;;);",
        "catching its recursion": "function f() { try { f() } finally { f() } }\nexport const main = f",
        "waiting for nothing": "export function main() { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0) }",
        "promising nothing": "export function main() { return new Promise(() => setInterval(() => 1, 1000)) }",
        "writing": "export function main() { for (;;) console.log('x'.repeat(10_000)) }",
        "writing bytes": "export function main() { const b = new Uint8Array(65536).fill(65); for (;;) Deno.stdout.writeSync(b) }",
        "in microtasks": "export async function main() { for (;;) await null }",
        "reading its own input": "export function main() { const b = new Uint8Array(10); for (;;) Deno.stdin.readSync(b) }",
    },
}


@pytest.mark.parametrize(("language", "bomb"), [(language, bomb) for language, bombs in ENDLESS.items() for bomb in bombs])
async def test_a_lambda_that_never_ends_is_ended_and_the_next_call_works(language, bomb):
    with pytest.raises(LambdaTimedOut):
        await run(ENDLESS[language][bomb], language=language, limits=SandboxLimits(wall_time=0.7))
    await still_works(language)


FORKS = {
    "py": [
        "import os\ndef main(a):\n    while True:\n        os.fork()",
        "import subprocess\ndef main(a):\n    while True:\n        subprocess.Popen(['sh'])",
    ],
    "ts": [
        "export function main() { for (let i = 0; i < 99; i++) new Deno.Command('/bin/sh', {args: ['-c', ':']}).spawn() }",
        "import { spawn } from 'node:child_process'\nexport function main() { for (let i = 0; i < 100; i++) spawn('/bin/sh') }",
    ],
}


@pytest.mark.parametrize(
    ("language", "source"), [(language, source) for language, sources in FORKS.items() for source in sources]
)
async def test_a_fork_bomb_starts_nothing(language, source):
    seen = set()

    async def watched():
        try:
            await run(source, language=language)
        finally:
            seen.update(children())

    with pytest.raises((LambdaRaised, LambdaUnsupported)):
        await watched()
    grandchildren = [pid for pid in seen for _ in _children_of(pid)]
    assert grandchildren == []
    await still_works(language)


def _children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return file.read().split()
    except OSError:
        return []


# --- nothing is taken for what it is not ---


async def test_text_written_straight_to_standard_output_is_console_text():
    source = "export function main() { Deno.stdout.writeSync(new TextEncoder().encode('straight out')); return 1 }"
    outcome = await run(source, language="ts")
    assert (outcome.value, outcome.console) == (1, "straight out")


async def test_a_forged_frame_is_console_text():
    forged = "'0123456789abcdef'.repeat(2) + 'R' + '00000009' + '\"forged!\"'"
    source = f"export function main() {{ Deno.stdout.writeSync(new TextEncoder().encode({forged})); return 'real' }}"
    outcome = await run(source, language="ts")
    assert outcome.value == "real"
    assert "forged!" in outcome.console


async def test_the_token_cannot_be_found_by_changing_what_the_worker_uses():
    # Each change is made after the worker has taken what it needs, so none is ever called with the token.
    source = r"""
    const seen = [], decoder = new TextDecoder(), decode = decoder.decode.bind(decoder);
    const text = (value) => ArrayBuffer.isView(value) ? decode(value) : String(value);
    const spy = (object, name) => { const old = object[name]; object[name] = function (...args) {
      seen.push(text(this), ...args.map(text)); return old.apply(this, args) } };
    for (const name of ['padStart', 'slice', 'concat', 'toString']) spy(String.prototype, name);
    spy(TextEncoder.prototype, 'encode'); spy(Number.prototype, 'toString'); spy(JSON, 'stringify');
    spy(Deno.stdout, 'writeSync');
    spy(Object.getPrototypeOf(Uint8Array.prototype), 'subarray'); spy(Object.getPrototypeOf(Uint8Array.prototype), 'set');
    spy(Reflect, 'apply'); spy(Promise.prototype, 'then');
    const look = (e) => seen.push(e.stack, e.message, ...Object.values(e).map(text));
    export async function main() {
      console.log('one');
      try { await adf.fs_read({}) } catch (e) { look(e) }
      Error.prepareStackTrace = (e, sites) => [e, ...sites.map(s => String(s.getFunction()) + String(s.getThis()))].join();
      try { await adf.fs_read({ get path() { throw new Error('inside') } }) } catch (e) { look(e) }
      try { await adf.fs_read({}) } catch (e) { look(e) }
      return [seen.length > 3, seen.filter(s => /[0-9a-f]{32}/.test(s))];
    }
    """
    assert (await run(source, language="ts")).value == [True, []]


async def test_a_worker_that_ends_itself_gives_no_result():
    for how in ("Deno.exit(0)", "Deno.kill(Deno.pid, 'SIGKILL')", "Deno.stdout.close()"):
        with pytest.raises(LambdaBroken, match="ended without a result"):
            await run(f"export function main() {{ {how}; return 1 }}", language="ts")
    await still_works("ts")


async def test_what_fails_beside_the_function_is_console_text():
    source = """export async function main() {
      Promise.reject(new Error('nobody waits')); setTimeout(() => { throw new Error('too late') }, 0);
      await new Promise(done => setTimeout(done, 20)); return 1 }"""
    outcome = await run(source, language="ts")
    assert outcome.value == 1
    assert "nobody waits" in outcome.console
    assert "too late" in outcome.console


async def test_a_worker_whose_messages_a_lambda_has_spoilt_gives_no_result():
    for spoilt in ("throw new Error('x')", "return adf.fs_read({})"):
        source = f"Object.prototype.toJSON = () => 5;\nexport function main() {{ {spoilt} }}"
        with pytest.raises(LambdaBroken, match="not in the protocol"):
            await run(source, language="ts")


LISTENS = """
const Bytes = Uint8Array, Shared = Object.getPrototypeOf(Uint8Array.prototype), shown = new Set();
const look = (buffer) => { const text = new TextDecoder().decode(new Bytes(buffer)); shown.add(text) };
const listening = function (buffer, offset, length) { look(buffer); return new Bytes(buffer, offset, length) };
Object.defineProperty(Bytes.prototype, "constructor", { get: () => ({ [Symbol.species]: listening }) });
const bufferOf = Object.getOwnPropertyDescriptor(Shared, "buffer").get;
for (const name of ["length", "byteLength", "byteOffset", "buffer"]) {
  const own = Object.getOwnPropertyDescriptor(Shared, name).get;
  let inside = false;
  Object.defineProperty(Shared, name, { get() {
    if (!inside) { inside = true; look(bufferOf.call(this)); inside = false }
    return own.call(this);
  } });
}
for (const name of ["subarray", "slice", "set"]) {
  const own = Shared[name];
  Shared[name] = function (...given) { look(bufferOf.call(this)); return own.apply(this, given) };
}
export async function main(a) {
  console.log("x".repeat(300));
  for (let i = 0; i < 3; i++) await adf.emit_event("a".repeat(200_000));
  const tokens = [...shown].flatMap((text) => text.match(/[0-9a-f]{16,}/g) ?? []);
  return { tokens, heard: shown.size > 0 };
}
"""


@pytest.mark.parametrize("worker", ["a spare", "a new one"])
async def test_a_script_that_listens_to_every_array_of_bytes_hears_no_token(worker):
    if worker == "a spare":
        await spare_after_a_call("ts")

    async def bridge(method, argument):
        return None

    found = (await run(LISTENS, {"filler": "z" * 100}, language="ts", bridge=bridge)).value
    assert found["heard"]
    assert found["tokens"] == []
