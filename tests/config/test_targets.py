"""The targets of a hook as rows, and what an edit leaves of the rest of the file: everything."""

import json
import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand import ConfigError
from beforehand.config import ProjectFileError, read_project
from beforehand.config.block import block_of
from beforehand.config.edit import write_hook
from beforehand.config.targets import NEW, Draft, Targets, add, described, draft_of, remove, targets_of
from beforehand.settings import PreLlmHook

SOURCE = "lib/x.py:transform"
NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True).filter(lambda n: n not in ("main", "all"))
TIMEOUTS = st.none() | st.integers(1000, 300000)
HOOKS = st.one_of(
    st.builds(PreLlmHook, source=st.just(SOURCE), scope=st.sampled_from(["all", "main"]), timeout_ms=TIMEOUTS),
    st.builds(
        PreLlmHook, source=st.just(SOURCE), scope=st.just("loops"), include_main=st.booleans(),
        loops=st.lists(NAMES, min_size=1, max_size=5, unique=True).map(tuple), timeout_ms=TIMEOUTS,
    ),
)  # fmt: skip


# --- rows ---


@given(HOOKS)
def test_opening_a_hook_and_writing_it_again_changes_nothing(hook):
    assert draft_of(hook).hook() == hook


@given(HOOKS, st.lists(st.tuples(st.sampled_from([add, remove]), st.lists(NAMES | st.sampled_from(["main", "all"]), max_size=2))))
def test_no_edit_of_rows_narrows_all_or_mixes_it_with_others(hook, edits):
    targets = targets_of(hook)
    for edit, names in edits:
        try:
            after = edit(targets, names)
        except ConfigError:
            continue
        assert not (after.everywhere and (after.main or after.loops))
        if targets.everywhere and not after.everywhere:
            assert edit is remove
            assert "all" in names
        assert len(set(after.rows)) == len(after.rows)
        assert "main" not in after.loops
        targets = after


def test_a_new_hook_starts_with_main():
    assert draft_of(None).targets == NEW == Targets(main=True)
    assert Draft(SOURCE).hook() == PreLlmHook(source=SOURCE, scope="main")


@pytest.mark.parametrize(
    ("rows", "block"),
    [
        (["main"], {"source": SOURCE, "scope": "main"}),
        (["a", "b"], {"source": SOURCE, "scope": "loops", "loops": ["a", "b"]}),
        (["b", "main", "a"], {"source": SOURCE, "scope": "loops", "loops": ["b", "a"], "include_main": True}),
        (["all"], {"source": SOURCE, "scope": "all"}),
    ],
)
def test_how_rows_are_stored(rows, block):
    assert block_of(Draft(SOURCE, add(Targets(), rows)).hook()) == block


def test_main_is_the_first_row():
    assert add(Targets(), ["b", "main", "a"]).rows == ("main", "b", "a")


@pytest.mark.parametrize(
    ("edit", "targets", "names", "why"),
    [
        (add, Targets(everywhere=True), ["a"], "the hook runs in all loops, 'a' among them: to narrow it"),
        (add, Targets(everywhere=True), ["all"], "the hook runs in all loops already"),
        (add, NEW, ["all"], '"all" goes with no other row'),
        (add, NEW, ["main"], "'main' is a target already"),
        (add, NEW, ["a", "a"], "'a' is a target already"),
        (remove, NEW, ["a"], "'a' is no target: the targets are main"),
        (remove, NEW, ["all"], "'all' is no target"),
        (remove, Targets(everywhere=True), ["main"], "'main' is no target: the targets are all"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why(edit, targets, names, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        edit(targets, names)


@pytest.mark.parametrize(
    ("draft", "why"),
    [
        (Draft(), "the hook has no source"),
        (Draft("  "), "the hook has no source"),
        (Draft("lib/x.txt"), "'lib/x.txt' names no lambda"),
        (Draft("../x.ts"), "pre_llm_hook.source: the path '../x.ts' has a `..`"),
        (Draft(SOURCE, Targets()), "a hook has at least one target"),
        (Draft(SOURCE, add(NEW, ["Bad"])), "pre_llm_hook.loops[0]: expected a loop's name"),
        (Draft(SOURCE, add(NEW, [""])), "pre_llm_hook.loops[0]: expected a loop's name"),
        (Draft(SOURCE, add(NEW, [f"l{i}" for i in range(65)])), "pre_llm_hook.loops: expected at most 64 of them, got 65"),
        (Draft(SOURCE, NEW, 999), "pre_llm_hook.timeout_ms: expected a whole number from 1000 to 300000, got 999"),
        (Draft(SOURCE, NEW, 300001), "pre_llm_hook.timeout_ms: expected a whole number"),
        (Draft(SOURCE, NEW, "1.5"), "pre_llm_hook.timeout_ms: expected a whole number"),
    ],
)
def test_a_draft_with_a_mistake_makes_no_hook(draft, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        draft.hook()


def test_a_draft_is_trimmed():
    assert Draft(f"  {SOURCE} ").hook().source == SOURCE


def test_rows_are_shown_with_what_is_declared(folder):
    folder.toml(
        'workspace = "agent"\n[pre_llm_hook]\nsource = "lib/x.py:transform"\nscope = "loops"\nloops = ["b", "later"]\n'
        '[[loops]]\nname = "a"\n[[loops]]\nname = "b"\n'
    )
    assert described(folder.settings()) == [
        "lib/x.py:transform, at most 60 s", "  b", "  later  (not declared yet)", "not targets: main, a",
    ]  # fmt: skip


# --- files ---

TOML = """# my agent
model = "openai:m"   # cheap

workspace = 'agent'

[pre_llm_hook]   # the policy
# where it is
source = "lib/x.py:transform"
loops = [
    "a",  # first
    "b",
]
scope = "loops"
timeout_ms = 5_000

[[loops]]
name = "a"  # declared

[limits]
max_turns = 0x10
"""


def edited(file, hook):
    write_hook(file, hook)
    text = file.read_bytes().decode()
    assert read_project(file).settings.pre_llm_hook == hook
    return text


def test_in_toml_everything_else_stays_as_it_is_written(folder):
    file = folder.toml(TOML)
    text = edited(file, PreLlmHook(source=SOURCE, scope="main", timeout_ms=5000))
    gone = ('loops = [\n    "a",  # first\n    "b",\n]\n', 'scope = "loops"\n')
    expected = TOML.replace(gone[0], "").replace(gone[1], 'scope = "main"\n')
    assert text == expected


def test_what_does_not_change_is_not_written_anew(folder):
    file = folder.toml(TOML)
    assert edited(file, PreLlmHook(source=SOURCE, scope="loops", loops=("a", "b"), timeout_ms=5000)) == TOML


TOML_FILES = [
    "", "\n", "# only a comment", 'model = "openai:m"', 'model = "openai:m"\n[[tools]]\nname = "x"\n# end\n',
    'pre_llm_hook = { source = "lib/y.py", scope = "all" } # inline\nmodel = "openai:m"\n',
    'pre_llm_hook.source = "lib/y.py"\npre_llm_hook.scope = "loops"\npre_llm_hook.loops = ["z"]\nmodel = "openai:m"\n',
    'pre_llm_hook.source = "lib/y.py"\nmodel = "openai:m"\npre_llm_hook.scope = "all"\n[limits]\nmax_turns = 3\n',
    '[[tools]]\nname = "x"\n[limits]\nmax_turns = 3',
    "[limits]\nmax_turns = 3\n\n[pre_llm_hook]\nsource = 'lib/y.py'\n\n\n[[loops]]\nname = 'q'\n",
    '["pre_llm_hook"]\n"source" = """lib/y.py"""\n', TOML,
]  # fmt: skip
JSON_FILES = [
    "{}", "{\n}\n", '{"model": "openai:m"}', '{\n    "model": "openai:m",\n    "limits": {"max_turns": 3}\n}\n',
    '{\n\t"pre_llm_hook": {\n\t\t"source": "lib/y.py"\n\t},\n\t"model": "pre_llm_hook"\n}',
    '{"tools":[{"name":"pre_llm_hook"}],"pre_llm_hook":{"source":"lib/y.py","scope":"all"},"instructions":"a: {\\"b\\"}"}',
    '  {\n  "instructions": "\\u00e9\\"}",\n  "pre_llm_hook":\n{"source": "lib/y.py:f"}\n  }  ',
]  # fmt: skip


def with_workspace(text, suffix):
    """The same file, complete enough to be a project with a hook."""
    if suffix == ".toml":
        return 'workspace = "agent"\n' + text if "workspace" not in text else text
    value = text.lstrip()[1:]
    return text[: len(text) - len(value)] + '"workspace": "agent"' + ("," if value.strip() != "}" else "") + value


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("suffix", "text"), [(".toml", t) for t in TOML_FILES] + [(".json", t) for t in JSON_FILES])
@settings(max_examples=15, deadline=None)
@given(hook=HOOKS)
def test_a_file_of_any_style_is_edited_and_keeps_what_else_it_says(tmp_path_factory, newline, suffix, text, hook):
    root = tmp_path_factory.mktemp("p")
    (root / "agent").mkdir()
    file = root / f"x{suffix}"
    before = with_workspace(text, suffix).replace("\n", newline)
    file.write_bytes(before.encode())
    load = tomllib.loads if suffix == ".toml" else json.loads
    after = edited(file, hook)
    assert {k: v for k, v in load(after).items() if k != "pre_llm_hook"} == {
        k: v for k, v in load(before).items() if k != "pre_llm_hook"
    }
    if "\n" in before:
        assert after.count("\n") == after.count(newline)
    for comment in re.findall(r"#[^\n\r]*", before) if suffix == ".toml" else []:
        if comment not in ("# first",):
            assert comment in after
    assert edited(file, hook) == after
    assert [p.name for p in root.iterdir() if p.name not in ("agent", file.name)] == []


def test_json_keeps_its_indentation_and_order(folder):
    file = folder.json('{\n    "workspace": "agent",\n    "pre_llm_hook": {"source": "lib/y.py"},\n    "model": "openai:m"\n}\n')
    assert edited(file, PreLlmHook(source=SOURCE, scope="loops", loops=("a",))) == (
        '{\n    "workspace": "agent",\n'
        '    "pre_llm_hook": {\n        "source": "lib/x.py:transform",\n        "scope": "loops",\n'
        '        "loops": [\n            "a"\n        ]\n    },\n    "model": "openai:m"\n}\n'
    )
    file = folder.json('{"workspace":"agent"}')
    assert edited(file, PreLlmHook(source=SOURCE, scope="main")) == (
        '{"workspace":"agent", "pre_llm_hook": {"source": "lib/x.py:transform", "scope": "main"}}'
    )


def test_a_file_with_a_mistake_is_left_alone(folder):
    file = folder.toml('workspace = "agent"\nmodle = 1\n')
    with pytest.raises(ProjectFileError):
        write_hook(file, PreLlmHook(source=SOURCE))
    assert file.read_text() == 'workspace = "agent"\nmodle = 1\n'


def test_a_file_keeps_its_mode_and_a_symlink_its_target(folder):
    real = folder.root / "real.toml"
    real.write_text('workspace = "agent"\n')
    real.chmod(0o640)
    link = folder.root / "beforehand.toml"
    link.symlink_to(real)
    write_hook(link, PreLlmHook(source=SOURCE))
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert "pre_llm_hook" in real.read_text()
