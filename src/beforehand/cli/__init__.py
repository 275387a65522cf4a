"""The command line: `beforehand demo`, `run`, `hooks`, `seams`."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The entry point of the `beforehand` command. Ends the process with the exit code of what went wrong, if anything did."""
    from .app import start

    start()
