# Needs python3 >= 3.11 and make; everything else is installed into .venv.
#
#   make demo      1,000 pods on 100 simulated nodes, in under two minutes
#   make unit      the tests that need no server and no program of a cluster, in a minute
#   make test      all tests, on real servers: Postgres, NATS, kube-apiserver (WORKERS=number side by side, TESTS=paths)
#   make lint      format, lint rules, types, import contracts, migrations, generated files
#   make parity    our decisions against upstream's, case by case (VECTORS=folder)
#   make soak      the long form of the fault tests
#   make fuzz      coverage-guided fuzzing of every decoder (SECONDS_EACH=30)
#   make generate  docs/asyncapi.json and docs/schemas from the event types
#   make clean     remove everything that make made

# Compiled modules are kept: without that each of the many processes of a test compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait for servers more than they compute: more files at a time than there are cores, each with servers of its own.
WORKERS ?= 3
UNIT := tests/unit tests/property
NO_SERVER := not soak and not servers and not kube and not node
# All recorded cases where they are beside this folder, else those that are kept in it.
VECTORS ?= $(or $(KOORD_VECTORS),$(wildcard ../shared/vectors),tests/parity/cases)

# Compiles the scheduler's passes where that has not been done yet: some 20 s, once.
COMPILE = @$(BIN)/python -c "import services.scheduler.in_memory_scheduler"

.PHONY: demo unit test lint types rules compiled parity soak fuzz generate clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	@$(BIN)/koord demo

unit: $(VENV)/installed
	$(COMPILE)
	$(BIN)/pytest -n $(WORKERS) -m "$(NO_SERVER)" $(or $(TESTS),$(UNIT))

compiled: $(VENV)/installed
	$(COMPILE)

test: $(VENV)/installed
	@$(BIN)/python -m cli.dev.binaries --build || test "$$KOORD_REQUIRE_KUBE" != 1
	$(COMPILE)
	$(BIN)/pytest -n $(WORKERS) $(TESTS)

# The types take three quarters of the time on one core: `make -j2 lint` checks the rest on the other.
lint: types rules

types: $(VENV)/installed
	$(BIN)/mypy

rules: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m tools.generate --check
	$(BIN)/python -m tools.words
	$(BIN)/python -m tools.schema

parity: $(VENV)/installed
	@$(BIN)/koord parity $(VECTORS)

soak: $(VENV)/installed
	@$(BIN)/python -m cli.dev.binaries --build || test "$$KOORD_REQUIRE_KUBE" != 1
	$(COMPILE)
	$(BIN)/pytest -m soak --timeout=3600 -o faulthandler_timeout=7200 $(TESTS)
	$(if $(TESTS),,KOORD_EXAMPLES=all $(BIN)/pytest -n $(WORKERS) -m "$(NO_SERVER)" $(UNIT))

fuzz: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	$(BIN)/python -m tests.property.fuzz_decoders --seconds $(or $(SECONDS_EACH),30)

generate: $(VENV)/installed
	$(BIN)/python -m tools.generate

clean:
	rm -rf $(VENV) .koord build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp: installed again when the project's file changes.
$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "koordstream needs Python 3.11 or later; give it as PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "python3 cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	@touch $@
