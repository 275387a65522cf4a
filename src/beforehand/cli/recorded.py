"""The commands about recorded runs, and their options: what happened, who has to answer, how a run goes on."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError, JournalUnreadable
from ..journal import Store, file_of, open_journal
from ..journal.pgopening import is_postgres
from .terminal import URL_FROM, refuse_together, reported

JournalPath = Annotated[str, typer.Option("--journal", help="The file in which runs are recorded, or postgresql://...")]
KeyEnv = Annotated[
    str | None, typer.Option("--key-env", help="Environment variable that holds the journal's key, if it is signed.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or how it begins.")]
AsJson = Annotated[bool, typer.Option("--json", help="One object of JSON a line, and nothing else.")]
Plain = Annotated[bool, typer.Option("--plain", help="No colours.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Since = Annotated[str | None, typer.Option("--since", help="Begun at this time or later: 2h, 7d, 2026-05-31.")]

RUNS_DB = "runs.db"


def key_from(name: str | None) -> bytes | None:
    """The key that an environment variable holds."""
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"--key-env {name}: the environment has no such variable, or it is empty")
    key = value.encode()
    if len(key) < 16:
        raise ConfigError(f"--key-env {name}: a journal's key has at least 16 bytes, and this variable holds fewer")
    return key


def reader(where: str, key_env: str | None = None) -> Store:
    """The journal, to look at only."""
    if hint := _elsewhere(where):
        raise JournalUnreadable(f"there is no journal {where}{hint}")
    return open_journal(where, readonly=True, key=key_from(key_env))


def writer(where: str, key_env: str | None) -> Store:
    """The journal, to add to what it holds. It must be there already."""
    if not is_postgres(where) and not Path(file_of(where)).is_file():
        raise ConfigError(f"there is no journal {where}{_elsewhere(where)}")
    return open_journal(where, key=key_from(key_env))


def _elsewhere(where: str) -> str:
    """Where else to look, for whoever has said nothing about that and has no such file, but a database of the engine."""
    if where != RUNS_DB or Path(where).exists() or not os.environ.get(URL_FROM):
        return ""
    return (
        f": {URL_FROM} is for `worker` and `submit`; to see its runs give the address with --journal, to `verify` by itself "
        "(the password is better in PGPASSWORD or ~/.pgpass)"
    )


def runs(
    journal: JournalPath = RUNS_DB,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only runs of this state; repeatable.")
    ] = None,
    since: Since = None,
    as_json: AsJson = False,
    plain: Plain = False,
    debug: Debug = False,
) -> None:
    """List the recorded runs: when, who, what was asked, and how they stand."""
    with reported(debug):
        from .lines import moment
        from .runs import show_runs, tell_of_untaken

        with closing(reader(journal)) as book:
            show_runs(book, states=tuple(state or ()), since=moment(since), as_json=as_json, plain=plain)
            if not state:
                tell_of_untaken(book, journal)


def trace(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="The run's id, or how it begins.")] = None,
    journal: JournalPath = RUNS_DB,
    hooks: Annotated[
        bool, typer.Option("--hooks", metavar="PATH", help="What each hook did and how long it took; of all runs without RUN.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Show long texts whole.")] = False,
    since: Since = None,
    as_json: AsJson = False,
    plain: Plain = False,
    debug: Debug = False,
) -> None:
    """Show what happened in a run: every decision with its reason, what ran, and what could not be taken back by then."""
    with reported(debug):
        from . import trace as page
        from .lines import moment

        with closing(reader(journal)) as book:
            if hooks:
                page.show_hooks(book, run, since=moment(since), as_json=as_json, plain=plain)
            elif run is None:
                raise ConfigError("trace needs the id of a run (`beforehand runs` lists them), or --hooks")
            else:
                page.show_trace(book, run, as_json=as_json, plain=plain, full=full)


def export(
    run: Run,
    out: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file, not to stdout.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="The records as they are, not the messages.")] = False,
    journal: JournalPath = RUNS_DB,
    debug: Debug = False,
) -> None:
    """Write the conversation of a run as JSON Lines, a message a line, in the form of OpenAI's chat completions."""
    with reported(debug):
        from .runs import export_run

        with closing(reader(journal)) as book:
            export_run(book, run, out, raw)


def verify(
    journal: Annotated[str, typer.Argument(metavar="JOURNAL", help="The journal: a file, or postgresql://...")] = RUNS_DB,
    key_env: KeyEnv = None,
    debug: Debug = False,
) -> None:
    """Check that a journal is as it was written. Exit code 1 if not, with the first bad record of each run."""
    with reported(debug):
        from .runs import verify_journal

        with closing(reader(journal, key_env)) as book:
            code = verify_journal(book)
    raise typer.Exit(code)


def approvals(
    answer: Annotated[
        bool, typer.Option("--answer", help="Record an answer: RUN CALL approve | deny REASON | edit JSON.")
    ] = False,
    words: Annotated[list[str] | None, typer.Argument(metavar="RUN CALL ANSWER", help="With --answer.")] = None,
    journal: JournalPath = RUNS_DB,
    key_env: KeyEnv = None,
    as_json: AsJson = False,
    plain: Plain = False,
    debug: Debug = False,
) -> None:
    """List what waits for a person, or answer it: `approvals --answer RUN CALL approve`. The run goes on with `resume`."""
    with reported(debug):
        from . import approvals as page

        if answer:
            with closing(writer(journal, key_env)) as book:
                asyncio.run(page.answer(book, words or ()))
        elif words:
            raise ConfigError(f"approvals {words[0]!r}: to answer, write --answer RUN CALL {page.FORMS}")
        else:
            with closing(reader(journal)) as book:
                page.show_waiting(book, as_json=as_json, plain=plain)


def settle(
    run: Run,
    call: Annotated[str, typer.Argument(metavar="CALL", help="The id of the call.")],
    result: Annotated[str | None, typer.Option("--result", help="It took effect: what the model will read.")] = None,
    failed: Annotated[str | None, typer.Option("--failed", help="It did not: what the model will read.")] = None,
    journal: JournalPath = RUNS_DB,
    key_env: KeyEnv = None,
    debug: Debug = False,
) -> None:
    """Say what became of a call whose process ended while it ran. The run takes that as its outcome when it goes on."""
    with reported(debug):
        from . import approvals as page

        with closing(writer(journal, key_env)) as book:
            asyncio.run(page.settle(book, run, call, result, failed))


def resume(
    run: Run,
    model: Annotated[str, typer.Option(help="Such as openai:NAME; the one the run began with if left out.")] = "",
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint. It is not taken from the record.")] = None,
    hooks: Annotated[list[Path] | None, typer.Option("--hooks", metavar="PATH", help="As the run began with.")] = None,
    tools: Annotated[list[Path] | None, typer.Option("--tools", metavar="PATH", help="As the run began with.")] = None,
    project: Annotated[Path | None, typer.Option("--project", help="As the run began with.")] = None,
    instructions: Annotated[str, typer.Option(help="What the agent is told beforehand; as recorded if left out.")] = "",
    answer: Annotated[
        list[str] | None, typer.Option("--answer", metavar="TEXT", help='CALL=approve, "CALL=deny REASON", "CALL=edit JSON".')
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse if tools or hooks have changed since.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Go on though tools or hooks are missing.")] = False,
    journal: JournalPath = RUNS_DB,
    key_env: KeyEnv = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON, and nothing else.")] = False,
    wire: Annotated[bool, typer.Option("--wire", help="Also show what is sent and received.")] = False,
    plain: Plain = False,
    debug: Debug = False,
) -> None:
    """Go on with a recorded run: nothing of it is decided, asked or done twice. Shows what happens from there on."""
    with reported(debug):
        refuse_together("--strict", {"--anyway": strict and anyway})
        from .resume import resume_job
        from .run import Job

        with closing(writer(journal, key_env)) as book:
            job = Job(
                prompt="", model=model, base_url=base_url, hooks=tuple(hooks or ()), tools=tuple(tools or ()),
                instructions=instructions, as_json=as_json, wire=wire, plain=plain, journal=book, project=project,
            )  # fmt: skip
            code = asyncio.run(resume_job(job, run, answer or (), strict=strict, anyway=anyway))
    raise typer.Exit(code)


def add_commands(app: typer.Typer, exit_codes: str) -> None:
    """Put these commands into the command line."""
    for command in (runs, trace, export, verify, approvals, settle):
        app.command()(command)
    app.command(epilog=exit_codes)(resume)
