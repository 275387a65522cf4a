"""`beforehand check`: rule files and project files, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..config import Project, ProjectFileError, read_project
from ..config.project import is_project, shown_path
from ..config.targets import described
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
    print(report)
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

    try:
        check_parts(project)
    except ConfigError as error:
        print(f"error: {error}")
        return False
    return True
