"""The model an example talks to: the script it brings along (offline), or a real one named on the command line."""

from __future__ import annotations

import argparse

from beforehand import Model


def chosen(scripted: Model) -> tuple[str | Model, str | None]:
    """`scripted`, or what `--model openai:NAME --base-url URL` says: a model and its base URL, as `Agent` takes them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="such as openai:NAME; without it a scripted model answers, offline")
    parser.add_argument("--base-url", help="an OpenAI-compatible endpoint, such as http://localhost:11434/v1")
    args = parser.parse_args()
    if args.model is None:
        return scripted, None
    return args.model, args.base_url
