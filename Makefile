# Two commands matter: `make demo` and `make test`. Both set up all they need in .venv, from Python 3.10 to 3.14, git, make, gcc.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.demo
JOBS   ?= 2
# RERUN=--rerun runs a few failing tests again before giving up, and names those that pass then.
RERUN  ?=
# The paper's data sets are not part of the project; where a folder of them lies beside the checkout, use it.
export ENCRYPTEDSTATS_DATA ?= $(wildcard $(CURDIR)/../shared/data)
# Tests start hundreds of programs: each would compile the whole package again where bytecode must not be kept.
test test-full test-faults test-browser: export PYTHONDONTWRITEBYTECODE =

.PHONY: demo reproduce casestudy test test-full test-faults test-browser test-mutants test-sanitize test-arm test-r lint types bench docs clean setup wheel matrix lowest pins materials release

# Installs what the demo runs, and none of the development tools.
demo: $(DEMO)
	$(BIN)/python examples/forest.py

# The paper's evaluation and its case study again; `make reproduce ARGS="performance --splits 20"`.
reproduce: $(STAMP)
	$(BIN)/python -m reproduction evaluation $(ARGS)

casestudy: $(STAMP)
	$(BIN)/python -m reproduction casestudy $(ARGS)

test: $(STAMP)
	$(BIN)/python tests/run_suite.py --jobs $(JOBS) $(RERUN) -m "not slow and not browser"

test-full: $(STAMP) test-mutants test-sanitize test-arm test-r test-browser
	HYPOTHESIS_PROFILE=full $(BIN)/python tests/run_suite.py --jobs $(JOBS) --limit 8000

# Every mistake of a list in the noise rules must be noticed by their calibration.
test-mutants: $(STAMP)
	$(BIN)/python tests/run_mutants.py --jobs $(JOBS)

# The C extensions built with gcc's sanitizers, in a folder of their own, with their tests and random fuzzers.
test-sanitize: $(STAMP)
	$(BIN)/python tests/run_sanitized.py --jobs $(JOBS)

# $(call debian,COMMANDS THAT SUCCEED WHERE IT IS THERE,PACKAGES): installs Debian's packages where they are missing; fails if it cannot.
# One target at a time: apt-get does not wait for another that reads the lists of packages.
debian = { { $(1); } > /dev/null 2>&1 || { command -v apt-get > /dev/null && flock $(VENV)/apt.lock sh -c 'apt-get update -qq && \
  DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq --no-install-recommends -o DPkg::Lock::Timeout=120 $(2) > /dev/null'; }; }

# The C extensions compiled for ARM: what their tests call must give the same residues on an emulated processor.
test-arm: $(STAMP)
	@$(call debian,command -v qemu-aarch64 && command -v aarch64-linux-gnu-gcc,gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user) || \
	  { echo "qemu-aarch64 or aarch64-linux-gnu-gcc is missing, and could not be installed (apt-get, as root): ARM is skipped"; exit 0; }; \
	$(BIN)/python tests/run_arm.py

# The R package: its tests and its vignette, with Debian's R and the Python of this environment.
R_NEEDS := reticulate testthat knitr
test-r: export R_LIBS = $(CURDIR)/build/r
test-r: export RETICULATE_PYTHON = $(CURDIR)/$(BIN)/python
test-r: $(STAMP)
	@$(call debian,Rscript $(foreach name,$(R_NEEDS),-e "library($(name))"),r-base-core $(addprefix r-cran-,$(R_NEEDS))) || \
	  { echo "R with $(R_NEEDS) is missing, and could not be installed (apt-get, as root): its tests are skipped"; exit 0; }; \
	set -e; mkdir -p build/r; R CMD INSTALL --library=build/r r > build/r/install.log 2>&1 || { cat build/r/install.log; exit 1; }; \
	(cd r/tests && Rscript -e 'library(testthat); library(encryptedstats)' \
	  -e 'test_dir("testthat", package = "encryptedstats", reporter = "check")'); \
	cd build/r && Rscript -e 'options(knitr.duplicate.label = "allow"); knitr::opts_chunk$$set(error = FALSE)' \
	  -e 'invisible(knitr::knit("$(CURDIR)/r/vignettes/encryptedstats.Rmd", quiet = TRUE))' && echo "The vignette runs: build/r/encryptedstats.md"

# Kills at random moments, two writers, broken storage: some minutes. ENCRYPTEDSTATS_FAULT_SEED=n makes other moments.
test-faults: $(STAMP)
	$(BIN)/python -m pytest tests/faults

# Both pages in a real browser, Debian's Chromium, which is installed if it is missing and can be.
# ENCRYPTEDSTATS_SCREENSHOTS=docs/img draws the pictures of docs/guides/app.md again.
test-browser: $(STAMP)
	@$(call debian,command -v chromium || command -v chromium-browser,chromium) || \
	  echo "chromium is missing, and could not be installed (apt-get, as root): these tests are skipped"
	$(BIN)/python tests/run_suite.py --only browser $(RERUN) -m browser

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

# The source package and the wheel for this machine, checked, and tried in fresh environments without a compiler; `make matrix` also
# with the lowest versions of what it depends on, and `make lowest` (in .ci/run) with those alone, with the oldest Python, quickly: the
# highest are those of .venv. BUILDERS has the tools, pinned by hash; `make pins` writes the hashes again.
BUILDERS := build/builders
matrix: TRY := --versions lowest highest
lowest: TRY := --versions lowest --python 3.10 --quick
wheel matrix lowest: $(BUILDERS)/.installed
	PATH="$(CURDIR)/$(BUILDERS)/bin:$$PATH" $(BUILDERS)/bin/python packaging/try_wheel.py $(TRY) $(ARGS)

# uv installs them in seconds; it is the first of them, by the same hashes.
$(BUILDERS)/.installed: packaging/builders.txt
	$(PYTHON) -m venv $(BUILDERS)
	sed -n '/^uv==/,/[^\\]$$/p' $< > $(BUILDERS)/uv.txt
	$(BUILDERS)/bin/python -m pip install --quiet --require-hashes --requirement $(BUILDERS)/uv.txt
	$(BUILDERS)/bin/uv pip install --quiet --python $(BUILDERS)/bin/python --require-hashes --requirement $<
	touch $@

pins: $(BUILDERS)/.installed
	cd packaging && ../$(BUILDERS)/bin/uv pip compile --quiet --upgrade --generate-hashes --universal --python-version 3.11 --no-header \
	  builders.in --output-file builders.txt

# What the package brings along: a software bill of materials (CycloneDX), and the licences of all of it, none of which may be unknown.
materials: $(BUILDERS)/.installed
	$(PYTHON) -m venv build/materials
	build/materials/bin/python -m pip install --quiet '.[all]'
	mkdir -p dist
	$(BUILDERS)/bin/cyclonedx-py environment build/materials --output-file dist/materials.cdx.json
	$(BUILDERS)/bin/pip-licenses --python build/materials/bin/python --format markdown --order license --output-file dist/licences.md \
	  --fail-on "UNKNOWN;GNU Affero General Public License v3;GNU General Public License v3 (GPLv3)"

# What is published: packages that are built twice with the same bytes, the bill of materials, and the hashes of all of it.
release: $(BUILDERS)/.installed
	rm -rf dist
	$(MAKE) materials
	$(BUILDERS)/bin/python packaging/make_release.py

setup: $(STAMP)

$(DEMO): pyproject.toml $(wildcard setup.py src/encryptedstats/_native/*.c)
	@[ ! $(STAMP) -nt pyproject.toml ] || { touch $@; exit 0; }; set -e; \
	echo "Installing into $(VENV) ..."; $(PYTHON) -m venv $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plots]'; touch $@

$(STAMP): pyproject.toml $(wildcard setup.py src/encryptedstats/_native/*.c)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]'
	@# Tests compare with lifelines, which says that it wants pandas 2 and works with 3: its dependencies are in the extra, itself is not.
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps 'lifelines>=0.30'
	touch $@

clean:
	rm -rf $(VENV) build dist out site .pytest_cache .mypy_cache .ruff_cache .hypothesis
