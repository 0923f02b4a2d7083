# `make demo` and `make test` do everything, set-up included.
PYTHON ?= python3
BIN := .venv/bin
# Only errors are shown; skipping byte compilation halves the time, and imports make up for it.
PIP := $(BIN)/pip install -qq --disable-pip-version-check --no-compile
HANME_DATA ?= $(abspath $(wildcard ../shared/data))
export HANME_DATA

.PHONY: setup demo test test-all lint fuzz flips faults kills audit-deps docs wheel results bench clean

setup: .venv/dev

.venv/runtime: requirements.lock pyproject.toml
	@echo "Installing into .venv, about a minute ..."
	@$(PYTHON) -m venv .venv
	@$(PIP) -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev: .venv/runtime requirements-dev.lock
	@echo "Installing what tests and documentation need ..."
	@$(PIP) -r requirements-dev.lock
	@touch $@

# The runtime dependencies alone.
demo: .venv/runtime
	@$(BIN)/python examples/demo.py

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The tests marked slow, which `make test` leaves out.
test-all: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

fuzz: setup
	$(BIN)/python tests/fuzz --cases $(or $(N),500) --seeds $(or $(SEEDS),1)

flips: setup
	$(BIN)/python tests/fuzz/flips.py --every $(or $(EVERY),1)

faults: setup
	$(BIN)/python tests/fuzz/faults.py

kills: setup
	$(BIN)/python tests/fuzz/kills.py --kills $(or $(N),5)

# Known vulnerabilities and licences of the dependencies; `hanme audit` is about scores.
audit-deps: setup
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	.venv/audit/bin/pip-audit --requirement requirements-dev.lock --disable-pip --no-deps
	$(BIN)/python tools/licences.py

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: setup
	$(BIN)/python -m build --wheel --no-isolation

results: setup
	$(BIN)/hanme benchmark --config paper --out docs/results --runs runs/paper

bench: setup
	$(BIN)/python benchmarks/run.py docs/results

clean:
	rm -rf .venv runs site dist
