# On a fresh machine with Python 3.11, git and make: `make demo` and `make test`. No virtual environment needed.

VENV := .venv
BIN  := $(VENV)/bin
LOCK := requirements/lock-dev.txt

# What `make lock` resolves, beside the package's own dependencies.
LOCKED_EXTRAS := dev,js,otel,durable

# The interpreter .venv is made from: the version the lock was made for, else any that is new enough.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

# One more than there are processors, for the tests of workers and sandboxes wait a good deal of their time; at most four.
TESTERS := $(shell n=$$(getconf _NPROCESSORS_ONLN) && test $$n -lt 4 && echo $$((n + 1)) || echo 4)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo demo-local check lint types layers test bench crash lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.project ## make .venv with the pinned versions; rebuilt when the lock changes

demo: setup ## see it work: no key, no network
	@$(BIN)/beforehand demo

demo-local: setup $(VENV)/.local ## the same with a small real model on this machine (downloads about 110 MB once)
	@$(BIN)/beforehand demo --local

check: lint types layers ## lint, types, layers (`make -k check` goes on after a failure)

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/pytest -q tests/test_layers.py tests/test_public_surface.py

test: setup ## every test, with the coverage gate
	$(BIN)/pytest -n $(TESTERS) --dist worksteal --cov --cov-report=term-missing

bench: setup ## what it costs: turns, hooks, rules, streams, the journal, lambdas, tracing
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/bench_rules.py
	$(BIN)/python benchmarks/bench_patterns.py
	$(BIN)/python benchmarks/bench_journal.py
	$(BIN)/python benchmarks/bench_lambdas.py
	$(BIN)/python benchmarks/bench_otel.py

crash: setup ## kill 300 runs at any moment and resume them: nothing twice, nothing lost
	$(BIN)/python benchmarks/crash_test.py

lock: ## resolve the newest allowed versions anew and write them down
	@$(require-python)
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --editable '.[$(LOCKED_EXTRAS)]'
	{ sed '/^[^#]/,$$d' $(LOCK); build/lock/bin/python -m pip freeze --all --exclude-editable --exclude pip; } > build/lock/lock.txt
	cp build/lock/lock.txt $(LOCK)
	rm -rf build/lock

clean: ## remove .venv and everything generated
	rm -rf $(VENV) build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info

# The stamps are written last, so an interrupted installation starts over.
$(VENV)/.locked: $(LOCK)
	@$(require-python)
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "error: $(PYTHON) cannot make virtual environments (Debian: install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --requirement $(LOCK)
	@touch $@

$(VENV)/.project: $(VENV)/.locked pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.local: $(VENV)/.locked requirements/lock-local.txt
	$(BIN)/python -m pip install --quiet --no-deps --requirement requirements/lock-local.txt
	@touch $@

define require-python
test -n "$(PYTHON)" || { echo "error: beforehand needs Python 3.11 or newer, and none was found (say which: make PYTHON=/path/to/python)" >&2; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: beforehand needs Python 3.11 or newer, and $(PYTHON) is older or cannot run" >&2; exit 1; }
endef
