"""Every recorded scenario, run on our core: it is as recorded, or it is listed in `deviations.toml` and as we want it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from beforehand import AssistantMessage, ToolMessage
from conformance.compare import differences
from conformance.intended import EITHER_WAY, INTENDED
from conformance.recording import NAMES, load
from conformance.runner import replay

DEVIATIONS = tomllib.loads(Path(__file__).with_name("deviations.toml").read_text())
MOST_DEVIATIONS = 32
WITH_AN_ABORT = [name for name in NAMES if {"action": "abort"} in load(name).trace]


def test_there_are_82_recordings() -> None:
    assert len(NAMES) == 82


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DEVIATIONS and name not in EITHER_WAY])
def test_a_run_is_the_recorded_one(name: str) -> None:
    recording = load(name)
    assert differences(recording, replay(recording).outcome) == []


@pytest.mark.parametrize("name", sorted(DEVIATIONS))
def test_a_listed_deviation_still_differs_and_is_exactly_what_we_want(name: str) -> None:
    recording = load(name)
    assert differences(recording, replay(recording).outcome), f"{name} no longer differs: take it out of deviations.toml"
    INTENDED[name](recording)
    assert differences(recording, replay(recording).outcome) == []


@pytest.mark.parametrize("name", sorted(EITHER_WAY))
def test_where_a_recording_binds_nobody_a_run_is_what_we_want(name: str) -> None:
    recording = load(name)
    assert recording.not_normative
    EITHER_WAY[name](recording)
    assert differences(recording, replay(recording).outcome) == []


def test_every_listed_deviation_has_a_recording_a_reason_and_an_intention() -> None:
    assert DEVIATIONS.keys() == INTENDED.keys()
    assert DEVIATIONS.keys() <= set(NAMES)
    assert len(DEVIATIONS) <= MOST_DEVIATIONS
    assert [name for name, about in DEVIATIONS.items() if about.keys() != {"reason"} or len(about["reason"]) < 40] == []


@pytest.mark.parametrize("name", NAMES)
def test_whatever_happens_every_stored_call_has_exactly_one_result(name: str) -> None:
    messages = replay(load(name)).talk.messages
    calls = [call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    assert sorted(calls) == sorted(message.tool_call_id for message in messages if isinstance(message, ToolMessage))


@pytest.mark.parametrize("name", WITH_AN_ABORT)
def test_an_aborted_run_sends_nothing_more_and_is_no_error(name: str) -> None:
    scenario = replay(load(name))
    trace = scenario.outcome.trace
    assert [entry for entry in trace[trace.index({"action": "abort"}) :] if "provider" in entry] == []
    assert [(result.stop_reason, result.error) for result in scenario.results] == [("aborted", None)]


def test_an_abort_cuts_a_reply_without_waiting_for_its_next_chunk() -> None:
    recording = load("061-abort-mid-stream")
    hour = 3_600
    recording.script[0]["chunk_ms"] = hour * 1_000
    scenario = replay(recording)
    assert differences(recording, scenario.outcome) == []
    assert scenario.took == pytest.approx(hour, abs=0.1)


def test_steering_queued_before_an_abort_stays_queued() -> None:
    scenario = replay(load("101-abort-with-queued-steering"))
    assert [message.text for message in scenario.talk.queued] == ["S1", "S2"]


def test_a_failing_hook_at_an_abort_is_in_the_decisions() -> None:
    [result] = replay(load("069-abort-and-hook-throws")).results
    assert [(d.hook, d.verdict) for d in result.decisions if d.verdict == "failed"] == [("transformContext", "failed")]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DEVIATIONS and name not in EITHER_WAY])
def test_the_comparison_notices_an_entry_more_or_less_anywhere(name: str) -> None:
    recording, ours = load(name), replay(load(name)).outcome
    whole = ours.trace
    for i in range(len(whole)):
        for changed in (whole[:i] + whole[i + 1 :], whole[: i + 1] + whole[i:]):
            ours.trace = changed
            assert differences(recording, ours), f"entry {i} of {name}: {whole[i]}"
