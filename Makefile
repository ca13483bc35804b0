# Each target sets up .venv by itself; Python 3.11+ and make are all it needs.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# ADK wants an older google-genai than the one that all else is tested with.
ADK := .venv-adk/bin
ADK_READY := .venv-adk/.ready
ADK_TESTS := $(wildcard tests/test_adk*.py)

.PHONY: demo test check fix bench docs clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("foldmark needs Python 3.11 or newer; try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

$(ADK_READY): pyproject.toml
	$(PYTHON) -m venv .venv-adk
	$(ADK)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(ADK)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev-adk]'
	touch $(ADK_READY)

demo: $(READY) ## the main job, on a recorded session
	$(BIN)/foldmark demo

test: $(READY) $(ADK_READY) ## every test, two files at a time
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)
ifndef ARGS
	$(ADK)/python -m pytest -n 2 --dist loadfile $(ADK_TESTS)
endif

check: $(READY) $(ADK_READY) ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings
	$(ADK)/basedpyright --warnings --pythonpath $(ADK)/python src/foldmark/adapters/adk $(ADK_TESTS)

fix: $(READY) ## mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## measure, and write bench/RESULTS.md
	$(BIN)/python -m bench

docs: $(READY) ## the documentation site, into site/
	$(BIN)/mkdocs build --strict

clean:
	rm -rf site .venv .venv-adk .pytest_cache .ruff_cache .hypothesis
