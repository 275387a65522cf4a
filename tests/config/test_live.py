"""The project file is looked at when a request is due: an edit counts at once, and costs nothing while there is none."""

import os

import pytest

from beforehand import ConfigError
from beforehand.config import read_project
from beforehand.config.live import LiveProject

OLD = 1_000_000_000


def written_long_ago(file):
    os.utime(file, (OLD, OLD))


def test_an_unchanged_file_is_not_read_again(folder, monkeypatch):
    file = folder.toml('model = "openai:a"')
    live = LiveProject(read_project(file))
    assert live.current() is not None
    assert live.current().settings.model == "openai:a"


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
