# Each target sets up .venv by itself; Python 3.11+ and make are all it needs.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# ADK wants an older google-genai than the one that all else is tested with.
ADK := .venv-adk/bin
ADK_READY := .venv-adk/.ready
ADK_TESTS := tests/adapters/adk tests/contracts/test_adapters.py tests/contracts/test_adapter_pages.py

.PHONY: demo test test-all soak check fix bench docs clean

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

test: $(READY) $(ADK_READY) ## the quick tests: under five minutes on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long" $(ARGS)
ifndef ARGS
	$(ADK)/python -m pytest -n 2 --dist worksteal $(ADK_TESTS)
endif

test-all: $(READY) $(ADK_READY) ## every test: kills, fuzzing, local models, PostgreSQL everywhere
	FOLDMARK_EFFORT=full $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)
ifndef ARGS
	FOLDMARK_EFFORT=full $(ADK)/python -m pytest -n 2 --dist worksteal $(ADK_TESTS)
endif

soak: $(READY) $(ADK_READY) ## very long tests in parts; run again to resume; PART=name runs one
	$(BIN)/python scripts/soak.py $(PART)

check: $(READY) $(ADK_READY) ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings
	$(ADK)/basedpyright --warnings --pythonpath $(ADK)/python src/foldmark/adapters/adk $(ADK_TESTS) tests/support/adk_agents.py

fix: $(READY) ## mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## measure, and write bench/RESULTS.md
	$(BIN)/python -m bench

docs: $(READY) ## the documentation site, into site/
	$(BIN)/mkdocs build --strict

clean:
	rm -rf site .venv .venv-adk .pytest_cache .ruff_cache .hypothesis
