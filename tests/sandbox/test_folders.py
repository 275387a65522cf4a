"""What workers leave on the machine when their host is killed: nothing that stays."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox.sandboxed import run

from beforehand.sandbox import close_spares
from beforehand.sandbox.folders import sweep

HOST = """
import asyncio, sys
from beforehand.sandbox import SandboxLimits, Source, call

async def told(method, argument):
    print(*argument["where"], flush=True)
    await asyncio.Event().wait()

async def main():
    await call(Source("lib/x.ts", sys.argv[1]), "main", {}, limits=SandboxLimits(wall_time=60), bridge=told)

asyncio.run(main())
"""
TELLS = "export async function main() { setInterval(() => 1, 1000); await adf.told({where: [Deno.pid, Deno.cwd()]}) }"


@pytest.fixture
def killed():
    """A host that was killed while its lambda waited: the process and the folder of that lambda."""
    with subprocess.Popen([sys.executable, "-c", HOST, TELLS], stdout=subprocess.PIPE, text=True) as host:
        pid, _, folder = host.stdout.readline().strip().partition(" ")
        host.send_signal(signal.SIGKILL)
    return int(pid), Path(folder)


def ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_lambda_that_waits_ends_with_its_host(killed):
    pid, _ = killed
    async with asyncio.timeout(30):
        while not ended(pid):  # noqa: ASYNC110 - the end of somebody else's process sets no event
            await asyncio.sleep(0.01)


async def test_the_folder_of_a_host_that_was_killed_is_thrown_away_and_those_of_the_living_are_not(killed):
    left = killed[1].parent
    own = Path((await run("export function main() { return Deno.cwd() }", language="ts")).value).parent
    assert left.exists()
    sweep(str(left.parent))
    assert left.exists(), "it may be about to be locked"
    sweep(str(left.parent), settled=0)
    assert not left.exists()
    assert own.exists()
    await close_spares()


def test_the_folder_of_a_process_goes_with_it():
    script = (
        "import asyncio\nfrom beforehand.sandbox import SandboxLimits, Source, call\n"
        "source = Source('x.ts', 'export function main() { return Deno.cwd() }')\n"
        "print(asyncio.run(call(source, 'main', {}, limits=SandboxLimits(wall_time=60), bridge=None)).value)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert folder.is_absolute()
    assert not folder.parent.exists()
    assert folder.parent.parent.is_dir()
