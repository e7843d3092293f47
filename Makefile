# Torch with several threads beside another process can run twenty times slower.
export OMP_NUM_THREADS ?= 1
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast check benchmarks reproduce gallery clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints/cpu.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints/cpu.txt -e '.[test,check]'
	touch $(READY)

demo: $(READY)  ## train a rich and a lazy network on digits, measure both, write demo/report.html
	$(BIN)/lazyrich demo

test: $(READY)  ## all tests
	$(BIN)/pytest -n 2 -q

test-fast: $(READY)  ## the tests that take no longer than a few seconds each
	$(BIN)/pytest -n 2 -q -m 'not slow and not chromium'

check: $(READY)  ## format, lint, types, and that no lower floor imports a higher one
	$(BIN)/ruff format --check src tests benchmarks experiments
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

benchmarks: $(READY)  ## ratios against the bare cost, one run each
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

reproduce: $(READY)  ## NAME=...: one of the papers' experiments again, with its verdicts
	$(BIN)/python -m experiments $(or $(NAME),--list)

gallery: $(READY)  ## one page over all reproductions, from the records in the repository
	$(BIN)/python -m experiments --gallery

clean:  ## remove the environment and what the tools left
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis .import_linter_cache demo
