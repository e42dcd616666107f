# `make` alone lists what there is. `demo` and `test` set up the virtual environment by themselves.

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
NEWEST_VENV ?= .venv-newest
NEWEST_PYTHON ?= $(shell .ci/newest-python)
NEWEST_BIN := $(NEWEST_VENV)/bin
NEWEST_INSTALLED := $(NEWEST_VENV)/.installed
TENSORFLOW_VENV ?= .venv-tensorflow
TENSORFLOW_INSTALLED := $(TENSORFLOW_VENV)/.installed
SITE_VENV ?= .venv-site
SITE_INSTALLED := $(SITE_VENV)/.installed
SAMPLE := examples/attention.mlir
DEMO_OUTPUT := build/attention.smaller.mlir

.PHONY: help demo test test-newest test-tensorflow corpus mutations large fuzz lint format site clean
.DEFAULT_GOAL := help

help: ## List what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

demo: $(INSTALLED) ## Split a sample, run both modules, compare
	@mkdir -p $(dir $(DEMO_OUTPUT))
	$(BIN)/exla-opt $(SAMPLE) --size-threshold=20MB --split-size=8MB --summary -o $(DEMO_OUTPUT)
	$(BIN)/exla-run $(DEMO_OUTPUT) --compare $(SAMPLE)

PART := 1/1
LIT_OPTIONS :=
test: lint ## Lint, types, unit tests, lit; PART=1/16: the first case of each test, and a sixteenth of the others
	$(BIN)/pytest -q -n 2 --dist=worksteal -p tests.part --part=$(PART)
	$(BIN)/lit -sv $(LIT_OPTIONS) tests/lit

test-newest: $(NEWEST_INSTALLED) ## The same without lint and types, on the newest Python and jax
	$(NEWEST_BIN)/python -c 'import sys, jaxlib; print("Python", sys.version.split()[0], "and jaxlib", jaxlib.__version__)'
	$(NEWEST_BIN)/pytest -q -n 2 --dist=worksteal -p tests.part --part=$(PART)
	$(NEWEST_BIN)/lit -sv $(LIT_OPTIONS) tests/lit

test-tensorflow: $(TENSORFLOW_INSTALLED) ## The tests of exla_opt.tensorflow, with TensorFlow, Keras and GPflow (2.5 GB)
	$(TENSORFLOW_VENV)/bin/python -m pytest -q tests/tensorflow

corpus: $(INSTALLED) ## Real programs: StableHLO's test data and JAX's public functions; an hour on two cores
	EXLA_OPT_CORPUS=all $(BIN)/python -m pytest -q -n 2 -p tests.corpus.tables -o faulthandler_timeout=600 \
		-o faulthandler_exit_on_timeout=true tests/unit/test_corpus.py tests/unit/test_exports.py tests/unit/test_libraries.py

N := 10000
mutations: $(INSTALLED) ## Damage N modules (N=10000, SEED=1): each is refused with a sentence or rewritten
	$(BIN)/python -m tests.mutations --count=$(N) --seed=$(or $(SEED),1)

large: $(INSTALLED) ## A million ops, a constant of 1 GB and the like: time and memory; takes 10 GB of memory
	$(BIN)/python -m tests.large_inputs

fuzz: N := 1000
fuzz: $(INSTALLED) ## Rewrite and run N=1000 generated programs (SEED=0): equal results, or written to build/fuzz
	$(BIN)/python -m tests.fuzz --count=$(N) --seed=$(or $(SEED),0)

lint: $(INSTALLED) ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

site: $(SITE_INSTALLED) ## The docs as a site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --quiet --strict

clean: ## Remove the virtual environment and everything built
	rm -rf $(VENV) $(NEWEST_VENV) $(TENSORFLOW_VENV) $(SITE_VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find tests/lit -name Output -type d -prune -exec rm -rf {} +

# The stamp is written last, so that an installation that broke off is done again.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "exla-opt needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(NEWEST_INSTALLED): pyproject.toml
	@test -n '$(NEWEST_PYTHON)' || { echo "no Python 3.12 or 3.13 found: make $@ NEWEST_PYTHON=/path/to/python3.13"; exit 1; }
	$(NEWEST_PYTHON) -m venv $(NEWEST_VENV)
	$(NEWEST_BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(TENSORFLOW_INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(TENSORFLOW_VENV)
	$(TENSORFLOW_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test-tensorflow]'
	@touch $@

$(SITE_INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[site]'
	@touch $@
