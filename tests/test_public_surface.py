"""The public names, pinned: taking one away or adding one is a decision, and shows in a diff of this file."""

from __future__ import annotations

import inspect

import beforehand
import beforehand.testing

EXPECTED = (
    "Agent", "Answer", "Approve", "Ask", "AssistantMessage", "Audio", "AuthenticationError", "BadRequest",
    "BeforehandError", "Block", "ConfigError", "Context", "ContextTooLong", "Continue", "Conversation", "ConversationBusy",
    "CustomMessage", "DecisionRecord", "Deny", "Drop", "Edit", "End", "Event", "FrozenError", "Hold", "Hook",
    "HookDefinitionError", "HookFailed", "Image", "Interrupt", "InvalidResponse", "JournalError", "JournalUnreadable",
    "Limits", "Loop", "Message", "Model", "ModelError", "NetworkError", "NothingToContinue", "Options", "PendingApproval",
    "Price", "Queue", "RateLimited", "Recovery", "Replace", "Request", "RequestBlocked", "RequestTooLarge", "Resend",
    "RunBusy", "RunChanged", "RunError", "RunInfo", "RunResult", "ServerError", "Steer", "SystemMessage", "Text",
    "Thinking", "Tool", "ToolCall", "ToolContext", "ToolDefinitionError", "ToolMessage", "ToolMismatch", "ToolResult",
    "ToolSpec", "UnknownAnswer", "UnknownModel", "UnknownRun", "Usage", "UsageError", "UserMessage", "Video", "hook", "tool",
)  # fmt: skip
"""`beforehand.__all__`, sorted. Change it together with `src/beforehand/__init__.py`, and tell users in CHANGELOG.md."""


EXPECTED_FOR_TESTING = (
    "FunctionModel", "ScriptedModel", "cut", "delay", "error", "finish", "text", "thinking", "tool_call",
)  # fmt: skip
"""`beforehand.testing.__all__`, sorted."""


def public_names() -> list[str]:
    return list(getattr(beforehand, "__all__", ()))


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(public_names()) == sorted(EXPECTED)


def test_the_names_for_testing_are_exactly_these() -> None:
    assert sorted(beforehand.testing.__all__) == sorted(EXPECTED_FOR_TESTING)


def test_no_public_name_is_listed_twice_or_private() -> None:
    names = public_names()
    assert len(names) == len(set(names))
    assert [name for name in names if name.startswith("_") and name != "__version__"] == []


def test_every_public_name_can_be_had() -> None:
    assert [name for name in public_names() if not hasattr(beforehand, name)] == []


def test_every_public_class_and_function_says_what_it_is_for() -> None:
    # `__doc__`, not `inspect.getdoc`: a docstring inherited from a base class tells nothing about this one.
    silent = [
        name
        for name in public_names()
        if (inspect.isclass(thing := getattr(beforehand, name)) or inspect.isroutine(thing)) and not (thing.__doc__ or "").strip()
    ]
    assert silent == []
