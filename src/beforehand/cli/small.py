"""The train story with a small real model on this machine: `beforehand demo --local`.

The model has 135 million parameters. It chooses the arguments of calls, not always well. The order of the steps is a
hook's work, and so is the last sentence, because what such a model says of a booking is made up. What may happen at
all is decided by the story's two hooks, as with any other model.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..decisions import Answer, Replace
from ..frozen import freeze
from ..hooks.hook import hook
from ..messages import ToolSpec

STEPS = ("find_trains", "book_ticket")


@hook.before_provider_call
def one_step_at_a_time(call: Any) -> Replace:
    """Offers only the next step, requires it, and leaves out what was refused. A tool hidden here still has its gates."""
    request = call.request
    results = {m.tool_name: m for m in request.messages if m.role == "tool"}
    step = next((name for name in STEPS if name not in results or results[name].is_error), None)
    tools = tuple(_without_first_class(tool) if step in results else tool for tool in request.tools if tool.name == step)
    options = msgspec.structs.replace(request.options, tool_choice="required" if tools else None)
    return Replace(request=msgspec.structs.replace(request, tools=tools, options=options))


@hook.authorize_request
def the_tool_speaks_for_itself(outgoing: Any) -> Answer | None:
    """Once a seat is booked there is nothing to ask the model: the answer is what the tool said. No request leaves."""
    last = outgoing.request.messages[-1]
    booked = last.role == "tool" and last.tool_name == STEPS[-1] and not last.is_error
    return Answer(last.text) if booked else None


def _without_first_class(tool: ToolSpec) -> ToolSpec:
    properties = dict(tool.parameters["properties"])
    if "seat_class" in properties:
        properties["seat_class"] = {**properties["seat_class"], "enum": ["tourist"]}
    return ToolSpec(tool.name, tool.description, freeze({**tool.parameters, "properties": properties}))
