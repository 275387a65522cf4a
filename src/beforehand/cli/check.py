"""`beforehand check`: rule files and project files, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..assembly import load_model
from ..config import Project, ProjectFileError, read_project
from ..config.project import is_project, shown_path
from ..config.targets import described
from ..documents.places import Path as Field
from ..errors import ConfigError


def check_paths(paths: Sequence[Path]) -> bool:
    """Print everything there is to say. Whether nothing is wrong."""
    right = True
    rules: list[Path] = []
    for path in paths:
        if not is_project(path):
            rules.append(path)
            continue
        try:
            project = read_project(path)
        except ProjectFileError as error:
            right = False
            for problem in error.problems:
                print(f"error: {problem}")
            continue
        right = check_project(project) and right
        folder = project.path("hooks_dir")
        rules += [] if folder is None else [Path(shown_path(folder))]
    if not rules:
        return right
    from ..rules import check

    report = check(rules)
    print(report if right else str(report).replace(", nothing wrong", ", nothing wrong in them"))
    return report.ok and right


def check_project(project: Project) -> bool:
    """Say what a project file without mistakes comes to. Whether its lambda and its tools can run."""
    settings = project.settings
    loops = ", ".join([loop.name for loop in settings.loops]) or "none"
    tools = ", ".join([tool.name for tool in settings.tools]) or "none"
    print(f"{shown_path(project.file)}: model {settings.model or '-'}, inner loops: {loops}, tools declared: {tools}")
    if settings.pre_llm_hook is not None:
        print("pre_llm_hook " + "\n".join(described(settings)))
    from ..config.parts import check_parts

    problems = _models(project)
    try:
        check_parts(project)
    except ConfigError as error:
        problems.append(str(error))
    for problem in problems:
        print(f"error: {problem}")
    return not problems


def _models(project: Project) -> list[str]:
    """What is wrong with the models it names: each is made once, and asked for nothing."""
    settings = project.settings
    named: list[tuple[Field, str | None]] = [(("model",), settings.model)]
    named += [(("loops", i, "model"), loop.model) for i, loop in enumerate(settings.loops)]
    problems: list[str] = []
    for where, name in named:
        try:
            if name is not None:
                load_model(name, settings.base_url)
        except ConfigError as error:
            problems.append(str(project.problem(where, str(error))))
    return problems
