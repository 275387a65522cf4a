"""Three budgets: turns, seconds and money. A run that would go on for ever stops before it spends more.

    python examples/budget.py

Turns and time are looked at before a turn begins (seam 2). Money is looked at before a request leaves (seam 8), the last
moment at which it is not yet spent: what the request could cost at most, by the price table, must still fit.
"""

from __future__ import annotations

from chosen import chosen

from beforehand import Agent, Block, End, Model, Price, RunResult, Usage, hook, tool
from beforehand.history import estimate_tokens
from beforehand.seams import OutgoingRequest, TurnStart
from beforehand.testing import FunctionModel, finish, tool_call

ANSWER_TOKENS = 200
"""What one answer is reckoned with when its request sets no `max_tokens`."""


@tool
async def next_page(number: int) -> str:
    """Read one page of the timetable. There is always another."""
    return f"Page {number}. See also page {number + 1}."


class Budget:
    """Hooks can be methods: give the object to the agent, and its decorated methods are registered."""

    def __init__(self, *, turns: int, seconds: float, cost: float, prices: dict[str, Price]) -> None:
        self.turns, self.seconds, self.cost, self.prices = turns, seconds, cost, prices

    @hook.before_turn
    def turns_and_time(self, turn: TurnStart) -> End | None:
        if turn.number > self.turns:
            return End(f"the budget of {self.turns} turns is spent")
        if turn.run.elapsed > self.seconds:
            return End(f"the budget of {self.seconds:g} seconds is spent")
        return None

    @hook.authorize_request
    def money(self, outgoing: OutgoingRequest) -> Block | None:
        price = self.prices.get(outgoing.model.name)
        if price is None:
            return Block(f"no price is known for {outgoing.model.name}: a budget that cannot count is none")
        request = outgoing.request
        asked = estimate_tokens(request.messages) + len(request.system) // 4
        worst = price.of(Usage(asked, request.options.max_tokens or ANSWER_TOKENS))
        if outgoing.run.cost + worst > self.cost:
            return Block(f"{outgoing.run.cost:.4f} of {self.cost:.4f} is spent, and this request could cost {worst:.4f}")
        return None


def make_agent(
    model: str | Model, base_url: str | None = None, *, turns: int = 20, seconds: float = 60, cost: float = 0.02
) -> Agent:
    name = model.name if isinstance(model, Model) else model.partition(":")[2]
    prices = {name: Price(input=2.0, output=8.0)}  # per million tokens, in your currency
    budget = Budget(turns=turns, seconds=seconds, cost=cost, prices=prices)
    return Agent(model=model, base_url=base_url, tools=[next_page], hooks=[budget], prices=prices)


def endless() -> FunctionModel:
    """A model that always wants one page more, and says what each reply cost."""
    used = finish(usage=Usage(input_tokens=400, output_tokens=100))
    return FunctionModel(lambda request: [tool_call("next_page", {"number": len(request.messages)}), used])


def report(label: str, result: RunResult) -> None:
    print(f"{label}: {result.stop_reason} after {result.turns} turns, cost {result.cost:.4f}: {result.reason}")


def main() -> None:
    model, base_url = chosen(endless())
    agents = {
        "turns": make_agent(model, base_url, turns=3),
        "seconds": make_agent(model, base_url, seconds=0),
        "money": make_agent(model, base_url, cost=0.01),
    }
    for budget, agent in agents.items():
        report(budget, agent.run_sync("Read the timetable to its end."))


if __name__ == "__main__":
    main()
