# Each target sets up .venv by itself; Python 3.11+ and make are all it needs.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check fix bench clean

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("foldmark needs Python 3.11 or newer; try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY) ## the main job, on a session made on the spot
	$(BIN)/foldmark demo

test: $(READY) ## every test, two files at a time
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: $(READY) ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings

fix: $(READY) ## mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## measure, and write bench/RESULTS.md
	$(BIN)/python -m bench

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
