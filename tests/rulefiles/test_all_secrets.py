"""All of gitleaks' patterns as one rule file, on replies that pass the real decoder of the wire, cut at any byte."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from patterns.random_rules import pieces
from patterns.samples import sample
from patterns.secret_rules import DATA
from wire.endpoint import delta, feed, place, sse

from beforehand import Agent
from beforehand.messages import AssistantMessage
from beforehand.models.base import CallInfo, Model, ModelEvent
from beforehand.models.openai_reply import StreamReader
from beforehand.rules import RuleSet, load_rules
from beforehand.rules.providers import Recorded, read_stream
from beforehand.stream.patterns import Match
from beforehand.stream.regex import parse
from rulefiles.kit import Said, Screen, write_rules

ENTRIES: list[dict[str, Any]] = json.loads((DATA / "gitleaks.json").read_text())
IDS = [entry["id"] for entry in ENTRIES]
RECORDINGS = sorted((DATA / "streams").glob("*.sse"))


def toml_of(entry: dict[str, Any]) -> str:
    """A rule as gitleaks writes it. The list was converted for Python's `re`, which calls the end of the text `\\Z`."""
    quoted = {"id": entry["id"], "regex": entry["regex"].replace(r"\Z", r"\z"), "keywords": entry["keywords"]}
    lines = ["[[rules]]", *[f"{name} = {json.dumps(value)}" for name, value in quoted.items()]]
    lines += [f"{name} = {entry[name]}" for name in ("secretGroup", "entropy") if entry[name] is not None]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RuleSet]:
    """The same patterns in a rule that stops a reply, and in one that replaces what it finds."""
    folder = tmp_path_factory.mktemp("hooks")
    (folder / "gitleaks.cfg").write_text("\n".join([toml_of(entry) for entry in ENTRIES]), encoding="utf-8")
    actions = {"stop": {"type": "interrupt"}, "replace": {"type": "replace", "with": "[{{rule}}]"}}
    rule = {"target": "stream", "patternsFrom": "gitleaks.cfg"}
    files = {name: write_rules(folder, {**rule, "actions": [action]}, name=f"{name}.json") for name, action in actions.items()}
    return {name: load_rules([file], Said()) for name, file in files.items()}


class Wire(Model):
    """Replies given as the bytes of a stream, in pieces, and read by the decoder of the OpenAI adapter."""

    def __init__(self, *replies: Iterable[bytes]) -> None:
        self.replies = [list(reply) for reply in replies]

    async def stream(self, request: Any, call: CallInfo = CallInfo()) -> AsyncIterator[ModelEvent]:  # noqa: B008 - a frozen value
        reader = StreamReader(place(), 200)
        for event in feed(reader, self.replies.pop(0)):
            yield event
        assert reader.failure is None


DONE = [sse(delta("Done."), delta(finish="stop"))]


class Channels(Screen):
    """A screen that also keeps what came of each kind of text."""

    def __init__(self) -> None:
        super().__init__()
        self.by_kind = {"text": "", "thinking": ""}

    def __call__(self, event: Any) -> None:
        super().__call__(event)
        if event.type == "message_update" and event.kind in self.by_kind:
            self.by_kind[event.kind] += event.delta


async def shown(rule_set: RuleSet, *replies: Iterable[bytes]) -> tuple[Any, Channels]:
    screen = Channels()
    agent = Agent(model=Wire(*replies), hooks=rule_set.hooks, listeners=[screen])
    return await agent.run("go", check=False), screen


# --- clean replies -------------------------------------------------------------------------------


def replayed(path: Path, rng: random.Random) -> tuple[Recorded, bytes]:
    """A recording, and its bytes; those of another provider's are what it says as our wire would bring it, cut elsewhere."""
    recorded = read_stream(path, path.read_bytes())
    if path.name.startswith("openai-chat"):
        return recorded, path.read_bytes()
    chunks, numbers = [], {call_id: number for number, call_id in enumerate(recorded.names)}
    for kind, text, call_id in recorded.deltas:
        for piece in pieces(text, [rng.randint(1, 30) for _ in range(20)]):
            if call_id is None:
                chunks.append(delta(piece) if kind == "text" else delta(reasoning=piece))
                continue
            call = {"name": recorded.names[call_id], "arguments": piece}
            chunks.append(delta(tool_calls=[{"index": numbers[call_id], "id": call_id, "type": "function", "function": call}]))
    return recorded, sse(*chunks, delta(finish="tool_calls" if numbers else "stop"))


def test_all_eighteen_recordings_are_there() -> None:
    assert len(RECORDINGS) == 18


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
async def test_a_clean_recording_cut_at_any_bytes_is_not_stopped_and_arrives_unchanged(
    path: Path, seed: int, rules: dict[str, RuleSet]
) -> None:
    rng = random.Random(f"{path.name} {seed}")  # noqa: S311 - the same on every run
    recorded, data = replayed(path, rng)
    cuts = sorted(rng.sample(range(len(data)), min(len(data), rng.randint(1, 200))))
    parts = [data[low:high] for low, high in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    result, screen = await shown(rules["stop"], parts, DONE)

    assert result.stop_reason == "completed"
    assert not result.decisions
    reply = result.messages[1]
    assert isinstance(reply, AssistantMessage)
    said = {kind: "".join([text for of, text, _ in recorded.deltas if of == kind]) for kind in ("text", "thinking")}
    assert (reply.text, reply.thinking) == (said["text"], said["thinking"])
    arguments = ["".join([text for _, text, of in recorded.deltas if of == call_id]) for call_id in recorded.names]
    assert [call.arguments for call in reply.tool_calls] == arguments
    kinds = [part.__struct_config__.tag for part in reply.content]
    assert kinds == [kind for kind in ("thinking", "text") if said[kind]] + ["tool_call"] * len(recorded.names)
    assert screen.by_kind == {**said, "text": said["text"] + ("Done." if recorded.names else "")}
    assert screen.arguments == arguments
    assert not screen.retracted


# --- a secret of each family ---------------------------------------------------------------------


@cache
def planted(number: int, accept: Any, patterns: Any) -> tuple[str, str, str]:
    """What stands before a made-up secret of a family that counts as one, the secret, what stands after it."""
    entry = ENTRIES[number]
    for seed in range(300):
        rng = random.Random(seed)  # noqa: S311 - the same on every run
        before, after = f"About {entry['keywords'][0]}, as asked: ", " and so on."
        text = f"{before}{sample(parse(patterns.rules[number].pattern), rng)}{after}"
        matches: list[Match] = [match for match in patterns.scan_whole(text) if accept(match)]
        own = [match for match in matches if match.index == number]
        if len(matches) == 1 and own and own[0].span[1] - own[0].span[0] > 7:
            low, high = own[0].span
            return text[:low], text[low:high], text[high:]
    return "", "", ""


def family(rules: dict[str, RuleSet], number: int) -> tuple[str, str, str]:
    finder = rules["stop"].rules[0].finder
    assert finder is not None
    return planted(number, finder.accept, finder.patterns(4096))


def plain(*parts: str) -> list[bytes]:
    return [sse(*[delta(part) for part in parts if part], delta(finish="stop"))]


HIDDEN = [
    *("bittrex-secret-key", "gitlab-pat-routable", "gitlab-runner-authentication-token-routable", "snyk-api-token"),
    *("flutterwave-secret-key", "microsoft-teams-webhook"),
]
"""Families whose made-up secrets another family finds first, or of which only pieces are groups."""


def test_the_other_families_have_secrets_that_they_alone_find(rules: dict[str, RuleSet]) -> None:
    assert {IDS[number] for number in range(len(IDS)) if not family(rules, number)[1]} == set(HIDDEN)


@pytest.mark.parametrize("number", [n for n, name in enumerate(IDS) if name not in HIDDEN], ids=IDS.__getitem__)
async def test_no_character_of_a_secret_is_shown_wherever_it_is_cut_and_the_text_around_it_is(
    number: int, rules: dict[str, RuleSet]
) -> None:
    before, secret, after = family(rules, number)
    wanted = f"{before}[{IDS[number]}]{after}"
    for cut in range(len(secret) + 1):
        chunks = (before + secret[:cut], secret[cut:] + after)

        result, screen = await shown(rules["replace"], plain(*chunks))
        assert (result.text, "".join(screen.ever)) == (wanted, wanted), cut

        stopped, screen = await shown(rules["stop"], plain(*chunks))
        assert stopped.stop_reason == "interrupted", cut
        assert before.startswith("".join(screen.ever)), cut
        assert len(stopped.messages) == 1
