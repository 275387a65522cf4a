"""The commands and their options. What they do lives in the modules beside this one, which are loaded when needed."""

from __future__ import annotations

import asyncio
import copy
import io
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from .overview import Grouped, add_examples, name_of
from .recorded import RUNS_DB, JournalPath, KeyEnv, Since, add_commands, key_from, reader
from .terminal import console_for, refuse_together, reported, safe

app = typer.Typer(
    help="An agent core whose hooks run before a decision can no longer be taken back.",
    epilog="Each command has its own --help, with examples.",
    cls=Grouped, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Plain = Annotated[bool, typer.Option("--plain", help="No colours, no boxes.")]
HookFiles = Annotated[
    list[Path] | None,
    typer.Option("--hooks", metavar="PATH", help="Python file with hooks, rule file, or folder of rule files; repeatable."),
]
ProjectFile = Annotated[Path | None, typer.Option("--project", help="A project file, or the folder that has one.")]
ToolFiles = Annotated[list[Path] | None, typer.Option("--tools", metavar="PATH", help="Python file with tools; repeatable.")]


def start() -> None:
    """Run the command of the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal cannot show is no reason to stop
    _with_only(sys.argv[1:2])(prog_name="beforehand")


def _with_only(names: list[str]) -> typer.Typer:
    """The command line with this command alone, if it is one. Typer makes all that there are, which takes longer than most do."""
    chosen = [command for command in app.registered_commands if name_of(command) in names]
    if not chosen:
        return app
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = chosen, []
    return alone


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
    which: Annotated[str | None, typer.Argument(metavar="[lambdas]", help="Hooks in sandboxes, and how they fail.")] = None,
    plain: Plain = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the timeline as a picture to this file.")] = None,
    local: Annotated[bool, typer.Option("--local", help="Use a small real model on this machine (extra [local]).")] = False,
    debug: Debug = False,
) -> None:
    """See it work: a travel assistant, two hooks, and a manager. No network, no key."""
    with reported(debug):
        from .demo import show

        asyncio.run(show(console_for(sys.stdout, plain), svg, local, which))


EXIT_CODES = (
    "Exit codes: 0 done; 2 something is written down wrongly; 3 to 8 and 10 the run failed; 9 it stopped before it was done; 130 "
    "Ctrl-C."
)


@app.command(epilog=EXIT_CODES)
def run(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help='What to say; "-" reads it from standard input.')],
    model: Annotated[str | None, typer.Option(help="Such as openai:NAME. A project file may name it.")] = None,
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint, such as http://localhost:11434/v1")] = None,
    hooks: HookFiles = None,
    tools: ToolFiles = None,
    project: ProjectFile = None,
    instructions: Annotated[str | None, typer.Option(help="What the agent is told beforehand.")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="The run ends after so many turns.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON, and nothing else.")] = False,
    wire: Annotated[bool, typer.Option("--wire", help="Also show what is sent and received.")] = False,
    journal: Annotated[str | None, typer.Option("--journal", help="Record the run in this file, or in postgresql://...")] = None,
    key_env: KeyEnv = None,
    plain: Plain = False,
    debug: Debug = False,
) -> None:
    """Run an agent on a real endpoint. Its text goes to stdout, the timeline to stderr; the key comes from OPENAI_API_KEY."""
    with reported(debug):
        from ..journal import open_journal
        from .run import Job, run_job

        text = sys.stdin.read() if prompt == "-" else prompt
        job = Job(
            prompt=text, model=model, base_url=base_url, hooks=tuple(hooks or ()), tools=tuple(tools or ()),
            instructions=instructions, max_turns=max_turns, as_json=as_json, wire=wire, plain=plain, project=project,
            journal=None if journal is None else open_journal(journal, key=key_from(key_env)),
        )  # fmt: skip
        code = asyncio.run(run_job(job))
    raise typer.Exit(code)


@app.command()
def hooks(
    hooks: HookFiles = None, tools: ToolFiles = None, project: ProjectFile = None, plain: Plain = False, debug: Debug = False
) -> None:
    """List what is registered: seam, order, from where, for what, and what a failure means."""
    with reported(debug):
        from .listing import list_hooks

        list_hooks(tuple(hooks or ()), tuple(tools or ()), console_for(sys.stdout, plain), project)


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
    strict: Annotated[
        bool, typer.Option("--strict", help="Go on with no run whose tools or hooks have changed since it began.")
    ] = False,
    key_env: KeyEnv = None,
    debug: Debug = False,
) -> None:
    """Carry the runs that are submitted to a database, in any number of processes (extra [durable]). Ends with SIGTERM."""
    with reported(debug):
        from . import worker as page
        from ..engine import QueueLimits

        page.needs_extra()
        limits = QueueLimits(concurrency=queue_concurrency, worker_concurrency=worker_concurrency)
        asyncio.run(page.work(page.database_url(database_url), agents, limits, grace, key_from(key_env), strict))


@app.command(epilog=EXIT_CODES)
def submit(
    agent: Annotated[str, typer.Argument(help="The agent's name, as workers serve it.")],
    prompt: Annotated[str, typer.Argument(help='What to say; "-" reads it from standard input.')],
    database_url: DatabaseUrl = None,
    run_id: Annotated[str | None, typer.Option(help="Submitting twice under one id is submitting once.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the run and print what it says.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
    key_env: KeyEnv = None,
    debug: Debug = False,
) -> None:
    """Submit a run to the workers of a database and print its id (extra [durable])."""
    with reported(debug):
        from . import worker as page

        page.needs_extra()
        text = sys.stdin.read() if prompt == "-" else prompt
        where, key = page.database_url(database_url), key_from(key_env)
        code = asyncio.run(page.submit(where, agent, text, run_id, wait, as_json, key))
    raise typer.Exit(code)


add_commands(app, EXIT_CODES)

RulePaths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Rule files, or folders of them.")]
CheckPaths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Rule files, project files, or folders of them.")]


@app.command()
def check(paths: CheckPaths, debug: Debug = False) -> None:
    """Validate rule files and project files, and print what becomes of them. Exit code 2 if anything is wrong."""
    with reported(debug):
        from .check import check_paths

        right = check_paths(paths)
    raise typer.Exit(0 if right else 2)


@app.command("try")
def try_(
    paths: RulePaths,
    on: Annotated[Path, typer.Option("--on", help="A recorded conversation (.jsonl) or stream (.sse).")],
    debug: Debug = False,
) -> None:
    """Play a recording past rule files: what each rule would do, and what the reader would have seen."""
    with reported(debug):
        from ..rules import load_rules, try_rules

        print(safe(str(try_rules(load_rules(paths), on))))


BacktestHooks = Annotated[
    list[Path], typer.Option("--hooks", metavar="PATH", help="Python file, rule file, or folder of rule files; repeatable.")
]


@app.command()
def backtest(
    hooks: BacktestHooks,
    journal: JournalPath = RUNS_DB,
    key_env: KeyEnv = None,
    since: Since = None,
    expect_no_change: Annotated[bool, typer.Option("--expect-no-change", help="Exit code 1 if anything changes.")] = False,
    examples: Annotated[int, typer.Option("--examples", min=0, help="How many differences of each kind to show.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print each difference as one line of JSON, then the counts.")] = False,
    debug: Debug = False,
) -> None:
    """Put other hooks to the recorded values of past runs: what would have changed. No model is asked, no tool runs."""
    with reported(debug):
        from .backtest import run_backtest
        from .lines import moment

        with closing(reader(journal, key_env)) as book:
            report = asyncio.run(run_backtest(book, tuple(hooks), moment(since), as_json, examples))
    raise typer.Exit(1 if report.unreadable or (expect_no_change and report.differences) else 0)


@app.command()
def targets(
    action: Annotated[str | None, typer.Argument(metavar="EDIT", help="add, remove, set or all; nothing shows them.")] = None,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="main, or inner loops, also future ones.")] = None,
    source: Annotated[str | None, typer.Option(help="The lambda, such as lib/policy.ts:transform.")] = None,
    timeout_ms: Annotated[str | None, typer.Option(help='1000 to 300000; "none" takes it out.')] = None,
    project: Annotated[Path, typer.Option("--project", help="A project file, or the folder that has one.")] = Path(),
    debug: Debug = False,
) -> None:
    """Show and edit the loops in which the pre_llm_hook runs. A new hook starts with Main."""
    with reported(debug):
        from .targets import edit_targets

        edit_targets(project, action, tuple(names or ()), source, timeout_ms)


@app.command()
def authorize(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Of the workspace, such as lib/policy.ts.")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take the authority away.")] = False,
    protect: Annotated[str | None, typer.Option(help="Set the protection: read_only, no_delete or none.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show what has been said about which file.")] = False,
    project: Annotated[Path, typer.Option("--project", help="A project file, or the folder that has one.")] = Path(),
    workspace: Annotated[Path | None, typer.Option(help="The workspace folder, where there is no project file.")] = None,
    debug: Debug = False,
) -> None:
    """Authorise files as they are now. A lambda in such a file may do what is restricted; any edit takes that away."""
    with reported(debug):
        from .authorize import authority_of, authorize_files, show_authority

        authority = authority_of(project, workspace)
        if listing:
            refuse_together("--list", {"--revoke": revoke, "--protect": protect is not None, "files": bool(files)})
            show_authority(authority)
        else:
            refuse_together("--revoke", {"--protect": revoke and protect is not None})
            authorize_files(authority, files or [], revoke, protect)


schema = typer.Typer(help="Print the JSON Schema of a file format.", no_args_is_help=True)
app.add_typer(schema, name="schema")


@schema.command()
def rules() -> None:
    """The JSON Schema of rule files, for an editor's completion and checks."""
    import json

    from ..rules import rules_json_schema

    print(json.dumps(rules_json_schema(), indent=2))


@schema.command()
def project() -> None:
    """The JSON Schema of project files."""
    import json

    from ..config.format import project_json_schema

    print(json.dumps(project_json_schema(), indent=2))


add_examples(app)
