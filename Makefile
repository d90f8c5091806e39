# Two commands matter: `make demo` and `make test`. Both set up all they need in .venv, from Python 3.10 to 3.13, git, make, gcc.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 2
# The paper's data sets are not part of the project; where a folder of them lies beside the checkout, use it.
export ENCRYPTEDSTATS_DATA ?= $(wildcard $(CURDIR)/../shared/data)
# Tests start hundreds of programs: each would compile the whole package again where bytecode must not be kept.
test test-full test-faults: export PYTHONDONTWRITEBYTECODE =

.PHONY: demo reproduce casestudy test test-full test-faults test-mutants test-sanitize lint types bench docs clean setup

demo: $(STAMP)
	$(BIN)/python examples/forest.py

# The paper's evaluation and its case study again; `make reproduce ARGS="performance --splits 20"`.
reproduce: $(STAMP)
	$(BIN)/python -m reproduction evaluation $(ARGS)

casestudy: $(STAMP)
	$(BIN)/python -m reproduction casestudy $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow"

test-full: $(STAMP) test-mutants test-sanitize
	HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -n $(JOBS)

# Every mistake of a list in the noise rules must be noticed by their calibration.
test-mutants: $(STAMP)
	$(BIN)/python tests/run_mutants.py --jobs $(JOBS)

# The C extensions built with gcc's sanitizers, in a folder of their own, with their tests and random fuzzers.
test-sanitize: $(STAMP)
	$(BIN)/python tests/run_sanitized.py --jobs $(JOBS)

# Kills at random moments, two writers, broken storage: some minutes. ENCRYPTEDSTATS_FAULT_SEED=n makes other moments.
test-faults: $(STAMP)
	$(BIN)/python -m pytest tests/faults

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks --out benchmarks/results

# Every code block of the pages is run by `make test`; this makes the pages themselves, in site/.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

setup: $(STAMP)

$(STAMP): pyproject.toml $(wildcard setup.py src/encryptedstats/_native/*.c)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@# Tests compare with lifelines, which says that it wants pandas 2 and works with 3: its dependencies are in the extra, itself is not.
	$(BIN)/python -m pip install --quiet --no-deps 'lifelines>=0.30'
	touch $@

clean:
	rm -rf $(VENV) build dist out site .pytest_cache .mypy_cache .ruff_cache .hypothesis
