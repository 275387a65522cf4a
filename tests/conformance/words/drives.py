"""What the recordings say the caller did, as code. A drive that nobody has written down here is a `KeyError`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from beforehand import CustomMessage, SystemMessage, UserMessage

if TYPE_CHECKING:
    from conformance.runner import Scenario

Drive = Callable[["Scenario"], Awaitable[None]]


def prompts(*texts: Any) -> Drive:
    async def drive(scenario: Scenario) -> None:
        for text in texts:
            await scenario.prompt(text)

    return drive


async def _steer_and_go(scenario: Scenario) -> None:
    scenario.steer("S0")
    await scenario.prompt("go")


async def _follow_up_and_go(scenario: Scenario) -> None:
    scenario.follow_up("F1")
    await scenario.prompt("go")


async def _two_follow_ups_and_go(scenario: Scenario) -> None:
    scenario.follow_up("F1")
    scenario.follow_up("F2")
    await scenario.prompt("go")


async def _fail_continue_and_go(scenario: Scenario) -> None:
    await scenario.prompt("go")
    scenario.note(state={"errorMessage": scenario.error_message})
    await scenario.go_on()
    await scenario.prompt("again")


async def _steer_and_continue(scenario: Scenario) -> None:
    scenario.steer("S1")
    await scenario.go_on()


async def _go_steer_and_continue(scenario: Scenario) -> None:
    await scenario.prompt("go")
    scenario.steer("S1")
    scenario.steer("S2")
    await scenario.go_on()


async def _go_with_a_rule(scenario: Scenario) -> None:
    await scenario.prompt([SystemMessage("extra rule"), UserMessage("go")])
    rules = [m.text for m in scenario.talk.messages if isinstance(m, SystemMessage)]
    scenario.note(state={"systemPrompt": "\n\n".join([scenario.talk.plan.system, *rules])})


NEVER_ENDS = "prompt('go') with a provider stream that pushes only 'start' and then ends; waited 300 ms"
CHANGES_TOOLS = "prompt('go'); state.tools=[added]; prompt('next')"

DRIVES: dict[str, Drive] = {
    "prompt('go') and await it": prompts("go"),
    "prompt([user 'secret thing', user 'public thing'])": prompts([UserMessage("secret thing"), UserMessage("public thing")]),
    "prompt([notification N, memo M, user 'go'])": prompts(
        [CustomMessage("notification", "N"), CustomMessage("memo", "M"), UserMessage("go")]
    ),
    "prompt([notification N, user 'go'])": prompts([CustomMessage("notification", "N"), UserMessage("go")]),
    "prompt('go'), then prompt('next')": prompts("go", "next"),
    "followUp('F1'), prompt('go'); F1 stays queued": _follow_up_and_go,
    "followUp('F1'), prompt('go')": _follow_up_and_go,
    "steer('S0'), prompt('go')": _steer_and_go,
    "followUp F1, F2; prompt('go')": _two_follow_ups_and_go,
    "prompt('go'), prompt('again')": prompts("go", "again"),
    "prompt('go') [error]; continue() [rejects]; prompt('again')": _fail_continue_and_go,
    "steer('S1'), continue()": _steer_and_continue,
    "prompt('go'); steer S1, S2; continue()": _go_steer_and_continue,
    CHANGES_TOOLS: prompts("go", "next"),
    "prompt([system 'extra rule', user 'go'])": _go_with_a_rule,
    "prompt('go'), prompt('next')": prompts("go", "next"),
    NEVER_ENDS: prompts("go"),
}
