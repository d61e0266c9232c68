# Each target sets itself up: it needs Python 3.11 or newer and make, no more. PYTHON=… names another Python.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-embedded test-system test-container lint format storm bench clean

VENV := .venv
BIN := $(VENV)/bin
RECENT := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c '$(RECENT)' 2>/dev/null && echo $$python && break; done)

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 24

demo: $(VENV)/ready-demo ## Index Python's standard library, with jobs in a PostgreSQL of its own
	@$(BIN)/millpond demo

test: test-embedded test-system test-container ## All tests, on every PostgreSQL that there is

test-embedded: $(VENV)/ready-dev ## … on the PostgreSQL that comes as a wheel
	MILLPOND_TEST_SERVER=embedded $(BIN)/pytest

test-system: $(VENV)/ready-dev ## … those that use a server, on the system's own
	@if $(BIN)/python -m millpond.testing.programs; then set -x; \
		MILLPOND_TEST_SERVER=system $(BIN)/pytest -m 'database and not storm and not container'; \
	else echo '*** SKIPPED: no PostgreSQL 15 or newer of the system, so only the embedded one was tested.'; fi

test-container: $(VENV)/ready-dev ## … the smoke tests, on one in a container
	@if docker info >/dev/null 2>&1; then set -x; \
		MILLPOND_TEST_SERVER=container $(BIN)/pytest -m container; \
	else echo '*** SKIPPED: no Docker engine answers, so the container tests did not run.'; fi

lint: $(VENV)/ready-dev ## Style, types and the arrows between the rooms
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/ready-dev ## Put the style right
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

storm: $(VENV)/ready-dev ## Kill storms and soaks: long
	$(BIN)/pytest -m storm

bench: $(VENV)/ready-dev ## Measure the pool and the store
	$(BIN)/python -m benchmarks.pool

clean: ## Take away what was set up
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@if [ -z '$(PYTHON)' ]; then echo 'No Python 3.11 or newer was found: make PYTHON=/path/to/it' >&2; exit 1; fi
	@$(PYTHON) -c '$(RECENT)' || { echo '$(PYTHON) is older than 3.11: make PYTHON=/path/to/a/newer/one' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The extra `demo` or `dev`, again whenever what it asks for has changed.
$(VENV)/ready-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
