"""What `beforehand --help` shows: the commands by what one wants to do, each in a line, and examples for each."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo

GROUPS: dict[str, dict[str, str]] = {
    "See it work": {"demo": "A travel assistant and two hooks: no key, no network"},
    "Run an agent": {
        "run": "Run an agent on a real endpoint",
        "hooks": "What is registered, and what a failure of it means",
        "seams": "Every seam: when it fires, what may be decided there",
    },
    "Look at recorded runs": {
        "runs": "Which runs there are, and how they stand",
        "trace": "What happened in a run, and who decided it",
        "export": "The conversation of a run, as JSON Lines",
        "verify": "Whether the journal is as it was written",
    },
    "Answer, and go on": {
        "approvals": "What waits for a person; answer it",
        "settle": "Say what became of a call that was cut short",
        "resume": "Go on with a recorded run",
    },
    "More than one machine": {
        "worker": "Carry the runs that are submitted to a database",
        "submit": "Submit a run to the workers of a database",
    },
    "Rules": {
        "check": "Validate rule files and project files",
        "try": "What rules would do in a recorded conversation or stream",
        "backtest": "What other hooks would have changed in past runs",
        "schema": "JSON Schemas, for an editor",
    },
    "Project file": {
        "targets": "The loops in which the pre_llm_hook runs",
        "authorize": "Authorise and protect files of the workspace",
    },
}

_RUN = 'beforehand run "Hello" --model openai:NAME --base-url http://localhost:11434/v1'
EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("beforehand demo", "beforehand demo lambdas", "beforehand demo --svg timeline.svg"),
    "run": (_RUN, "  ... --tools tools.py --hooks hooks/", "  ... --journal runs.db"),
    "hooks": ("beforehand hooks --hooks policies.py --hooks rules/", "beforehand hooks --project . --tools tools.py"),
    "seams": ("beforehand seams", "beforehand seams --markdown > seams.md"),
    "runs": ("beforehand runs --since 2h", "beforehand runs --state suspended --json"),
    "trace": ("beforehand trace 6214", "beforehand trace 6214 --full", "beforehand trace --hooks"),
    "export": ("beforehand export 6214", "beforehand export 6214 -o conversation.jsonl"),
    "verify": ("beforehand verify", "beforehand verify runs.db --key-env JOURNAL_KEY"),
    "approvals": (
        "beforehand approvals",
        "beforehand approvals --answer 6214 call_3 approve",
        'beforehand approvals --answer 6214 call_3 deny "Too dear."',
        'beforehand approvals --answer 6214 call_3 edit \'{"train": 305}\'',
    ),
    "settle": (
        'beforehand settle 6214 call_3 --result "Booked: train 305"',
        'beforehand settle 6214 call_3 --failed "It was not booked."',
    ),
    "resume": (
        "beforehand resume 6214 --tools tools.py --hooks hooks/",
        "  ... --base-url http://localhost:11434/v1 --answer call_3=approve",
    ),
    "worker": ("beforehand worker --agents agents.py --database-url sqlite:///runs.db",),
    "submit": (
        'beforehand submit clerk "order-7" --database-url sqlite:///runs.db',
        "  ... --run-id refund-7 --wait",
    ),
    "check": ("beforehand check rules/", "beforehand check beforehand.toml"),
    "try": ("beforehand try rules/ --on transcript.jsonl", "beforehand try rules/ --on reply.sse"),
    "backtest": ("beforehand backtest --hooks rules/ --since 7d", "beforehand backtest --hooks rules/ --expect-no-change"),
    "targets": ("beforehand targets", "beforehand targets add researcher", "beforehand targets set main reviewer"),
    "authorize": (
        "beforehand authorize lib/policy.ts",
        "beforehand authorize lib/policy.ts --protect read_only",
        "beforehand authorize --list",
    ),
}
"""By command; "  ..." goes on with the line above it."""

class Grouped(TyperGroup):
    """The commands under the headings of `GROUPS`; one that stands under none comes last, with what it says of itself."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        left = {name: command.get_short_help_str(60) for name, command in self.commands.items() if not command.hidden}
        width = max(map(len, left))
        for heading, lines in GROUPS.items():
            _section(formatter, heading, [(name, text) for name, text in lines.items() if left.pop(name, None)], width)
        _section(formatter, "More", list(left.items()), width)


def _section(formatter: Any, heading: str, rows: list[tuple[str, str]], width: int) -> None:
    if rows:
        with formatter.section(heading):
            formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows])


def name_of(command: CommandInfo) -> str:
    """What one writes for it."""
    return str(command.name or getattr(command.callback, "__name__", ""))


def add_examples(app: typer.Typer) -> None:
    """Put the examples below the help of each command."""
    for command in app.registered_commands:
        name = name_of(command)
        if name in EXAMPLES:
            lines = "\n".join(f"  {line}" for line in EXAMPLES[name])
            command.epilog = f"\b\nExamples:\n{lines}" + (f"\n\n{command.epilog}" if command.epilog else "")
