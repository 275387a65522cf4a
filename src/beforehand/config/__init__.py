"""Project files: settings read strictly, and live where they may change."""

from ..settings import (
    CodeExecution, ContextSettings, LimitSettings, LoopSettings, PreLlmHook, ProjectSettings, Recovery, ToolSettings,
)  # fmt: skip

__all__ = [
    "CodeExecution", "ContextSettings", "LimitSettings", "LoopSettings", "PreLlmHook", "ProjectSettings", "Recovery",
    "ToolSettings",
]  # fmt: skip
