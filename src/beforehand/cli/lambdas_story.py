"""The train story with lambdas for its hooks: two files in a workspace, and what befalls them.

The company lets anybody in it write such files. So they run in sandboxes, and when one of them breaks, nothing passes.
"""

from __future__ import annotations

from typing import Any, Literal

from ..tools import tool

NOTE = "Employees travel in tourist class. The director may travel in first class."
REASON = "First class needs the director's approval. Book tourist instead."

FILES = {
    "lib/company-note.ts": """\
export async function transform({ request, loop }) {
  const note = await adf.fs_read({ path: "notes/travel.txt" })
  console.log(`the note goes with a request of ${loop.name}`)
  return { ...request, system: `${request.system}\\n${note.content}` }
}
""",
    "lib/seats.py": """\
async def gate(call):
    rule = await adf.fs_read(path="rules/first-class.txt")
    if call["args"]["seat_class"] == "first":
        return {"type": "block", "reason": rule["content"]}
""",
    "notes/travel.txt": NOTE,
    "rules/first-class.txt": REASON,
}
"""The workspace, by path."""

@tool
async def book_ticket(train: int, seat_class: Literal["first", "tourist"]) -> str:
    """Book one seat on a train for the employee who is asking."""
    coach, seat = (1, "4A") if seat_class == "first" else (6, "31C")
    return f"Booked: train {train}, {seat_class} class, coach {coach}, seat {seat}"


RUNS_WILD = "export function transform() { while (true) {} }\n"


def reply_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The scripted model: looks at the last message of the wire request and answers in the wire's own form."""
    last = messages[-1]
    if last["role"] != "tool":
        return _books("I book the most comfortable seat.", len(messages), "first")
    if last["content"].startswith("Booked: "):
        return {"role": "assistant", "content": f"You are on your way: {last['content'].removeprefix('Booked: ')}"}
    if last["content"] == REASON:
        return _books("Then tourist class.", len(messages), "tourist")
    return {"role": "assistant", "content": "I could not book anything: somebody has to look at the booking rules first."}


def _books(said: str, number: int, seat: str) -> dict[str, Any]:
    function = {"name": "book_ticket", "arguments": f'{{"train": 305, "seat_class": "{seat}"}}'}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": said, "tool_calls": [call]}
