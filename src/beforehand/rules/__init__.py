"""Rule files: hooks written as JSON, YAML or TOML, by someone who never touches the agent's code."""

from .problems import Problem, RuleFileError
from .ruleset import RuleSet, load_rules, rules_folder

__all__ = ["Problem", "RuleFileError", "RuleSet", "load_rules", "rules_folder"]
