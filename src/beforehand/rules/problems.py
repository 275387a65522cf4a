"""What is wrong with rule files, all of it, each with file, line, field and the form that was expected."""

from __future__ import annotations

from collections.abc import Iterable

from beforehand.documents.problems import Problem, did_you_mean, field_name, listed, shown
from beforehand.errors import ConfigError


class RuleFileError(ConfigError):
    """Rule files that cannot be loaded. Nothing of them was. `problems` has every mistake that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "" if count == 1 else f"{count} mistakes in rule files, so none was loaded:\n"
        super().__init__(head + "\n".join([str(problem) for problem in self.problems]))


__all__ = ["Problem", "RuleFileError", "did_you_mean", "field_name", "listed", "shown"]
