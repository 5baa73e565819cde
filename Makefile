# What a newcomer needs: `make demo`, `make test`. Both need python3 >= 3.11 with venv and pip, nothing else.
# Each step leaves a stamp, so the second time is quick.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:

VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# The first Python that is new enough; override with `make PYTHON=/path/to/python3.12 …`.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c '$(NEW_ENOUGH)' 2>/dev/null && { echo "$$p"; exit; }; done; echo python3)
SCRIPTS := hooks/append-log hooks/notify-desktop

.PHONY: help demo test fast lint types toolchain bench soak docs clean

help: ## show this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed -e 's/:.*## /\t/' | while IFS='	' read -r name text; do \
		printf '  make %-10s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.installed ## a loop that watches a small fake CI run, to its end (the first time installs)
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/watch-ci/demo.sh

test: lint types toolchain ## everything CI checks: style, types, all tests against the real Pi and Copilot
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

fast: $(VENV)/.dev ## the tests that need no real processes and no network
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not pi and not copilot and not opencode and not gemini and not packaging"

lint: $(VENV)/.dev ## style and mistakes (ruff)
	$(BIN)/ruff check . $(SCRIPTS)
	$(BIN)/ruff format --check . $(SCRIPTS)

types: $(VENV)/.dev ## static types (mypy, strict)
	$(BIN)/mypy

toolchain: $(VENV)/.dev ## node and the pinned agent CLIs, once, into a cache outside the tree
	@$(BIN)/python -m tests.support.toolchain
	@$(BIN)/python -m tests.support.acp_toolchain

bench: $(VENV)/.dev ## what loopsup costs on this machine
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/stream_rules.py

soak: $(VENV)/.dev ## a thousand wakes under random kills of everything; the books must balance (some minutes)
	$(BIN)/python -m tests.support.soak $(SOAK)

docs: $(VENV)/.dev ## write again the documentation that is generated from the source
	$(BIN)/python -m tests.support.make_docs

clean: ## remove what the other targets made here (not the cache of node, Pi and Copilot)
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "loopsup needs Python 3.11 or newer; $(PYTHON) is $$("$(PYTHON)" --version 2>&1 || true)." >&2; \
		echo "Install one and say which: make PYTHON=/path/to/python3.12 …" >&2; exit 1; }
	@echo "making a virtual environment in $(VENV), once …"
	@"$(PYTHON)" -m venv $(VENV) || { \
		echo "$(PYTHON) cannot make a virtual environment; install its venv module (Debian: python3-venv)." >&2; \
		rm -rf $(VENV); exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	@echo "installing loopsup and the few packages it needs into $(VENV); once, and it can take a minute or more …"
	@$(BIN)/python -m pip install -qq -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	@echo "installing loopsup with all extras and the tools of its tests into $(VENV); once, and it takes some minutes …"
	$(BIN)/python -m pip install -qq -e '.[dev]'
	@touch $@ $(VENV)/.installed
