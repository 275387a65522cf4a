"""The shape of the package: who may import whom, how large a piece may grow, and what an import costs.

Deferred and type-only imports count like any other: a cycle hidden in a function is still a cycle to the reader.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

LAYERS = (
    # Bottom up. A module imports from lower rows only; those that share a row never import each other.
    ("errors",),
    ("frozen",),
    ("messages", "ids", "keys", "limits", "signals", "schema", "detach", "documents"),
    ("history", "remedies", "settings"),
    ("decisions", "validity"),
    ("events",),
    ("contexts", "observer", "prompts"),
    ("emitter",),
    ("seams",),
    ("tools",),
    ("plan", "queues", "waits"),
    ("state",),
    ("hooks", "stream", "sandbox", "journal", "models"),
    ("rules",),
    ("comparing",),
    ("shadow",),
    ("calls", "draft"),
    ("intents", "observing"),
    ("gating",),
    ("toolcall",),
    ("request", "respond"),
    ("direct",),
    ("workspace",),  # lambdas call tools and the model
    ("batch", "compaction", "closing", "replies"),
    ("recovery",),
    ("loop",),
    ("results",),
    ("eventstream", "channel"),
    ("durable",),
    ("rehearsal",),
    ("conversation", "backtest", "answering"),
    ("innerloops",),
    ("subagent", "config"),
    ("assembly",),
    ("agent",),
    ("testing", "engine", "otel"),
    ("cli",),
    ("__main__",),
    ("__init__",),  # the public names: may import whatever has no underscore in front
)

MAX_MODULE_LINES = {"beforehand.loop": 300}  # the others: 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8  # besides self and cls

EXCEPTIONS = {
    # "module:qualified.name": why this one may be larger than the limits above
    "beforehand.agent:Agent.__init__": "one keyword for each part of the plan; they are the documented face of an agent",
    "beforehand.cli.recorded:resume": "one parameter for each option of the command; typer reads them off the signature",
    "beforehand.cli.app:run": "one parameter for each option of the command; typer reads them off the signature",
}

PACKAGE = "beforehand"
SOURCE = Path(__file__).parent.parent / "src" / PACKAGE
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row}

Edges = dict[str, dict[str, int]]
"""For each module the modules it imports, with the line."""


# -- Reading the imports


@cache
def sources() -> dict[str, tuple[Path, str]]:
    """Every module of the package by dotted name: its file and text."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))
        found[name] = path, path.read_text(encoding="utf-8")
    return found


def imports(name: str, is_package: bool, text: str, known: Container[str]) -> dict[str, int]:
    """The modules of this package that one module imports, wherever in its text, with the first line that does."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(text)):
        for source, value in _imported(node, name if is_package else name.rpartition(".")[0]):
            # `from .messages import Text` takes a value out of a module, `from . import messages` the module itself.
            module = f"{source}.{value}" if f"{source}.{value}" in known else source
            if module != name and module.partition(".")[0] == PACKAGE:
                found.setdefault(module, getattr(node, "lineno", 0))
    return found


def _imported(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """What one statement imports: the module it names, made absolute, and what it takes out of it."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = node.module or ""
        if node.level:
            parents = package.split(".")
            source = ".".join([*parents[: len(parents) - node.level + 1], *([source] if source else [])])
        yield from ((source, alias.name) for alias in node.names)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        target = node.args[0].value
        if called in ("import_module", "__import__") and isinstance(target, str):
            yield (package + target if target.startswith(".") else target), ""


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def violations(edges: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What is wrong with these imports, one sentence each."""
    wrong = [
        f"{module}: {layer(module)!r} is in no layer: add it to LAYERS in tests/test_layers.py"
        for module in edges
        if layer(module) not in LEVEL
    ]
    for module, imported in edges.items():
        for other, line in imported.items():
            here, there = layer(module), layer(other)
            if here == there or here not in LEVEL or there not in LEVEL:
                continue
            if LEVEL[there] > LEVEL[here]:
                wrong.append(f"{module}:{line} imports upward: {other} ({there!r} is above {here!r})")
            elif LEVEL[there] == LEVEL[here]:
                wrong.append(f"{module}:{line} imports a sibling: {other} ({there!r} and {here!r} share a row)")
            elif here == "__init__" and any(part.startswith("_") for part in other.split(".")):
                wrong.append(f"{module}:{line} imports what is private: {other}")
    return wrong


def cycles(edges: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Every import cycle once, drawn as a chain."""
    found: dict[frozenset[str], str] = {}
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            ring = path[path.index(module) :]
            found.setdefault(frozenset(ring), " -> ".join([*ring, module]))
        elif module not in done:
            for other in edges.get(module, {}):
                visit(other, [*path, module])
            done.add(module)

    for module in edges:
        visit(module, [])
    return list(found.values())


def package_edges(files: Mapping[str, tuple[bool, str]]) -> Edges:
    return {name: imports(name, is_package, text, files) for name, (is_package, text) in files.items()}


@cache
def edges() -> Edges:
    return package_edges({name: (path.stem == "__init__", text) for name, (path, text) in sources().items()})


# -- The layers


def test_no_module_stands_in_two_layers() -> None:
    twice = [name for name, times in Counter(name for row in LAYERS for name in row).items() if times > 1]
    assert not twice, twice


def test_imports_go_down_only() -> None:
    wrong = violations(edges())
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_ring() -> None:
    rings = cycles(edges())
    assert not rings, "\n".join(rings)


@pytest.mark.parametrize(
    ("module", "text", "complaint"),
    [
        ("beforehand.errors", "from .messages import Text", "imports upward"),
        ("beforehand.errors", "from beforehand.messages import Text", "imports upward"),
        ("beforehand.errors", "import beforehand.messages", "imports upward"),
        ("beforehand.errors", "from . import messages", "imports upward"),
        ("beforehand.errors", "def later():\n    from .messages import Text", "imports upward"),
        ("beforehand.errors", "if TYPE_CHECKING:\n    from .messages import Text", "imports upward"),
        ("beforehand.errors", "importlib.import_module('beforehand.messages')", "imports upward"),
        ("beforehand.errors", "import_module('.messages', __package__)", "imports upward"),
        ("beforehand.errors", "from beforehand import Text", "imports upward"),
        ("beforehand.hooks.dispatch", "from ..loop import run", "imports upward"),
        ("beforehand.hooks.dispatch", "from ..models.base import Model", "imports a sibling"),
        ("beforehand.limits", "from .messages import Text", "imports a sibling"),
        ("beforehand.limits", "from .agent import Agent  # which nobody has written yet", "imports upward"),
        ("beforehand", "from ._private import secret", "in no layer"),
        ("beforehand", "from .hooks._private import secret", "imports what is private"),
    ],
)
def test_an_import_against_the_layers_is_found_however_it_is_written(module: str, text: str, complaint: str) -> None:
    names = ("errors", "messages", "limits", "loop", "hooks", "hooks.dispatch", "hooks._private", "models", "models.base")
    files = {f"beforehand.{name}": (name in ("hooks", "models"), "") for name in names}
    if "_private import" in text and "hooks" not in text:
        files["beforehand._private"] = False, ""
    files["beforehand"] = True, ""
    files[module] = module == "beforehand", text

    found = violations(package_edges(files))

    assert len(found) == 1, found
    assert complaint in found[0]


def test_a_downward_import_is_fine_and_so_is_one_inside_a_package() -> None:
    files = {
        "beforehand": (True, "from .hooks import Hook\nfrom .errors import BeforehandError"),
        "beforehand.errors": (False, "from __future__ import annotations\nimport os.path\nfrom typing import Any"),
        "beforehand.hooks": (True, "from .dispatch import Dispatcher\nfrom .hook import Hook"),
        "beforehand.hooks.hook": (False, "from ..errors import BeforehandError"),
        "beforehand.hooks.dispatch": (False, "from .hook import Hook\nfrom ..errors import BeforehandError"),
    }
    found = package_edges(files)
    assert violations(found) == []
    assert cycles(found) == []
    assert set(found["beforehand.hooks.dispatch"]) == {"beforehand.hooks.hook", "beforehand.errors"}


def test_a_ring_inside_one_package_is_found() -> None:
    files = {
        "beforehand.hooks": (True, ""),
        "beforehand.hooks.hook": (False, "def late():\n    from .registry import Registry"),
        "beforehand.hooks.registry": (False, "from .dispatch import dispatch"),
        "beforehand.hooks.dispatch": (False, "from .hook import Hook"),
    }
    (ring,) = cycles(package_edges(files))
    assert ring.count(" -> ") == 3


def test_a_module_that_no_layer_names_says_where_to_add_it() -> None:
    (complaint,) = violations({"beforehand.surprise.inner": {}})
    assert "'surprise' is in no layer: add it to LAYERS" in complaint


# -- The sizes


def functions(text: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + child.name, child
            inside = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside += child.name + "."
            yield from walk(child, inside)

    return walk(ast.parse(text), "")


def oversize(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    lines = (function.end_lineno or 0) - function.lineno + 1
    args = function.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    parameters = sum(1 for arg in named if arg.arg not in ("self", "cls"))
    if lines > MAX_FUNCTION_LINES:
        return f"has {lines} lines, more than {MAX_FUNCTION_LINES}"
    if parameters > MAX_PARAMETERS:
        return f"has {parameters} parameters, more than {MAX_PARAMETERS}"
    return None


def test_a_module_can_be_read_in_one_sitting() -> None:
    long = []
    for module, (_, text) in sources().items():
        lines, most = len(text.splitlines()), MAX_MODULE_LINES.get(module, 400)
        if lines > most:
            long.append(f"{module} has {lines} lines, more than {most}: it is probably two things")
    assert not long, "\n".join(long)


def test_a_function_fits_a_screen_and_a_call_fits_a_head() -> None:
    large = [
        f"{module}:{function.lineno} {name} {why}"
        for module, (_, text) in sources().items()
        for name, function in functions(text)
        if (why := oversize(function)) and f"{module}:{name}" not in EXCEPTIONS
    ]
    assert not large, "\n".join(large)


def test_every_exception_is_still_needed() -> None:
    written = {module for module, (_, text) in sources().items() if text.strip()}
    needed = {
        f"{module}:{name}"
        for module, (_, text) in sources().items()
        for name, function in functions(text)
        if oversize(function)
    }
    stale = [name for name in EXCEPTIONS if name.partition(":")[0] in written and name not in needed]
    assert not stale, f"take out of EXCEPTIONS: {stale}"


def test_the_size_of_a_function_counts_every_parameter_but_self() -> None:
    text = """
class A:
    def small(self, a, /, b, *c, d, e, f, g, **h): ...
    def large(self, a, b, c, d, e, f, g, h, i): ...
"""
    sizes = {name: oversize(function) for name, function in functions(text)}
    assert sizes == {"A.small": None, "A.large": "has 9 parameters, more than 8"}


# -- What an import brings along


def test_importing_the_package_loads_no_third_party_module_but_msgspec() -> None:
    script = (
        "import sys, msgspec\n"
        "before = set(sys.modules)\n"  # msgspec with whatever it imports itself
        "import beforehand\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert PACKAGE in loaded
    assert sorted(loaded - {PACKAGE, "msgspec"} - sys.stdlib_module_names) == []


# -- What the sources must not name

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/\w|" + re.escape(str(SOURCE.parent.parent)) + r"\b")
PACKAGE_INDEX = re.compile(r"\b(?:pypi|npmjs|pythonhosted)\b", re.IGNORECASE)


@pytest.mark.parametrize(
    ("what", "pattern"), [("a path of one machine", MACHINE_PATH), ("a package index", PACKAGE_INDEX)], ids=["path", "index"]
)
def test_the_sources_name_nothing_that_exists_in_one_place_only(what: str, pattern: re.Pattern[str]) -> None:
    files = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    named = [
        f"{path.relative_to(SOURCE)}:{number} names {what}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not named, "\n".join(named)
