"""Two hooks for `beforehand run --hooks examples/train_hooks.py`; `beforehand hooks` with the same option lists them."""

import re

from beforehand import Ask, Replace, hook
from beforehand.seams import CallOutcome, PendingCall


@hook.before_tool_call(tools=["book_ticket"])
def first_class_needs_a_manager(call: PendingCall) -> Ask | None:
    if call.args["seat_class"] == "first":
        return Ask(f"May train {call.args['train']} be booked in first class?")
    return None


@hook.after_tool_call
def identity_numbers_stay_here(outcome: CallOutcome) -> Replace | None:
    stamped = re.sub(r"DNI [\d.]+", "DNI ***", outcome.text)
    return Replace(content=stamped) if stamped != outcome.text else None
