# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

export NO_MKDOCS_2_WARNING = 1
# Tests start Python hundreds of times: what it compiles is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test suite soak lint types style layers pages docs bench clean

# What is imported is compiled then, and kept: to compile all modules of all packages first takes longer than the rest.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint requirements/base.txt

# The base install as a user gets it, with the extra that brings an MPI library for the demo's MPI job.
$(VENV)/base: pyproject.toml requirements/base.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Koala needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[mpi]'
	touch $@

# What tests, lint, docs and benchmarks need on top, and the papers' experiments.
$(VENV)/dev: $(VENV)/base requirements/dev.txt papers/pyproject.toml
	$(PIP) --requirement requirements/dev.txt
	$(PIP) --constraint requirements/dev.txt --editable ./papers
	touch $@

# torch is large: only CI, which sets the variable CI, installs it. Elsewhere its tests are skipped.
$(VENV)/torch: $(VENV)/dev requirements/torch.txt
	$(PIP) --constraint requirements/dev.txt --requirement requirements/torch.txt
	touch $@

demo: $(VENV)/base
	$(BIN)/koala demo

# The checks that take seconds come first. The check of types takes a minute, of which the tests wait for none.
test: $(VENV)/dev
	$(MAKE) --jobs=3 style layers pages types suite

# A few failed tests of whole grids, and no others, get a second try, alone, and are counted and named as unsteady:
# tests/support/second_try.py. In none of the many processes shall numpy start threads, which spin for a while.
suite: export OPENBLAS_NUM_THREADS ?= 1
suite: $(VENV)/dev $(if $(CI),$(VENV)/torch)
	$(BIN)/python -m tests.support.second_try -n auto --dist loadfile

# Looks for rare failures for so long: tests/support/soak.py.
MINUTES ?= 60
soak: $(VENV)/dev
	$(BIN)/python -m tests.support.soak --minutes $(MINUTES)

lint: $(VENV)/dev
	$(MAKE) --jobs=2 types style layers pages

types: $(VENV)/dev
	$(BIN)/mypy $(if $(CI),--no-incremental)

style: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

layers: $(VENV)/dev
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config papers/pyproject.toml

pages: $(VENV)/dev
	$(BIN)/mkdocs build --strict --quiet

docs: $(VENV)/dev
	$(BIN)/mkdocs serve

bench: $(VENV)/dev
	$(BIN)/python benchmarks/simulators.py
	$(BIN)/python benchmarks/core_under_simulator.py
	$(BIN)/python benchmarks/planning_pass.py
	$(BIN)/python benchmarks/mapping.py
	$(BIN)/python benchmarks/daemon_under_load.py
	$(BIN)/python benchmarks/database_growth.py
	$(BIN)/python benchmarks/real_clusters.py

clean:
	rm -rf $(VENV) site
