"""Messages that hooks are still to judge: the journal says that they came, and keeps what the hooks let pass.

A hook at 10 may take a card number out of a prompt, or refuse it. So what a prompt or a queued message says is on record
once it is in the history, as it stands there, and until then only its role is. Whoever reads the record finds it in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import UsageError
from ..messages import LOST, AssistantMessage, CustomMessage, Message, ToolMessage
from .details import kept

FIRST_CHARS = 400
"""How much of the first prompt is told at a run's end, for those who list runs."""

Keep = Callable[[Message], Any]


def withheld(message: Message) -> dict[str, Any]:
    """A message, to be written without anything that it says."""
    told: dict[str, Any] = {"role": message.role, "content": "", "origin": message.origin, "withheld": True}
    if isinstance(message, AssistantMessage):
        told["content"] = []
    elif isinstance(message, CustomMessage):
        told["kind"] = message.kind
    elif isinstance(message, ToolMessage):
        told |= {"tool_call_id": message.tool_call_id, "tool_name": message.tool_name}
    return told


def is_withheld(written: Any) -> bool:
    return isinstance(written, dict) and written.get("withheld") is True


def was_withheld(written: Any) -> bool:
    """Whether it was written so, though its message may have turned up since."""
    return isinstance(written, dict) and "withheld" in written


def lost(written: dict[str, Any]) -> dict[str, Any]:
    """What stands in the place of a message that is not on record."""
    return {**written, "content": [{"type": "text", "text": LOST}] if written["role"] == "assistant" else LOST}


def let_pass(seam: str, ruling: Any, keep: Keep) -> dict[str, Any]:
    """Of what the hooks of a seam replaced, what is written: at 1 and 10 nothing of what other hooks refused, or will judge."""
    changes: dict[str, Any] = ruling.changes
    if ruling.verdict is not None and seam in ("before_run", "on_message"):
        return {}
    if seam == "before_run" and changes and keep is withheld:
        return {"messages": [keep(message) for message in ruling.context.messages]}
    return changes


def judged_later(run: Any, seam: str, context: Any) -> bool:
    """Whether hooks at 13 are still to judge what one of this seam gives as a call's result."""
    return seam == "before_tool_call" and bool(run.hooks.for_tool("after_tool_call", context.tool.name))


def who_answered(ruling: dict[str, Any]) -> set[str]:
    """The hooks at 12 that had answered for a call, where what they gave counts and was withheld for those at 13.

    Those who had asked a person beside them, too: it takes all of them to say the same again.
    """
    heard = ruling.get("heard", ())
    if any([verdict["is"] in ("Block", "Interrupt", "Steer") for verdict, *_ in heard]):
        return set()
    return {name for _, name, _ in heard} if any([is_withheld(verdict) for verdict, *_ in heard]) else set()


def not_run(ruling: dict[str, Any], hook: str) -> dict[str, Any]:
    """Such a ruling where this one cannot be asked again: the tool is not run in its place."""
    answers = any([is_withheld(verdict) for verdict, name, _ in ruling["heard"] if name == hook])
    did = "answered for this call, what it gave" if answers else "asked a person about this call, an answer beside that"
    why = f"Not run: hook {hook!r} had {did} is not on record, and it is not there any more."
    return {**ruling, "heard": [*ruling["heard"], ({"is": "Block", "reason": why, "terminate": False}, hook, "")]}


def find(places: Any, place: Any, message: dict[str, Any]) -> None:
    """A message has turned up that was withheld: put it where it came from."""
    if is_withheld(before := places[place]):
        where = before["origin"]  # says in which queue it is to wait again, and a hook may have made it another
        places[place] = {**message, "origin": where, "withheld": False}


def find_message(past: Any, message: dict[str, Any]) -> None:
    """A message has entered the history: it may be one that was withheld."""
    place, number = message.get("prompt"), message.get("queued")
    if place is not None and place < len(past.prompts):
        find(past.prompts, place, message)
    elif number is not None:
        find(past.queued, number, message)


def give(past: Any, prompts: Sequence[Any]) -> None:
    """Somebody still has the prompts of a run. What hooks at 1 made of them is asked of them again, if it is not on record."""
    start = past.start["prompts"]
    for place, prompt in enumerate(prompts[: len(start)]):
        find(start, place, prompt)
    if prompts and not past.messages and any(map(is_withheld, past.prompts)):
        past.prompts = start
        if not any([item.data.get("heard") for item in past.line]):  # what hooks have refused they need not see again
            past.line.clear()


def find_prompts(past: Any, ruling: dict[str, Any]) -> None:
    """What is known of the prompts once the hooks at 1 have been asked."""
    if ruling["seam"] != "before_run":
        return
    past.line.clear()  # if they have been asked before, the run has begun anew since then
    if "messages" in (changes := ruling.get("changes", {})):
        past.prompts = changes["messages"]
    for place, prompt in enumerate(ruling.get("prompts", ())):
        find(past.prompts, place, prompt)


class Intake:
    """What a turn takes in, one message after the other: each is judged at seam 10, and then stored.

    `keep` writes a message that is not judged yet; `hidden` says whether the run's prompts were withheld.
    """

    keep: Keep = staticmethod(kept)
    hidden = False
    number_of: Callable[[Message], int | None]
    """The number under which a queued message is on record."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}
        """The first words of a prompt that was withheld, for the end of the record."""
        self._prompts: dict[int, tuple[int, Message]] | None = None
        """The prompts with their places, by identity: an attempt after a failure takes those that are left. `None` before the
        first turn."""
        self._left: list[Message] = []
        """What the turn has not stored yet."""

    def passes(self, seam: str, ruling: Any) -> bool:
        """Whether the prompts were withheld for the hooks at 1 alone, and these let them pass as they are."""
        judged = seam == "before_run" and self.hidden and self.keep is kept
        return judged and ruling.verdict is None and not ruling.changes

    def begins(self, messages: Sequence[Message]) -> None:
        if self._prompts is None:
            self._prompts = {id(message): (place, message) for place, message in enumerate(messages)}
        self._left = list(messages)

    def is_prompt(self, message: Message) -> bool:
        return self._prompts is None or id(message) in self._prompts

    def _place(self, message: Message) -> int | None:
        """Which prompt this is, if it is one."""
        return (self._prompts or {}).get(id(message), (None, None))[0]

    def over(self) -> None:
        """What is stored until another turn begins is none of these."""
        self._left = []

    def stored(self, stored: Message) -> dict[str, int]:
        """A message has passed seam 10. Says which it was, to be written beside it if it was withheld before."""
        if not self._left:
            return {}
        message = self._left.pop(0)
        place = self._place(message)
        if place is not None and self.hidden:
            if not self.first and stored.text:
                self.first["prompt"] = stored.text[:FIRST_CHARS]
            return {"prompt": place}
        if self.keep is kept:
            return {}
        number = self.number_of(message)
        return {"queued": number} if number else {}

    def check(self, run_id: str, past: Any) -> None:
        """Before the run goes on: every prompt that it has not come to is on record. Raises `UsageError` if not."""
        prompts = past.prompts
        left = range(len(prompts)) if self._prompts is None else map(self._place, self._left)
        if any([is_withheld(prompts[place]) for place in left if place is not None and place < len(prompts)]):
            raise UsageError(
                f"run {run_id} cannot go on: it stopped before the hooks had let its prompt pass, and what they have not "
                "let pass is not on record (journal_raw=True keeps it). Say it again, in another run"
            )


def beside(message: Any, more: dict[str, int]) -> Any:
    """A message's body with more beside it."""
    if not more:
        return message
    config = message.__struct_config__
    return {config.tag_field: config.tag, **{name: getattr(message, name) for name in message.__struct_fields__}, **more}
