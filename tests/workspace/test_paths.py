"""Paths stay inside the workspace, whatever they are called and whatever they lead through."""

import os
import subprocess
import sys
import threading

import pytest

from beforehand.workspace import PathRefused, Workspace
from beforehand.workspace.paths import MAX_PATH


@pytest.fixture
def outside(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    return tmp_path / "outside"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "lib/../../outside/secret.txt",
        "..",
        "/etc/passwd",
        "~/x",
        "C:/x",
        "a\\..\\b",
        "a\0b",
        "",
        "  ",
        None,
        3,
        ".beforehand/meta.json",
        "./.beforehand/meta.json",
        "lib/../x",
    ],
)
def test_a_path_that_is_not_plainly_inside_is_refused(place, outside, path):
    workspace = Workspace(place)
    for attempt in (lambda: workspace.read(path), lambda: workspace.write(path, b"x"), lambda: workspace.folder.remove(path)):
        with pytest.raises(PathRefused):
            attempt()
    assert (outside / "secret.txt").read_text() == "secret"


def test_a_path_has_at_most_so_many_characters(place):
    workspace = Workspace(place)
    longest = "/".join(["d" * 200] * 5) + "/" + "f" * 19
    assert len(longest) == MAX_PATH
    workspace.write(longest, b"x")
    assert list(workspace.folder.files()) == [(longest, 1)]
    for path in (longest + "f", "a/" * 2_000_000 + "x"):
        with pytest.raises(PathRefused, match=f"characters, more than {MAX_PATH:,}"):
            workspace.read(path)


def test_files_that_no_path_here_can_name_are_left_out_of_the_list(place):
    workspace = Workspace(place)
    workspace.write("a.txt", b"x")
    (place / os.fsdecode(b"\xff.txt")).write_text("x")
    deep = place / "/".join(["d" * 200] * 6)
    deep.mkdir(parents=True)
    (deep / "b.txt").write_text("x")
    assert list(workspace.folder.files()) == [("a.txt", 1)]


def test_a_file_is_written_read_listed_and_removed(place):
    workspace = Workspace(place)
    workspace.write("notes/a/b.txt", b"text")
    assert workspace.read("./notes//a/b.txt") == b"text"
    assert list(workspace.folder.files()) == [("notes/a/b.txt", 4)]
    workspace.folder.remove("notes/a/b.txt")
    assert list(workspace.folder.files()) == []


def test_what_goes_while_the_files_are_listed_is_left_out(place):
    for name in ("a.txt", "b.txt", "c.txt", "more/d.txt"):
        Workspace(place).write(name, b"x")
    listed = Workspace(place).folder.files()
    assert next(listed) == ("a.txt", 1)
    (place / "b.txt").unlink()
    (place / "more" / "d.txt").unlink()
    (place / "more").rmdir()
    assert list(listed) == [("c.txt", 1)]


def test_a_write_that_is_not_finished_is_not_listed(place):
    for name in (".a.txt.0123456789ab.new", ".env", ".a.txt.new", "b.txt"):
        (place / name).write_text("x")
    assert [path for path, _ in Workspace(place).folder.files()] == [".a.txt.new", ".env", "b.txt"]


@pytest.mark.parametrize("how", ["a file", "a folder", "a chain"])
def test_a_symlink_that_leads_out_is_refused(place, outside, how):
    if how == "a file":
        (place / "link").symlink_to(outside / "secret.txt")
        path = "link"
    elif how == "a folder":
        (place / "link").symlink_to(outside)
        path = "link/secret.txt"
    else:
        (place / "inner").symlink_to("link")
        (place / "link").symlink_to("../outside")
        path = "inner/secret.txt"
    workspace = Workspace(place)
    with pytest.raises(PathRefused, match="symlink"):
        workspace.read(path)
    with pytest.raises(PathRefused, match="symlink"):
        workspace.write(path, b"overwritten")
    assert (outside / "secret.txt").read_text() == "secret"


def test_a_new_file_behind_a_symlink_out_is_not_made(place, outside):
    (place / "link").symlink_to(outside / "new.txt")
    with pytest.raises(PathRefused, match="symlink"):
        Workspace(place).write("link", b"x")
    assert not (outside / "new.txt").exists()


def test_a_symlink_that_stays_inside_is_followed(place):
    (place / "real.txt").write_text("text")
    (place / "link.txt").symlink_to("real.txt")
    assert Workspace(place).read("link.txt") == b"text"


def test_removing_a_symlink_leaves_what_it_leads_to(place, outside):
    (place / "link").symlink_to(outside / "secret.txt")
    Workspace(place).folder.remove("link")
    assert (outside / "secret.txt").exists()
    assert not (place / "link").is_symlink()


def test_symlinks_are_not_listed(place, outside):
    (place / "link").symlink_to(outside)
    (place / "file").symlink_to(outside / "secret.txt")
    assert list(Workspace(place).folder.files()) == []


def test_a_named_pipe_is_no_file_and_is_not_waited_for(place):
    os.mkfifo(place / "pipe")
    with pytest.raises(PathRefused, match="no plain file"):
        Workspace(place).read("pipe")


def test_a_link_put_there_after_the_path_was_resolved_leads_nowhere(place, outside):
    workspace = Workspace(place)
    (place / "notes").mkdir()

    class Swapped(type(workspace.folder)):
        def resolve(self, path):
            parts = super().resolve(path)
            os.rmdir(place / "notes")
            (place / "notes").symlink_to(outside)
            return parts

    folder = Swapped(place)
    with pytest.raises(NotADirectoryError), folder.opened("notes/secret.txt", os.O_RDONLY):
        pass


def test_a_large_file_is_refused_before_it_is_read(place):
    with open(place / "large", "wb") as file:
        file.truncate(10_000_000)
    with pytest.raises(PathRefused, match="10,000,000 bytes"):
        Workspace(place).read("large")


def test_a_write_that_fails_leaves_the_old_text(place):
    workspace = Workspace(place)
    workspace.write("a.txt", b"old")
    with pytest.raises(PathRefused):
        workspace.write("a.txt", b"x" * 6_000_000)
    assert workspace.read("a.txt") == b"old"
    assert sorted(os.listdir(place)) == ["a.txt", "lib"]


def add_one(values):
    values["count"] = 1


def test_the_values_are_not_read_or_written_through_a_link(place, outside):
    """In a workspace that somebody else has made, anything may lie where the workspace keeps its own."""
    (outside / "keys.json").write_text('{"token": "secret"}')
    own = place / ".beforehand"
    own.mkdir()
    (own / "meta.json").symlink_to(outside / "keys.json")
    with pytest.raises(OSError, match="symbolic link"):
        Workspace(place).get_meta()
    with pytest.raises(OSError, match="symbolic link"):
        Workspace(place).change_meta(add_one)
    (own / "meta.json").unlink()
    own.rmdir()
    own.symlink_to(outside)
    with pytest.raises(OSError, match="Not a directory"):
        Workspace(place).change_meta(add_one)
    assert sorted(path.name for path in outside.iterdir()) == ["keys.json", "secret.txt"]


@pytest.mark.parametrize("replaced", ["agent", "."])
def test_a_link_in_the_place_of_the_workspace_is_not_followed(tmp_path, outside, replaced):
    (tmp_path / "around" / "agent").mkdir(parents=True)
    workspace = Workspace(tmp_path / "around" / "agent")
    (outside / "agent" / ".beforehand").mkdir(parents=True)
    for folder in (outside / "agent", outside):
        (folder / ".beforehand").mkdir(exist_ok=True)
        (folder / ".beforehand" / "meta.json").write_text('{"key": "secret"}')
    moved = (tmp_path / "around" / replaced).resolve()
    moved.rename(tmp_path / "moved")
    moved.symlink_to(outside, target_is_directory=True)
    for act in (
        lambda: list(workspace.folder.files()), workspace.get_meta, lambda: workspace.change_meta(dict.clear),
        lambda: workspace.write("x.txt", b"x"), lambda: workspace.read("secret.txt"),
        lambda: workspace.folder.remove("secret.txt"),
    ):  # fmt: skip
        with pytest.raises(PathRefused, match="symlink"):
            act()
    assert (outside / "secret.txt").read_text() == "secret" and not (outside / "x.txt").exists()
    assert "secret" in (outside / "agent" / ".beforehand" / "meta.json").read_text()


def test_a_pipe_in_the_place_of_the_values_holds_nobody_up(place):
    (place / ".beforehand").mkdir()
    os.mkfifo(place / ".beforehand" / "meta.json")
    with pytest.raises(PathRefused, match="no plain file"):
        Workspace(place).get_meta()


def test_values_that_are_too_many_to_be_ours_are_not_read(place):
    (place / ".beforehand").mkdir()
    (place / ".beforehand" / "meta.json").write_text('{"a": "' + "x" * 1_000_000 + '"}')
    with pytest.raises(PathRefused, match="more than 1,000,000 bytes"):
        Workspace(place).get_meta()


def test_what_two_change_at_once_is_not_lost(place):
    """Two workspaces of one folder, as two processes have them. The second begins while the first is at it."""
    begun, second_is_done = threading.Event(), threading.Event()

    def first(values):
        count = values.get("count", 0)
        begun.set()
        second_is_done.wait(0.3)  # it must not get that far
        values["count"] = count + 1

    def second(values):
        values["count"] = values.get("count", 0) + 1

    one = threading.Thread(target=Workspace(place).change_meta, args=[first])
    one.start()
    assert begun.wait(30)
    Workspace(place).change_meta(second)
    second_is_done.set()
    one.join()
    assert Workspace(place).get_meta() == {"count": 2}


def test_what_two_append_at_once_is_not_lost(place):
    code = """
import asyncio, sys
from beforehand.sandbox import Console, SandboxLimits
from beforehand.workspace import Bridge, Workspace

async def main(name):
    bridge = Bridge(Workspace(sys.argv[1]), SandboxLimits(), (("x.py", "main"),), Console(10), None, 1e12)
    for number in range(100):
        await bridge("fs_write", {"path": "log.txt", "mode": "append", "content": f"{name} {number}\\n"})

asyncio.run(main(sys.argv[2]))
"""
    both = [subprocess.Popen([sys.executable, "-c", code, str(place), name]) for name in ("a", "b")]
    assert [one.wait(60) for one in both] == [0, 0]
    lines = (place / "log.txt").read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in "ab" for number in range(100))
    assert [line for line in lines if line[0] == "a"] == [f"a {number}" for number in range(100)]
