"""Target `chat`: rules about messages, in front of the history. The end of a reply (`stream`, chunk `finish`) is here too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from beforehand.decisions import Decision, Interrupt, Replace, Resend
from beforehand.messages import AssistantMessage, CustomMessage, Message, Text, Thinking
from beforehand.seams import IncomingMessage

from . import schema
from .rule import OBSERVING, Rule, acts_of, run_acts, settle
from .templates import Template

ASKED_FOR = frozenset({"model", "tool"})
"""Origins of messages that came of a request. For the others there is nothing yet that could be sent again."""


class MessageRule:
    """One rule at `on_message`. `others` are the rules of the set that come after it at this seam."""

    def __init__(self, rule: Rule, applies: Callable[[IncomingMessage], Iterator[tuple[dict[str, Any], str]]]) -> None:
        self.rule = rule
        self.others: Sequence[MessageRule] = ()
        self._applies = applies
        self._acts = acts_of(rule, (*OBSERVING, schema.InterruptAction))
        replaces = rule.of_type(schema.ReplaceAction)
        self._replaces = [Template(action.with_) for action in replaces]

    def __call__(self, context: IncomingMessage) -> list[Decision] | None:
        decisions = self.decide(context)
        if decisions and any(isinstance(decision, Interrupt) for decision in decisions):
            # The seam asks nobody after an interrupt, yet every rule about this message is to fire, and wishes to resend add up.
            for other in self.others:
                decisions += [d for d in other.decide(context) if not isinstance(d, Replace)]
            if context.origin not in ASKED_FOR:
                decisions = [_without_resend(d) for d in decisions if not isinstance(d, Resend)]
        return settle("on_message", decisions)

    def decide(self, context: IncomingMessage) -> list[Decision]:
        """What this rule alone decides."""
        rule = self.rule
        if context.origin == "hook" or rule.counter.spent():
            return []
        decisions: list[Decision] = []
        message = context.message
        for variables, content in self._applies(context):
            if rule.counter.spent():
                break
            match = None
            if rule.finder is not None:
                match = rule.finder.first(content)
                if match is None:
                    continue
            rule.count("on_message", context)
            shown = rule.variables(variables, match)
            decisions += run_acts(self._acts, shown)
            for template in self._replaces:
                message = self._replaced(message, variables, template)
        if message is not context.message:
            decisions.append(Replace(message=message))
        return decisions

    def _replaced(self, message: Message, variables: dict[str, Any], template: Template) -> Message:
        rule = self.rule

        def change(text: str) -> str:
            if rule.finder is None:
                return template.fill(rule.variables(variables))
            return rule.finder.replace(text, lambda match: template.fill(rule.variables(variables, match)))

        return rewritten(message, variables["role"], change)


def _without_resend(decision: Decision) -> Decision:
    return msgspec.structs.replace(decision, resend=False) if isinstance(decision, Interrupt) else decision


def chat_rule(rule: Rule) -> MessageRule:
    """A rule with target `chat`."""
    roles = frozenset(rule.definition.roles)  # type: ignore[attr-defined]
    with_match = rule.finder is None

    def applies(context: IncomingMessage) -> Iterator[tuple[dict[str, Any], str]]:
        for role, content in views(context.message):
            if not roles or role in roles:
                variables = {"role": role, "content": content}
                if with_match:
                    variables["match"] = content
                yield variables, content

    return MessageRule(rule, applies)


def finish_rule(rule: Rule) -> MessageRule:
    """A rule with target `stream` about the chunk `finish`: the reply is complete, and not stored yet."""

    def applies(context: IncomingMessage) -> Iterator[tuple[dict[str, Any], str]]:
        message = context.message
        if context.origin == "model" and isinstance(message, AssistantMessage):
            yield {"type": "finish", "finishReason": message.stop_reason}, ""

    return MessageRule(rule, applies)


def views(message: Message) -> Iterator[tuple[str, str]]:
    """A message by role and content, as rules see it: a reply's reasoning is a message of its own, before the reply."""
    if isinstance(message, AssistantMessage):
        thinking = message.thinking
        if thinking:
            yield "reasoning", thinking
        if not thinking or any(not isinstance(part, Thinking) for part in message.content):
            yield "assistant", message.text
    elif not isinstance(message, CustomMessage):
        yield message.role, message.text


def rewritten(message: Message, role: str, change: Callable[[str], str]) -> Message:
    """A message with its text (or, for the role `reasoning`, its reasoning) changed. Pieces of text become one if they change."""
    content: Any = message.content
    if isinstance(content, str):
        new = change(content)
        return message if new == content else msgspec.structs.replace(message, content=new)
    kind: type[Thinking | Text] = Thinking if role == "reasoning" else Text
    old = "".join([part.text for part in content if isinstance(part, kind)])
    text = change(old)
    if text == old:
        return message
    parts: list[Any] = []
    for part in content:
        if not isinstance(part, kind):
            parts.append(part)
        elif text:
            parts.append(kind(text))  # reasoning that was changed has no signature any more
            text = ""
    if text:
        parts.insert(0, kind(text))
    return msgspec.structs.replace(message, content=tuple(parts))
