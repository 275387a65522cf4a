"""Project files are read strictly: what they say is there, and every mistake has its line, its field and the form expected."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beforehand import ConfigError, Limits
from beforehand.config import (
    CodeExecution, ContextSettings, LimitSettings, LoopSettings, PreLlmHook, ProjectFileError, ProjectSettings,
    RecoverySettings, ToolSettings, find_project, read_project,
)  # fmt: skip

FULL = """
model = "openai:some-model"            # the main model
base_url = "http://localhost:11434/v1"
instructions = "Be brief."
hooks_dir = "rules"
workspace = "agent"

[pre_llm_hook]
source = "lib/x.py:transform"
scope = "loops"
loops = ["researcher"]
include_main = true
timeout_ms = 5000

[limits]
execution_timeout_ms = 30000
max_turns = 12
max_resends = "none"
abort_grace = 2.5
tool_timeout = 60

[code_execution]
model_invoke = false
restricted_methods = ["fs_write", "fs_delete"]

[recovery]
max_attempts = 2

[context]
compact_threshold = "none"

[[loops]]
name = "researcher"
instructions = "Find things out."
tools = ["search", "fetch"]
model = "openai:small"

[[loops]]
name = "idle_one"
enabled = false

[[tools]]
name = "delete_everything"
restricted = true
replay = "never"

[[tools]]
name = "secret"
visible = false
"""

EXPECTED = ProjectSettings(
    model="openai:some-model", base_url="http://localhost:11434/v1", instructions="Be brief.", hooks_dir="rules",
    workspace="agent",
    pre_llm_hook=PreLlmHook(
        source="lib/x.py:transform", scope="loops", loops=("researcher",), include_main=True, timeout_ms=5000
    ),
    limits=LimitSettings(execution_timeout_ms=30000, max_turns=12, max_resends="none", abort_grace=2.5, tool_timeout=60.0),
    code_execution=CodeExecution(model_invoke=False, restricted_methods=("fs_write", "fs_delete")),
    recovery=RecoverySettings(max_attempts=2),
    context=ContextSettings(compact_threshold="none"),
    loops=(
        LoopSettings(name="researcher", instructions="Find things out.", tools=("search", "fetch"), model="openai:small"),
        LoopSettings(name="idle_one", enabled=False),
    ),
    tools=(
        ToolSettings(name="delete_everything", restricted=True, replay="never"), ToolSettings(name="secret", visible=False),
    ),
)  # fmt: skip


def test_every_block_of_a_toml_file_is_read(folder):
    folder.toml(FULL)
    assert folder.settings() == EXPECTED


def test_a_json_file_says_the_same(folder):
    import tomllib

    folder.json(tomllib.loads(FULL))
    assert folder.settings() == EXPECTED


def test_what_is_left_out_has_the_defaults_of_the_format(folder):
    folder.toml("")
    said = folder.settings()
    assert said == ProjectSettings()
    assert (said.limits.execution_timeout_ms, said.context.compact_threshold) == (60_000, 100_000)
    assert said.recovery == RecoverySettings(auto_retry=True, max_attempts=5, base_delay_ms=15_000, max_delay_ms=300_000)
    assert all(getattr(said.code_execution, name) is True for name in CodeExecution.__struct_fields__[:-1])
    assert said.tool("anything") is None
    assert said.limits.of_runs() == Limits()


def test_limits_become_those_of_runs(folder):
    folder.toml(FULL)
    assert folder.settings().limits.of_runs() == Limits(
        execution_timeout_ms=30_000, max_turns=12, max_resends=None, abort_grace=2.5, tool_timeout=60
    )


def test_the_bounds_of_a_file_are_those_of_limits():
    assert {*LimitSettings.__struct_fields__, "compact_at"} == set(Limits.__struct_fields__)  # that one is a block of its own


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('modle = "openai:x"', "1: modle: unknown field 'modle', did you mean 'model'?"),
        ("zzz = 1", "1: zzz: unknown field 'zzz': the fields here are model, base_url,"),
        ('\n\n[limits]\nmax_turn = 4', "4: limits.max_turn: unknown field 'max_turn', did you mean 'max_turns'?"),
        ("[limits]\nmax_turns = 0", '2: limits.max_turns: expected a whole number of at least 1 or "none", got 0'),
        ('[limits]\nmax_turns = "None"', "2: limits.max_turns: expected a whole number of at least 1"),
        ("[limits]\nabort_grace = -1", '2: limits.abort_grace: expected a number of at least 0 or "none", got -1'),
        ("[limits]\nabort_grace = inf", "2: : inf is no finite number"),
        ("[limits]\nmax_file_read_tokens = 3", "2: limits.max_file_read_tokens: unknown field"),
        ("limits = 4", "1: limits: expected an object, got 4"),
        ("[[limits]]\nmax_turns = 3", "1: limits: expected an object, got a list"),
        ("model = 4", "1: model: expected a string, got 4"),
        ('model = ""', "1: model: expected a string that is not empty"),
        ('base_url = "http://x"', "1: base_url: it is where the model is, and no model is named here"),
        ("instructions = 1999-01-01", "1: : 1999-01-01 is a date or a time"),
        ("[code_execution]\nsys_lambda = 1", "2: code_execution.sys_lambda: expected true or false, got 1"),
        ("[code_execution]\nnetwork = false", "2: code_execution.network: unknown field 'network'"),
        ('[code_execution]\nrestricted_methods = ["fs_read", "fs_wriet"]',
         "2: code_execution.restricted_methods[1]: the bridge has no method 'fs_wriet', did you mean 'fs_write'?"),
        ('[code_execution]\nrestricted_methods = ["q"]', "2: code_execution.restricted_methods[0]: the bridge has no"),
        ('[code_execution]\nrestricted_methods = "fs_read"',
         "2: code_execution.restricted_methods: expected a list, got 'fs_read': put it in [ ]"),
        ("[recovery]\nmax_attempts = -1", "2: recovery.max_attempts: expected a whole number of at least 0, got -1"),
        ("[recovery]\nbase_delay_ms = 400000",
         "2: recovery.base_delay_ms: the first wait (base_delay_ms, 400000) is longer than the longest (max_delay_ms, 300000)"),
        ("[recovery]\nmax_delay_ms = 1", "2: recovery.max_delay_ms: the first wait (base_delay_ms, 15000) is longer than"),
        ("[context]\ncompact_threshold = 0", "2: context.compact_threshold: expected a whole number of at least 1 or"),
        ("[[loops]]\ninstructions = 'x'", "1: loops[0]: the field 'name' is missing"),
        ('[[loops]]\nname = "main"', '2: loops[0].name: "main" always exists and is not declared'),
        ('[[loops]]\nname = "Res"', "2: loops[0].name: expected a loop's name (at most 32 of a-z, 0-9, _ and -"),
        ('[[loops]]\nname = "a"\n[[loops]]\nname = "a"', "4: loops[1].name: the loop 'a' is declared above already"),
        ('[[loops]]\nname = "a"\ntools = ["x", "y", "x"]', "3: loops[0].tools[2]: 'x' is in the list already"),
        ('[[loops]]\nname = "a"\nmax_turns = 3', "3: loops[0].max_turns: unknown field 'max_turns'"),
        ("[loops]\nname = 'a'", "1: loops: expected a list, got an object: write [[loops]], with two brackets, above"),
        ("[tools.pay]\nrestricted = true", "1: tools: expected a list, got an object: write [[tools]], with two brackets"),
        (f"[limits]\nabort_grace = 1{'0' * 400}", "2: limits.abort_grace: expected a number of at least 0 or \"none\", got 1000"),
        ("".join(f'[[loops]]\nname = "l{i}"\n' for i in range(17)), "1: loops: expected at most 16 of them, got 17"),
        ('[[tools]]\nname = "x"\n[[tools]]\nname = "x"', "4: tools[1].name: the tool 'x' is declared above already"),
        ('[[tools]]\nname = "x"\nreplay = "safe"', "3: tools[0].replay: 'safe' is not one of 'never'"),
        ('workspace = "nowhere"', "1: workspace: there is no folder 'nowhere' in "),
        ('hooks_dir = "beforehand.toml"', "1: hooks_dir: there is no folder 'beforehand.toml' in "),
        ('workspace = "."', "1: workspace: this project file lies in it, where lambdas can write"),
        ('workspace = ".."', "1: workspace: this project file lies in it"),
        ('workspace = "agent"\nhooks_dir = "agent/lib"', "2: hooks_dir: it lies in the workspace, where lambdas can write"),
        (
            'workspace = "agent"\n[pre_llm_hook]\nscope = "main"\nsource = "../x.ts:f"',
            "4: pre_llm_hook.source: the path '../x.ts' has a `..`: paths stay inside the workspace",
        ),
        (
            'workspace = "agent"\n[pre_llm_hook]\nsource = "/etc/x.ts"',
            "3: pre_llm_hook.source: the path '/etc/x.ts' is absolute: paths begin at the workspace",
        ),
        ('[pre_llm_hook]\nsource = "lib/x.py"', "1: pre_llm_hook: the field 'workspace' is missing beside it"),
        ("model = ", "1: : this is not TOML: Invalid value"),
        ("model = 'a'\nmodel = 'b'", "2: : this is not TOML: Cannot overwrite a value"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line_its_field_and_what_was_expected(folder, text, mistake):
    folder.toml(text)
    found = folder.mistakes()
    assert len(found) == 1
    assert found[0].startswith(mistake)


def test_a_field_that_came_to_stand_below_a_table_is_told_where_it_belongs(folder):
    folder.toml("[limits]\nmax_turns = 3\nmodel = 'openai:x'")
    (mistake,) = folder.mistakes()
    assert mistake.startswith("3: limits.model: unknown field 'model'")
    assert mistake.endswith("; 'model' belongs to the whole file: write it above the first [table]")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[]", "1: : expected an object, got a list"),
        ("null", "1: : expected an object, got null"),
        ('{\n "model": "a",\n "model": "b"\n}', "3: model: the field stands here a second time"),
        ('{"model": null}', "1: model: expected a string, got null: leave the field out to say nothing"),
        ('{"limits": {"max_turns": null}}', '1: limits.max_turns: expected a whole number of at least 1 or "none", got null'),
        (json.dumps({"workspace": "x" * 5000}), "1: workspace: there is no folder 'xxx"),
        ('{"workspace": "a\\u0000b"}', "1: workspace: there is no folder"),
        ('{"limits": {"max_turns": 99999999999999999999}}', "1: limits.max_turns: "),
        ("", "1: : this is not JSON: the file is empty"),
        ('{"model": }', "1: : this is not JSON"),
        ("[" * 100_000, "1: : "),
    ],
)
def test_mistakes_only_json_can_make(folder, text, mistake):
    folder.json(text)
    found = folder.mistakes()
    assert len(found) == 1
    assert found[0].startswith(mistake)


def test_all_mistakes_are_told_at_once_and_nothing_counts(folder):
    folder.toml("modle = 1\n[limits]\nmax_turns = 0\n[pre_llm_hook]\ntimeout_ms = 1\n[[loops]]\nname = 'main'\n")
    assert [line.rpartition(": ")[0].partition(": ")[2].partition(":")[0] for line in folder.mistakes()] == [
        "modle", "limits.max_turns", "pre_llm_hook.timeout_ms", "pre_llm_hook", "loops[0].name",
    ]  # fmt: skip
    with pytest.raises(ProjectFileError, match=r"^5 mistakes in the project file, so nothing of it counts:\n"):
        read_project(folder.root)


def test_the_error_survives_another_process(folder):
    folder.toml("modle = 1")
    with pytest.raises(ProjectFileError) as raised:
        read_project(folder.root)
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301
    assert (str(again), again.problems, again.exit_code) == (str(raised.value), raised.value.problems, 2)


def test_a_project_is_found_by_file_or_folder(folder):
    with pytest.raises(ConfigError, match=r"there is no project file in .*: expected beforehand.toml or beforehand.json"):
        find_project(folder.root)
    file = folder.toml("")
    assert find_project(folder.root) == find_project(file) == file
    other = folder.root / "other.json"
    other.write_text("{}")
    assert read_project(other).settings == ProjectSettings()
    folder.json({})
    with pytest.raises(ConfigError, match=r"has both beforehand.toml and beforehand.json: name the one that counts"):
        find_project(folder.root)
    with pytest.raises(ConfigError, match=r"there is no project file none.toml"):
        find_project("none.toml")
    with pytest.raises(ConfigError, match=r"x.yaml is no project file: its name must end in .toml or .json"):
        find_project("x.yaml")


def test_a_workspace_behind_a_symlink_must_not_hold_the_project_file_either(folder):
    (folder.root / "alias").symlink_to(folder.root)
    folder.toml('workspace = "alias"')
    assert folder.mistakes()[0].startswith("1: workspace: this project file lies in it")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from(
    ["all", "main", "loops", "never", "none", "lib/x.py", "lib/x.ts:f", "a", "fs_read", 1000, 0, True, 1.5, [], ["a"], {}]
)
BLOCKS = {
    name: kind.__struct_fields__
    for name, kind in [
        ("pre_llm_hook", PreLlmHook), ("limits", LimitSettings), ("code_execution", CodeExecution),
        ("recovery", RecoverySettings), ("context", ContextSettings), ("loops", LoopSettings), ("tools", ToolSettings),
    ]
}  # fmt: skip


@st.composite
def nearly_projects(draw):
    """What is nearly a project, or is one."""
    whole = {}
    for name in draw(st.lists(st.sampled_from(ProjectSettings.__struct_fields__), max_size=5, unique=True)):
        if name not in BLOCKS or draw(st.integers(0, 9)) == 0:
            whole[name] = draw(WORDS | ANY)
            continue

        def block(fields=BLOCKS[name]):
            return st.dictionaries(st.sampled_from(fields), WORDS | ANY, max_size=4)

        whole[name] = draw(st.lists(block(), max_size=3) if name in ("loops", "tools") else block())
    return whole


@given(nearly_projects())
@settings(max_examples=400, deadline=None)
def test_whatever_a_file_holds_it_is_settings_or_mistakes_with_a_line(tmp_path_factory, value):
    root = tmp_path_factory.mktemp("p")
    (root / "lib").mkdir()
    file = root / "beforehand.json"
    file.write_text(json.dumps(value))
    problems, settings = (), ProjectSettings()
    try:
        settings = read_project(file).settings
    except ProjectFileError as error:
        problems = error.problems
    assert all(p.line == 1 and p.message for p in problems)
    assert problems or all(getattr(settings, name) == said for name, said in value.items() if name not in BLOCKS)


@given(st.text() | st.binary())
@settings(max_examples=200, deadline=None)
def test_no_text_at_all_breaks_the_reader(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("p")
    for name in ("a.toml", "a.json"):
        (root / name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        try:
            read_project(root / name)
        except ProjectFileError:
            pass
