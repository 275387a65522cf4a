from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

Load = Callable[[str], Any]


def lines_of(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


async def test_the_log_says_who_decided_what_and_what_could_still_be_taken_back(example: Load) -> None:
    audit, out = example("audit"), io.StringIO()
    result = await audit.make_agent(audit.script(), audit.Audit(out)).run("A seat, please.")
    refusal, call, redaction, ran, end = lines_of(out)
    assert (refusal["hook"], refusal["seam"], refusal["verdict"]) == ("first_class_is_refused", "before_tool_call", "Block")
    assert (refusal["reason"], refusal["where"].split(":")[0].endswith("audit.py")) == ("Book tourist instead.", True)
    assert (refusal["reversible"]["requests_sent"], refusal["reversible"]["tools_run"]) == (1, 0)
    assert (call["outcome"], ran["outcome"]) == ("blocked", "ran")
    assert call["call_id"] == refusal["call_id"]
    assert (redaction["verdict"], redaction["reversible"]["tools_run"]) == ("Replace", 1)
    assert (end["kind"], end["stop_reason"]) == ("end", "completed")
    assert {line["run_id"] for line in lines_of(out)} == {result.run_id}


async def test_what_was_taken_out_is_not_in_the_log(example: Load) -> None:
    audit, out = example("audit"), io.StringIO()
    await audit.make_agent(audit.script(), audit.Audit(out)).run("A seat, please.")
    assert "30.123.456" not in out.getvalue()


async def test_a_log_that_cannot_be_written_does_not_disturb_the_run(example: Load) -> None:
    audit, closed = example("audit"), io.StringIO()
    closed.close()
    result = await audit.make_agent(audit.script(), audit.Audit(closed)).run("A seat, please.")
    assert result.text == "Booked in tourist class."
