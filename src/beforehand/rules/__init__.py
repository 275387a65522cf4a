"""Rule files: hooks written as JSON, YAML or TOML, by someone who never touches the agent's code."""

from .check import CheckReport, check
from .format import rules_json_schema
from .problems import Problem, RuleFileError
from .ruleset import RuleSet, load_rules, rules_folder
from .trial import TrialReport, try_rules
from .watch import Watcher

__all__ = [
    "CheckReport", "Problem", "RuleFileError", "RuleSet", "TrialReport", "Watcher", "check", "load_rules", "rules_folder",
    "rules_json_schema", "try_rules",
]  # fmt: skip
