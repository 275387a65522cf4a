"""`beforehand seams`: the page of seams as a matrix, as a chart, and as the reference in docs/seams.md.

Everything about a seam comes from `SEAMS`. What is written here is only the order in which a run comes past them.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

from ..decisions import Replace
from ..seams import SEAMS, RunInfo, SeamSpec, Seen

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = ("#", "seam", "kind", "fires", "may replace", "may refuse or settle", "effects", "irreversible right after")

TABLE_WIDTH = 120


def cells(spec: SeamSpec) -> tuple[str, ...]:
    """One row of the matrix, a text for each of `COLUMNS`: when it fires is one thing, what it may decide another."""
    forms = spec.forms()
    effects = forms[len(spec.verdicts) :]
    settles = [form for verdict, form in zip(spec.verdicts, forms, strict=False) if verdict is not Replace]
    return (
        str(spec.number), spec.name, spec.kind, spec.when, ", ".join(spec.verdicts.get(Replace, ())), ", ".join(settles),
        ", ".join(effects), spec.irreversible,
    )  # fmt: skip


def show_matrix(console: Console | None) -> None:
    """Print the matrix: as a table where there is room for one, else seam by seam."""
    if console is None or console.width < TABLE_WIDTH:
        for spec in SEAMS:
            print(_as_lines(spec))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title="The seams of a run, in the order they come", title_justify="left", show_lines=True)
    for column in COLUMNS:
        table.add_column(column, overflow="fold", no_wrap=column == "seam")
    for spec in SEAMS:
        row = cells(spec)
        table.add_row(*[Text(cell, "bold red" if i == len(row) - 1 else "bold" if i == 1 else "") for i, cell in enumerate(row)])
    console.print(table)


def _as_lines(spec: SeamSpec) -> str:
    number, name, kind, *rest = cells(spec)
    lines = [f"{column}: {cell}" for column, cell in zip(COLUMNS[3:], rest, strict=True) if cell]
    return "\n    ".join([f"{number} {name} ({kind})", *lines])


# --- the chart -----------------------------------------------------------------------------------

CHART = """\
flowchart TD
  START(["run"]) --> <1>
  S1 -->|refused| NEVER(["the run does not start"])
  S1 -->|allowed| AGENT["agent_start"] --> <2>
  S2 -->|refused| STOP["agent_end"]
  S2 -->|allowed| TURN["turn_start"] --> <10a>
  M1 -->|prompt and queued messages| LONG{"history too long?"}
  LONG -->|no| <3>
  LONG -->|yes| <17>
  S17 -->|refused| S3
  S17 -->|allowed or answered| <!17> --> S3
  S3 --> <4> --> <5> --> <6> --> FITS{"fits the window?"}
  FITS -->|no| FAILED["error"] --> <14>
  FITS -->|yes| <7> --> <8>
  S8 -->|refused| FAILED
  S8 -->|answered in the model's place| <9>
  S8 -->|allowed| <!8> --> S9
  S9 -->|interrupted| S14
  S9 -->|released| <!9> --> MORE{"more text?"}
  MORE -->|yes| S9
  MORE -->|no| <10b>
  M2 -->|interrupted| S14
  M2 -->|allowed| <!10> --> CALLS{"tool calls?"}
  CALLS -->|no| S14
  CALLS -->|yes, each| ANNOUNCED["tool_execution_start event"] --> <11> --> <12>
  S12 -->|refused| NOT["error result, the body does not run"] --> <10c>
  S12 -->|answered in the tool's place| <13>
  S12 -->|allowed| <!12> --> S13
  S13 --> <!13> --> M3
  M3 -->|every call has its result| S14
  S14 --> <15> --> ANOTHER{"another turn?"}
  ANOTHER -->|yes| <16> --> S2
  ANOTHER -->|no| STOP
"""
"""`<n>` is seam n, `<!n>` what is irreversible right after it. Seam 10 is passed in three places, which are a, b and c."""

_BOXES = {"shape": '["{}"]', "gate": '{{"{}"}}', "shape+gate": '{{{{"{}"}}}}', "save": '[("{}")]'}


def mermaid() -> str:
    """The loop as a Mermaid flowchart: every seam, and what each of them stands in front of."""

    def node(match: re.Match[str]) -> str:
        gone, number, place = match.groups()
        spec = SEAMS[int(number) - 1]
        if gone:
            return f'GONE{number}[/"{spec.irreversible}"/]'
        name = f"M{'abc'.index(place) + 1}" if place else f"S{number}"
        return name + _BOXES[spec.kind].format(f"{number} {spec.name}")

    chart = re.sub(r"<(!?)(\d+)([abc]?)>", node, CHART)
    gone = ",".join(dict.fromkeys(re.findall(r"GONE\d+", chart)))
    return f"{chart}  classDef gone fill:#b33,color:#fff,stroke:#b33\n  class {gone} gone"


# --- the reference -------------------------------------------------------------------------------

INTRO = """\
# The seams

<!-- Generated: `beforehand seams --markdown > docs/seams.md`. A test compares. -->

A run comes past these points, each in front of something that cannot be taken back. A *shape* seam may replace a value,
a *gate* seam judges the final one; shape comes before gate, so what a gate allowed is exactly what happens. Which seam you
need for a decision is told in [which-seam.md](which-seam.md).

When a seam fires and what it may decide are two things, and so they have columns of their own. A decision that a seam
does not declare is refused with the hook's name, the seam and what it may return.
"""

ORDER = """\
## Firing order

1 → `agent_start` → (16, unless it is the first turn) → 2 → `turn_start` → queued and prompt messages, each 10, then
`message_start` and `message_end` → 17, if the history is to be compacted → 3 → 4 → 5 → 6 → size check → 7 → 8 →
`message_start` → (9 → `message_update`) for each piece → 10 → the history holds it → `message_end` → for each call
`tool_execution_start` → 11 → 12 → the body → 13 → `tool_execution_end` → each tool result 10, then `message_start` and
`message_end` → 14 → `turn_end` → 15 → and so on → `agent_end`.

`tool_execution_start` announces a call with its raw arguments; it does not say that the body runs. In a parallel batch 11
and 12 are asked one call after the other, then the bodies run side by side. Requests made directly and for a summary pass
8 and skip 1 to 7 and 9.
"""

RULES = """\
## What holds at every seam

- A hook returns `None`, one decision, or a sequence of decisions: at most one verdict, any number of effects.
- Shapers chain in order, field by field: a field left out keeps what is there, `None` sets it to nothing.
- Refusals are ranked, strongest first, as each seam lists below. All gate hooks are asked; the strongest verdict counts, and no
  later hook lifts it. Of the same rank the first by order gives the text.
- Order is `order=`, then registration. Hooks with `final=True` come after all shapers and may not replace.
- Seams 11 to 13 can be confined to tools with `tools=[...]`. Sub-agents inherit the hooks at 8 to 13; an inner
  loop has all hooks of its agent.
- `on_error` is `"closed"` (what failed lets nothing pass, see each seam), `"open"` (it lets pass, on record) or `"abort"`
  (it ends the run). `beforehand hooks` shows whatever is not closed.
"""

_HELD = "the run fails with `HookFailed`, no request leaves, and the history stays valid"
_FAILURES = {
    9: f"unreleased text is dropped; {_HELD}",
    10: f"the message is not stored and unreleased text is dropped; {_HELD}",
    11: "that call gets an error result and does not run; the run goes on",
    12: "that call gets an error result and does not run; the run goes on",
    13: "the real result is withheld and the model reads an error; the run goes on",
    15: "the run fails with `HookFailed`, because progress is saved here",
    17: "nothing is compacted",
}


def markdown() -> str:
    """The whole reference, as docs/seams.md holds it."""
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    table = "\n".join([*head, *[_table_row(spec) for spec in SEAMS]]) + "\n"
    chart = f"## The loop\n\n```mermaid\n{mermaid()}\n```\n"
    info = f"- Every context has `run`, which describes the run: {', '.join(f'`{name}`' for name in _properties(RunInfo))}.\n"
    return "\n".join([INTRO, table, ORDER, chart, RULES + info, *map(_section, SEAMS)])


def _table_row(spec: SeamSpec) -> str:
    number, name, kind, when, *decides, irreversible = cells(spec)
    shown = [f"`{cell}`" if cell else "" for cell in decides]
    gone = f"**{irreversible}**" if irreversible else ""
    return f"| {' | '.join([number, f'[`{name}`](#{number}-{name})', kind, when, *shown, gone])} |"


def _section(spec: SeamSpec) -> str:
    verdicts, effects = spec.forms()[: len(spec.verdicts)], spec.forms()[len(spec.verdicts) :]
    ranks = " > ".join(f"`{verdict.__name__}`" for verdict in spec.ranks)
    lines = [
        f"- Fires {spec.when}.",
        f"- Context `{spec.context.__name__}`: {', '.join(_fields(spec.context))}.",
        f"- May return {', '.join(f'`{form}`' for form in verdicts) if verdicts else 'nothing but `None`'}.",
        *([f"- Effects: {', '.join(f'`{form}`' for form in effects)}."] if effects else []),
        *([f"- Refusals, strongest first: {ranks}."] if len(spec.ranks) > 1 else []),
        f"- If a hook fails closed: {_FAILURES.get(spec.number, _HELD)}.",
        *([f"- Right after it, **{spec.irreversible}**."] if spec.irreversible else []),
    ]
    return f"### {spec.number} `{spec.name}`\n\n" + "\n".join(lines) + "\n"


def _fields(context: type[Seen]) -> list[str]:
    """What a context holds: its fields, then what it works out."""
    own: list[str] = [name for name in context.__struct_fields__ if name != "run"]
    worked_out: list[str] = []
    for cls in reversed([c for c in context.__mro__ if issubclass(c, Seen)]):
        worked_out += _properties(cls)
        worked_out += [f"{name}()" for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("_")]
    return [f"`{name}`" for name in [*own, *dict.fromkeys(worked_out)]]


def _properties(cls: type) -> list[str]:
    return [name for name, value in vars(cls).items() if isinstance(value, property)]
