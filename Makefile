# `make demo` and `make test` are all the set-up there is: each makes .venv where there is none
# and installs what it needs, pinned by constraints.txt. A second time they find their stamp.

VENV := .venv
PY := $(VENV)/bin/python
HASH := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
RUNTIME := $(VENV)/.runtime-$(HASH)
TEST := $(VENV)/.test-$(HASH)
DEV := $(VENV)/.dev-$(HASH)
BENCH := $(VENV)/.bench-$(HASH)

# Tried by running them: a version manager's shim may be on PATH with no Python behind it.
PYTHONS := python3.11 python3.12 python3.13 python3 python

# Through the environment, so that the build of the package itself is pinned too.
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test test-models check test-gpu test-kills test-operators operations bench answers clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo      install into .venv, then find and fix real copy bugs in an example'
	@echo 'make test      install what tests need, then run them (ARGS="-k name" chooses)'
	@echo 'make test-models  prove captures on every tiny model of transformers (ARGS="bert t5" chooses)'
	@echo 'make check     lint, types, doctests, a clean import'
	@echo 'make test-gpu  run what needs a device and print a report to send'
	@echo 'make test-kills  kill what saves 200 times, and look at each file that is left'
	@echo 'make operations  watch every operation of the installed torch, and write what is said of them'
	@echo 'make test-operators  prove verdicts over all of torch'"'"'s operator database (minutes)'
	@echo 'make bench     time copies side by side with their peers'
	@echo 'make answers   write docs/answers/ from the package and the kept figures'
	@echo 'make clean     remove .venv and caches'

demo: $(RUNTIME)
	@$(PY) examples/demo.py

test: $(TEST)
	$(PY) -m pytest $(ARGS)

test-models: $(TEST)
	$(PY) tests/model_types/all_models.py $(ARGS)

check: $(DEV)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest -q tests/docs
	$(PY) -X dev -W error -c 'import truecopy'

test-gpu: $(TEST)
	@$(PY) tests/gpu_report.py

test-kills: $(TEST)
	@folder=$$(mktemp -d); $(PY) tests/kills.py 200 $$folder tests/kills.json; code=$$?; rm -r $$folder; exit $$code

# What `truecopy explain` knows, and the page of all of it. A change of torch shows in the diff.
operations: $(TEST)
	$(PY) -W ignore -m truecopy.explaining
	$(PY) -m truecopy explain --page docs/operations.html --force
test-operators: $(TEST)
	$(PY) tests/operators/proof.py

bench: $(BENCH)
	$(PY) benchmarks/run.py $(ARGS)

answers: $(TEST)
	$(PY) benchmarks/answer_pages.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

# pip is the last thing that making a virtual environment puts there.
$(VENV)/bin/pip:
	@for python in $(PYTHONS); do \
	  if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Making $(VENV) with $$python"; exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo 'truecopy needs Python 3.11 or newer with its venv module, and none is on PATH: install it, then run make again.' >&2; \
	exit 1

$(RUNTIME): | $(VENV)/bin/pip
	$(PY) -m pip install --quiet -e .
	@touch $@

$(TEST): | $(VENV)/bin/pip
	$(PY) -m pip install --quiet -e '.[test]'
	@touch $(RUNTIME) $@

$(BENCH): | $(VENV)/bin/pip
	$(PY) -m pip install --quiet -e '.[bench]'
	@touch $(RUNTIME) $(TEST) $@

$(DEV): | $(VENV)/bin/pip
	$(PY) -m pip install --quiet -e '.[dev]'
	@touch $(RUNTIME) $(TEST) $@
