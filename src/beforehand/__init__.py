"""beforehand: an agent core whose hooks run before a decision can no longer be taken back."""

from .agent import Agent
from .conversation import Conversation
from .decisions import (
    Answer, Approve, Ask, Block, Continue, Deny, Drop, Edit, End, Hold, Interrupt, PendingApproval, Queue, Replace, Resend,
    Steer,
)  # fmt: skip
from .errors import (
    AuthenticationError, BadRequest, BeforehandError, ConfigError, ContextTooLong, ConversationBusy, FrozenError,
    HookDefinitionError, HookFailed, InvalidResponse, JournalError, JournalUnreadable, ModelError, NetworkError,
    NothingToContinue, RateLimited, RequestBlocked, RequestTooLarge, RunBusy, RunChanged, RunError, ServerError,
    ToolDefinitionError, ToolMismatch, UnknownAnswer, UnknownModel, UnknownRun, UsageError,
)  # fmt: skip
from .events import DecisionRecord, Event
from .hooks.hook import Hook, hook
from .limits import Limits, Recovery
from .messages import (
    AssistantMessage, Audio, CustomMessage, Image, Message, Options, Price, Request, SystemMessage, Text, Thinking, ToolCall,
    ToolMessage, ToolSpec, Usage, UserMessage, Video,
)  # fmt: skip
from .models.base import Model
from .plan import Loop
from .results import RunResult
from .seams import Context, RunInfo
from .tools import Tool, ToolContext, ToolResult, tool

__version__ = "0.1.0"

__all__ = [
    "Agent", "Answer", "Approve", "Ask", "AssistantMessage", "Audio", "AuthenticationError", "BadRequest",
    "BeforehandError", "Block", "ConfigError", "Context", "ContextTooLong", "Continue", "Conversation", "ConversationBusy",
    "CustomMessage", "DecisionRecord", "Deny", "Drop", "Edit", "End", "Event", "FrozenError", "Hold", "Hook",
    "HookDefinitionError", "HookFailed", "Image", "Interrupt", "InvalidResponse", "JournalError", "JournalUnreadable",
    "Limits", "Loop", "Message", "Model", "ModelError", "NetworkError", "NothingToContinue", "Options", "PendingApproval",
    "Price", "Queue", "RateLimited", "Recovery", "Replace", "Request", "RequestBlocked", "RequestTooLarge", "Resend",
    "RunBusy", "RunChanged", "RunError", "RunInfo", "RunResult", "ServerError", "Steer", "SystemMessage", "Text",
    "Thinking", "Tool", "ToolCall", "ToolContext", "ToolDefinitionError", "ToolMessage", "ToolMismatch", "ToolResult",
    "ToolSpec", "UnknownAnswer", "UnknownModel", "UnknownRun", "Usage", "UsageError", "UserMessage", "Video", "hook", "tool",
]  # fmt: skip
