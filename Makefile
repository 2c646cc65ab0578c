# `make run` shows the agent at work. `make test` runs every check, and of each long search a slice; `make test-all` runs
# the searches whole.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Four workers on two processors: tests wait for other processes nearly half of their time.
PYTEST := $(BIN)/pytest -n 4 --dist loadgroup --no-loadscope-reorder
OUT ?= out/tour
SECONDS_SIMULATED ?= 240
SPEED ?= 8
OPEN ?=
SET_UP := command -v $(PYTHON) >/dev/null || { \
		echo "there is no $(PYTHON): on Debian or Ubuntu, as root: apt-get install python3 python3-venv"; exit 1; }; \
		$(PYTHON) scripts/set-up

# Tests start some hundred processes, each of which would compile the packages.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all test-long lint lint-types lint-style lint-imports test-modules fuzz perf man site pictures chart krew wheel sbom image clean colocation

run: $(READY)
	@OPEN=$(OPEN) scripts/tour $(BIN) $(OUT) $(SECONDS_SIMULATED) $(SPEED)

test: $(READY)
	@$(MAKE) --no-print-directory --jobs --output-sync=target lint-types lint-style lint-imports test-modules
	$(PYTEST) $(PYTEST_ARGS)

test-all: $(READY) lint
	KOORDLITE_TESTS=all $(PYTEST) $(PYTEST_ARGS)

# What `make test` leaves out, or takes a slice of.
test-long: $(READY)
	KOORDLITE_TESTS=all $(PYTEST) -m "long or sliced or hypothesis" $(PYTEST_ARGS)

# mypy takes one processor for most of the time: the others go on beside it.
lint: $(READY)
	@$(MAKE) --no-print-directory --jobs --output-sync=target lint-types lint-style lint-imports

# Compiled once, beside mypy: else each worker does it. What cannot be collected is said by the run itself.
test-modules:
	@$(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true

lint-types:
	$(BIN)/mypy

lint-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-imports:
	$(BIN)/lint-imports

$(READY): requirements.txt pyproject.toml
	@$(SET_UP) $(VENV) requirements.txt .
	@$(BIN)/python -m compileall -q koordlite descheduler
	@touch $(READY)

# Hostile inputs for every entry, others each time: make fuzz SECONDS=600 ENTRY=pods
fuzz: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(addprefix --entry ,$(ENTRY))

perf: $(READY)
	PYTHONPATH=tests/support $(BIN)/python tests/perf/agent/tick_cost.py
	PYTHONPATH=tests/support $(BIN)/python tests/perf/agent/tick_cost.py --emulated --pods 10 50 110 250
	PYTHONPATH=tests/support $(BIN)/python tests/perf/agent/worst_annotations.py
	PYTHONPATH=tests/support $(BIN)/python tests/perf/agent/steady.py
	PYTHONPATH=tests/support $(BIN)/python tests/perf/descheduler/measure.py --plugins --http 1000
	PYTHONPATH=tests/support $(BIN)/python tests/perf/api/churn.py
	$(BIN)/python tests/perf/scheduler/measure.py

# Services beside batch work on this machine, way by way: out/colocation.html. As root, with nothing else running. What
# has been measured is kept, so it can be interrupted; ONLY="--service redis --batch stream" measures a part.
colocation: $(READY)
	$(BIN)/python -m tests.perf.colocation --html out/colocation.html $(ONLY)

# Manual pages: man out/man/koordlite.1
man: $(READY)
	@$(BIN)/python scripts/man out/man

# The documentation as a site: out/site/index.html. Every link has to lead somewhere.
site: $(VENV)-site/.ready
	@echo "building the documentation"
	@NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/mkdocs build --strict --quiet
	@echo "wrote out/site; with search in it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory out/site 8000, then http://127.0.0.1:8000/"

$(VENV)-site/.ready: docs/requirements.txt
	@$(SET_UP) $(VENV)-site docs/requirements.txt
	@touch $@

# The pictures in docs/images. Needs Chromium; which of them is stale, tests/docs/test_pictures.py says.
pictures: $(READY)
	@scripts/pictures $(BIN)

# A Helm chart made of the kustomize overlays. Needs kubectl.
chart: $(READY)
	@$(BIN)/python scripts/chart out/chart/koordlite

# The kubectl plugin for krew, and its manifest: out/krew. URL is the folder that the archive will be downloaded from.
krew: $(READY)
	@$(BIN)/python scripts/krew out/krew $(URL)

# A package for pip and pipx: dist/koordlite-….whl
wheel: $(READY)
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

# What the image has in it, as CycloneDX: out/sbom.cdx.json
sbom: $(READY) $(VENV)-sbom/.ready
	@mkdir -p out
	@$(BIN)/python scripts/runtime-requirements requirements.txt pyproject.toml >out/runtime.txt
	@$(VENV)-sbom/bin/python -W ignore -m cyclonedx_py requirements out/runtime.txt --pyproject pyproject.toml -o out/sbom.cdx.json
	@echo "wrote out/sbom.cdx.json"

$(VENV)-sbom/.ready: scripts/sbom-requirements.txt
	@$(SET_UP) $(VENV)-sbom scripts/sbom-requirements.txt
	@touch $@

image:
	@scripts/image $(IMAGE)

clean:
	rm -rf $(VENV) $(VENV)-site $(VENV)-sbom out dist
