"""Project files: settings read strictly, and live where they may change."""

from ..settings import (
    CodeExecution, ContextSettings, LimitSettings, LoopSettings, PreLlmHook, ProjectSettings, RecoverySettings, ToolSettings,
)  # fmt: skip
from .project import Project, ProjectFileError, find_project, read_project

__all__ = [
    "CodeExecution", "ContextSettings", "LimitSettings", "LoopSettings", "PreLlmHook", "Project", "ProjectFileError",
    "ProjectSettings", "RecoverySettings", "ToolSettings", "find_project", "read_project",
]  # fmt: skip
