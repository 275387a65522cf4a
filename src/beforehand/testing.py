"""For testing agents: models that say what you tell them to.

model = ScriptedModel([tool_call("add", {"a": 1, "b": 2}), text("3")])
result = await Agent(model=model, tools=[add]).run("1 + 2?")
assert model.requests[1].messages[-1].text == "3"
"""

from .models.scripted import (
    FunctionModel, ScriptedModel, cut, delay, error, finish, text, thinking, tool_call,
)  # fmt: skip

__all__ = ["FunctionModel", "ScriptedModel", "cut", "delay", "error", "finish", "text", "thinking", "tool_call"]
