"""The project file is looked at when a request is due: an edit counts at once, and costs nothing while there is none."""

import os
import subprocess
import sys

import pytest

from beforehand import ConfigError
from beforehand.config import read_project
from beforehand.config.live import LiveProject

OLD = 1_000_000_000


def written_long_ago(file):
    os.utime(file, (OLD, OLD))


def test_a_file_that_says_the_same_stays_the_same_project(folder):
    file = folder.toml('model = "openai:a"')
    live = LiveProject(read_project(file))
    first = live.current()
    assert first.settings.model == "openai:a"
    assert live.current() is first
    file.write_text('model = "openai:a"')
    assert live.current() is first


LOOKS = """
import sys
from beforehand.config import read_project
from beforehand.config.live import SETTLED_NS, LiveProject

file, times = sys.argv[1], 0

def count(event, args):
    global times
    times += event == "open" and str(args[0]) == file

def opened(live):
    before = times
    live.current()
    print(live.current().settings.model, times - before)

project = read_project(file)
now = [project.file.stat().st_mtime_ns + SETTLED_NS]
live = LiveProject(project, clock=lambda: now[0])
sys.addaudithook(count)
opened(live)
now[0] += SETTLED_NS
live.current()
opened(live)
with open(file, "w") as written:
    written.write('model = "openai:b"')
opened(live)
"""


def test_a_file_that_has_settled_is_only_looked_at(folder):
    """In a process of its own: an audit hook cannot be taken away, and while one runs no thread can begin to be traced."""
    file = folder.toml('model = "openai:a"')
    done = subprocess.run([sys.executable, "-c", LOOKS, str(file)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    # As long as it may have been written again within one tick of the clock, it is read each time.
    assert done.stdout.splitlines() == ["openai:a 2", "openai:a 0", "openai:b 1"]


def test_two_edits_within_one_tick_of_the_clock_are_both_seen(folder):
    file = folder.toml('model = "openai:a"')
    live = LiveProject(read_project(file))
    for name in "bcdefgh":
        file.write_text(f'model = "openai:{name}"')  # the same size, perhaps the same time
        assert live.current().settings.model == f"openai:{name}"


def test_a_replaced_file_is_seen_even_if_it_claims_to_be_old(folder):
    file = folder.toml('model = "openai:a"')
    written_long_ago(file)
    live = LiveProject(read_project(file))
    live.current()
    other = folder.root / "other.toml"
    other.write_text('model = "openai:b"')
    written_long_ago(other)
    other.replace(file)
    assert live.current().settings.model == "openai:b"


def test_while_a_file_is_broken_nothing_of_it_counts(folder):
    file = folder.toml('model = "openai:a"')
    live = LiveProject(read_project(file))
    file.write_text("model = ")
    for _ in range(2):
        with pytest.raises(ConfigError, match="this is not TOML"):
            live.current()
    file.unlink()
    with pytest.raises(ConfigError, match=r"the project file .*beforehand.toml cannot be read: No such file"):
        live.current()
    file.write_text('model = "openai:c"')
    assert live.current().settings.model == "openai:c"


def test_what_is_no_file_is_not_waited_for(folder):
    file = folder.toml('model = "openai:a"')
    live = LiveProject(read_project(file))
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="this is no regular file: a pipe or a device is not read"):
        live.current()
    with pytest.raises(ConfigError, match="this is no regular file"):
        read_project(file)


def test_what_nobody_can_have_written_is_not_read(folder):
    file = folder.toml("#" * (16 << 20) + "\n")
    with pytest.raises(ConfigError, match=r"beforehand.toml:1:1: the file is larger than 16 MiB: no rule file is, and no"):
        read_project(file)
