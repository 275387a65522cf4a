"""The commands and their options. What they do lives in the modules beside this one, which are loaded when needed."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from .terminal import console_for, reported

app = typer.Typer(
    help="An agent core whose hooks run before a decision can no longer be taken back.",
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Plain = Annotated[bool, typer.Option("--plain", help="No colours, no boxes.")]
HookFiles = Annotated[
    list[Path] | None,
    typer.Option("--hooks", help="Python file with hooks, rule file or folder of them; may be given several times."),
]
ToolFiles = Annotated[list[Path] | None, typer.Option("--tools", help="Python file with tools; may be given several times.")]


def start() -> None:
    """Run the command of the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal cannot show is no reason to stop
    app(prog_name="beforehand")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"beforehand {version('beforehand')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """An agent core whose hooks run before a decision can no longer be taken back."""


@app.command()
def demo(
    plain: Plain = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the timeline as a picture to this file.")] = None,
    local: Annotated[bool, typer.Option("--local", help="Use a small real model on this machine (extra [local]).")] = False,
    debug: Debug = False,
) -> None:
    """See it work: a travel assistant, two booths on the line, and a manager. No network, no key."""
    with reported(debug):
        from .demo import show

        asyncio.run(show(console_for(sys.stdout, plain), svg, local))


EXIT_CODES = (
    "Exit codes: 0 done; 2 something is written down wrongly; 3 to 8 the run failed; 9 it stopped before it was done; 130 Ctrl-C."
)


@app.command(epilog=EXIT_CODES)
def run(
    prompt: Annotated[str, typer.Argument(help='What to say; "-" reads it from standard input.')],
    model: Annotated[str, typer.Option(help="Such as openai:NAME.")],
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint, such as http://localhost:11434/v1")] = None,
    hooks: HookFiles = None,
    tools: ToolFiles = None,
    instructions: Annotated[str, typer.Option(help="What the agent is told beforehand.")] = "",
    max_turns: Annotated[int | None, typer.Option(min=1, help="The run ends after so many turns.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON, and nothing else.")] = False,
    wire: Annotated[bool, typer.Option("--wire", help="Also show what is sent and received.")] = False,
    plain: Plain = False,
    debug: Debug = False,
) -> None:
    """Run an agent on a real endpoint. Its text goes to stdout, the timeline to stderr; the key comes from OPENAI_API_KEY."""
    with reported(debug):
        from .run import Job, run_job

        text = sys.stdin.read() if prompt == "-" else prompt
        job = Job(
            prompt=text, model=model, base_url=base_url, hooks=tuple(hooks or ()), tools=tuple(tools or ()),
            instructions=instructions, max_turns=max_turns, as_json=as_json, wire=wire, plain=plain,
        )  # fmt: skip
        code = asyncio.run(run_job(job))
    raise typer.Exit(code)


@app.command()
def hooks(hooks: HookFiles = None, tools: ToolFiles = None, plain: Plain = False, debug: Debug = False) -> None:
    """List what is registered: seam, order, from where, for what, and what a failure means."""
    with reported(debug):
        from .listing import list_hooks

        list_hooks(tuple(hooks or ()), tuple(tools or ()), console_for(sys.stdout, plain))


@app.command()
def seams(
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Draw the loop as a Mermaid flowchart.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the whole reference as Markdown.")] = False,
    plain: Plain = False,
    debug: Debug = False,
) -> None:
    """Show every seam: when it fires, what a hook may decide there, and what cannot be taken back right after."""
    with reported(debug):
        from . import seams as page

        if mermaid:
            print(page.mermaid())
        elif markdown:
            print(page.markdown(), end="")
        else:
            page.show_matrix(console_for(sys.stdout, plain))


DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="postgresql://USER:PASSWORD@HOST:PORT/DATABASE or sqlite:///PATH; else BEFOREHAND_DATABASE_URL."),
]


@app.command()
def worker(
    agents: Annotated[Path, typer.Option(help='Python file with agents = {"name": Agent(...)}.')],
    database_url: DatabaseUrl = None,
    queue_concurrency: Annotated[
        int | None, typer.Option(min=1, help="So many runs of one agent at once, over all workers.")
    ] = None,
    worker_concurrency: Annotated[int, typer.Option(min=1, help="So many runs of one agent at once in this worker.")] = 50,
    grace: Annotated[float, typer.Option(min=0, help="Seconds that running tools have to finish after SIGTERM.")] = 10.0,
    debug: Debug = False,
) -> None:
    """Carry the runs that are submitted to a database, in any number of processes (extra [durable]). Ends with SIGTERM."""
    with reported(debug):
        from . import worker as page
        from ..engine import QueueLimits

        page.needs_extra()
        limits = QueueLimits(concurrency=queue_concurrency, worker_concurrency=worker_concurrency)
        asyncio.run(page.work(page.database_url(database_url), agents, limits, grace))


@app.command(epilog=EXIT_CODES)
def submit(
    agent: Annotated[str, typer.Argument(help="The agent's name, as workers serve it.")],
    prompt: Annotated[str, typer.Argument(help='What to say; "-" reads it from standard input.')],
    database_url: DatabaseUrl = None,
    run_id: Annotated[str | None, typer.Option(help="Submitting twice under one id is submitting once.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the run and print what it says.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Submit a run to the workers of a database and print its id (extra [durable])."""
    with reported(debug):
        from . import worker as page

        page.needs_extra()
        text = sys.stdin.read() if prompt == "-" else prompt
        code = asyncio.run(page.submit(page.database_url(database_url), agent, text, run_id, wait, as_json))
    raise typer.Exit(code)


RulePaths = Annotated[list[Path], typer.Argument(help="Rule files, or folders of them.")]


@app.command()
def check(paths: RulePaths, debug: Debug = False) -> None:
    """Validate rule files and print what each rule becomes. Exit code 2 if anything is wrong."""
    with reported(debug):
        from ..rules import check as check_rules

        report = check_rules(paths)
        print(report)
    raise typer.Exit(0 if report.ok else 2)


@app.command("try")
def try_(
    paths: RulePaths,
    on: Annotated[Path, typer.Option("--on", help="A recorded conversation (.jsonl) or stream (.sse).")],
    debug: Debug = False,
) -> None:
    """Play a recording past rule files: what each rule would do, and what the reader would have seen."""
    with reported(debug):
        from ..rules import load_rules, try_rules

        print(try_rules(load_rules(paths), on))


schema = typer.Typer(help="Print the JSON Schema of a file format.", no_args_is_help=True)
app.add_typer(schema, name="schema")


@schema.command()
def rules() -> None:
    """The JSON Schema of rule files, for an editor's completion and checks."""
    import json

    from ..rules import rules_json_schema

    print(json.dumps(rules_json_schema(), indent=2))
