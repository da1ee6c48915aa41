# Needs python3 (3.11 or newer), make and a way to PyPI; installs into this folder only.
# Another Python: PYTHON=python3.12 make test

PYTHON ?= python3
PORT ?= 8000
# Tests wait more than they work: several processes for each core that make may use.
WORKERS ?= auto
ARGS :=
# The generated half sends what the other half sends: each runs on one engine, on that which can do
# most and on the oldest. some-conditions has others; test-conditions has all engines for all tests.
ENGINES := --engine valkey --sync-engine redis6
# tests/conftest.py says what is in a part: usual, long, pages. Empty: all.
PART := --part usual
VENV := .venv
PINS := requirements/dev.txt
PYTHONS := 3.11 3.12 3.13 3.14
CONDITIONS := tls resp2 slow dribble narrow uvloop busy stopped busy+hasty stopped+hasty tls+slow+hasty echoed
OLDEST_REDIS := 6.0.0
BEHAVIOUR := tests/behaviour tests/races
# What every caller depends on.
EVERYWHERE := hold fences deleted_keys waiting renew once once_after once_functions once_lost \
	outage silence lost_replies delivered_later
behaviour = $(foreach half,$(1),$(foreach name,$(EVERYWHERE),tests/behaviour/$(half)/test_$(name).py))

UV := $(or $(shell command -v uv 2>/dev/null),.tools/bin/uv)
BIN := $(VENV)/bin
# What runs tests, also behind a condition or on another client.
UNDER = $(BIN)/python -m pytest -q --workers $(WORKERS)
# Named after the interpreter, so that another PYTHON recreates the environment.
READY := $(VENV)/.ready-$(subst /,-,$(PYTHON))

export PORT PROJECT_URL DOCS_URL
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_PYTHON_DOWNLOADS := never
# Without stored bytecode each process of a run compiles its libraries again: 22 CPU seconds to collect
# the tests, 1 to 3 for each interpreter that a test starts. `make clean` removes it.
unexport PYTHONDONTWRITEBYTECODE
# Or it would ask the network whether there is a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help setup run docs quick map test all-tests check lint types pytest test-long \
	test-pages some-conditions test-conditions test-redis test-all simulate test-frameworks \
	test-newest type-checkers bench rivals dist upload release audit generate pictures pins clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 17

setup: $(READY) ## the environment in .venv, from hashed pins
	@:

run: setup ## the playground, at PORT=8000
	@$(BIN)/python -m apps.playground $(ARGS)

# PROJECT_URL: the repository that pages link to. DOCS_URL: where the site is published.
docs: setup ## the documentation as a site, in build/docs/html
	@$(BIN)/python -m tools.docsite $(ARGS)

# tests/quick.py says which tests those are. AGAINST=main: what differs from another commit.
quick: lint ## lint, and for less than a minute the tests that reach what was changed
	@$(BIN)/python -m tests.quick --workers $(WORKERS) $(addprefix --against ,$(AGAINST)) $(ARGS)
	@$(if $(wildcard tests/simulation/__main__.py),$(BIN)/python -m tests.simulation --seconds 10)

# Once in a while, for `make quick`: which functions each test enters.
map: setup ## every test, remembering what it reaches: then `make quick` chooses better
	@$(UNDER) $(ENGINES) --map $(ARGS)

# The types are checked while the first tests wait. With ARGS only a few tests are of interest.
test: lint ## check, and the tests but those of test-long and test-pages; ARGS="-k lease" goes to pytest
	@$(MAKE) --no-print-directory -j2 types $(if $(ARGS),pytest,all-tests)

all-tests: pytest
	@$(MAKE) --no-print-directory some-conditions

check: lint types ## lint, format, types, whether the generated half is up to date and the documentation short

lint: setup
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "not formatted: run $(BIN)/ruff format"; exit 1; }
	@$(BIN)/python tools/unasync.py --check
	@$(BIN)/python tools/count_words.py --check

types: setup
	@$(BIN)/pyright --project .

pytest: setup
	@$(UNDER) $(or $(ARGS),$(ENGINES) $(PART))

test-long: ## what takes long: more seeds and explorations, the site, lists of sentences, mutants
	@$(MAKE) --no-print-directory pytest PART="--part long"

test-pages: ## pages in a browser (`apt install chromium`)
	@$(MAKE) --no-print-directory pytest PART="--part pages"

# What belongs to every run: conditions that have found defects, for the tests that every caller
# depends on. A busy process: tests/races/test_no_false_outages.py. All of it: test-conditions.
some-conditions: setup
	@$(UNDER) --condition tls --condition dribble --engine redis7 --sync-engine valkey \
		$(call behaviour,_async _sync)
	@$(UNDER) --condition uvloop --engine valkey $(call behaviour,_async)

test-conditions: setup ## the behaviour tests under every condition, redis-py and Python
	@failed=; \
	for condition in $(CONDITIONS); do \
		echo "== $$condition"; \
		$(UNDER) $$(printf ' --condition %s' $$(echo $$condition | tr + ' ')) $(BEHAVIOUR) || failed="$$failed $$condition"; \
	done; \
	for redis in oldest newest; do \
		$(MAKE) --no-print-directory test-redis AT=$$redis || failed="$$failed redis-$$redis"; \
	done; \
	$(MAKE) --no-print-directory test-all ARGS="$(BEHAVIOUR) tests/core tests/model" \
		|| failed="$$failed Python"; \
	test -z "$$failed" || { echo "failed under:$$failed"; exit 1; }

# AT=oldest: that of pyproject.toml's lower limit; AT=newest: the newest below the upper one.
AT := oldest
test-redis: ## the behaviour tests on the oldest redis-py that pyproject.toml allows; AT=newest for the other end
	@echo "== the $(AT) redis-py that pyproject.toml allows"
	@$(MAKE) --no-print-directory setup VENV=.venv-redis-$(AT)
	@$(UV) pip install --quiet --python .venv-redis-$(AT)/bin/python $(REDIS_$(AT))
	@$(MAKE) --no-print-directory pytest VENV=.venv-redis-$(AT) ARGS="$(BEHAVIOUR)"

REDIS_oldest := --require-hashes -r requirements/redis-oldest.txt
REDIS_newest := --no-build-isolation --upgrade-package redis --upgrade-package hiredis --editable .

# pyenv's shims answer for versions that are not switched on, so its real folders are searched first.
test-all: $(UV) ## every test on each installed Python among 3.11 to 3.14
	@path=$$PATH; failed=; \
	for folder in "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin; do path="$$folder:$$path"; done; \
	for version in $(PYTHONS); do \
		if python=$$(PATH="$$path" $(UV) python find --system $$version 2>/dev/null); then \
			echo "== Python $$version"; \
			$(MAKE) --no-print-directory pytest PART= VENV=.venv-$$version PYTHON="$$python" \
				|| failed="$$failed $$version"; \
		else \
			echo "== Python $$version is not installed: not tested"; \
		fi; \
	done; \
	test -z "$$failed" || { echo "failed on Python$$failed"; exit 1; }

# SEEDS: how many of each workload, or FIRST-LAST. Ten seconds of CPU: ARGS="--seconds 10".
SEEDS := 1000
simulate: setup ## the real client in a simulated world; SEEDS=5000 ARGS="hold limit", ARGS="hold --trace 910006"
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

# The local LINE needs a newer Starlette than the oldest that dibs works with.
NEEDS_LOCAL_LINE := $(addprefix --deselect tests/integrations/test_linebot_dispatcher.py::test_, \
	line_is_answered_before_the_work_and_each_event_once what_the_sdk_does_without_a_dispatcher)
# Of two Cookie lines old Starlette reads the first, and it fails at forms that are broken.
NEEDS_NEW_PARSERS := --ignore tests/integrations/test_two_readers.py
# The SDKs of agents need newer frameworks.
NEEDS_AGENTS := --ignore tests/integrations/test_agents.py
# Old frameworks use what is deprecated since; that is no failure of ours.
test-frameworks: ## the tests of integrations, on the oldest version of each framework, queue and listener
	@$(MAKE) --no-print-directory pytest VENV=.venv-oldest PINS=requirements/oldest.txt \
		ARGS="tests/http tests/integrations tests/cli -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning $(NEEDS_LOCAL_LINE) $(NEEDS_NEW_PARSERS) $(NEEDS_AGENTS) $(ARGS)"

# Resolved anew at each run, with the same Python. FOUND: what was found, and differs from the pins.
FOUND := build/newest.txt
test-newest: $(UV) ## … on the newest that is published and allowed
	@mkdir -p build && rm -f $(FOUND)
	@UV_CUSTOM_COMPILE_COMMAND="make test-newest" $(UV) pip compile --quiet --generate-hashes --upgrade \
		--python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" --no-emit-index-url \
		--override requirements/overrides.in pyproject.toml --group dev -o $(FOUND)
	@grep -ohE '^[a-zA-Z0-9._-]+==[^ ;]+' $(PINS) | sort -u >build/pinned.versions
	@grep -ohE '^[a-zA-Z0-9._-]+==[^ ;]+' $(FOUND) | sort -u >build/newest.versions
	@echo "== newer than the pins:"; comm -13 build/pinned.versions build/newest.versions
	@$(MAKE) --no-print-directory pytest VENV=.venv-newest PINS=$(FOUND) \
		ARGS="tests/http tests/integrations tests/databases tests/console tests/cli tests/local_line/test_sdk.py $(ARGS)"

type-checkers: setup ## what six type checkers say about right and wrong programs; ARGS=--write if they say another thing
	@$(MAKE) --no-print-directory setup VENV=.venv-checkers PINS=requirements/checkers.txt
	@.venv-checkers/bin/python -m tests.typing.checkers --python .venv/bin/python $(ARGS)

bench: ## the benchmarks, with the other libraries, in .venv-bench
	@$(MAKE) --no-print-directory setup VENV=.venv-bench PINS=requirements/bench.txt
	@.venv-bench/bin/python -m benchmarks $(ARGS)

# Each library in an environment of its own; ARGS="--only idemkit --case outage" measures a part again.
rivals: setup ## dibs beside other libraries under the same faults, and the table of docs/comparison.md; ten minutes
	@$(BIN)/python -m benchmarks.rivals --uv $(UV) $(ARGS)

dist: ## wheels and sdists in dist/, checked, installed alone, each extra tried; PROJECT_URL=… for a release
	@$(MAKE) --no-print-directory setup VENV=.venv-dist PINS=requirements/dist.txt
	@.venv-dist/bin/python -m tools.dist --uv $(UV) --url "$(PROJECT_URL)"

# Who publishes by hand has UV_PUBLISH_TOKEN in the environment; the workflow is trusted by the registry.
upload: $(UV)
	@$(UV) publish dist/*

release: ## dist, then all of it to the registry; needs PROJECT_URL
	@test -n "$(PROJECT_URL)" || { echo "say where the repository is published: make release PROJECT_URL=https://…"; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo "there are changes that are not committed"; exit 1; }
	@$(MAKE) --no-print-directory dist
	@$(MAKE) --no-print-directory upload

audit: setup ## hashes of all pins, rights of the workflows, known advisories; ARGS=--offline without the last
	@$(BIN)/python -m tools.audit $(ARGS)

generate: setup ## write the sync half from the async half, and the dashboard from the metrics
	@$(BIN)/python tools/unasync.py
	@$(BIN)/python tools/write_dashboard.py

# Drawn from the tables of the pages, benchmarks/results and tools/diagrams/runs.json. ARGS: some screenshots only.
pictures: setup ## the pictures of the documentation: bars, timelines of real runs, screenshots; needs `apt install chromium`
	@$(BIN)/python -m tools.diagrams --record
	@$(BIN)/python -m tests.pictures $(ARGS)

PIN_FOR = UV_CUSTOM_COMPILE_COMMAND="make pins" $(UV) pip compile --quiet --generate-hashes \
	--universal --no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade) --python-version
PIN = $(PIN_FOR) 3.11

pins: $(UV) ## requirements/ from pyproject.toml; UPGRADE=1 moves to the newest versions
	@$(PIN) pyproject.toml --group dev -o requirements/dev.txt
	@$(PIN) pyproject.toml --group bench -c requirements/dev.txt -o requirements/bench.txt
	@$(PIN) pyproject.toml --group oldest -o requirements/oldest.txt
	@$(PIN) pyproject.toml --group weamind -c requirements/dev.txt -o requirements/weamind.txt
	@echo redis==$(OLDEST_REDIS) | $(PIN) - -o requirements/redis-oldest.txt
	@$(PIN) pyproject.toml --group dist -c requirements/dev.txt -o requirements/dist.txt
	@$(PIN) pyproject.toml --group checkers -c requirements/dev.txt -o requirements/checkers.txt
	@echo uv | $(PIN) - -o requirements/uv.txt
	@grep -v '^#' requirements/rivals.in | while read name python packages; do \
		printf '%s\n' $$packages | $(PIN_FOR) $$python - -o requirements/rivals/$$name.txt; done

clean: ## remove everything that make has made
	@rm -rf .venv .venv-* .tools .hypothesis .pytest_cache .ruff_cache dist build
	@find src packages tests tools apps benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

define need_python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "dibs needs Python 3.11 or newer, and '$(PYTHON)' is not: try PYTHON=python3.12 make"; exit 1; }
endef

$(READY): pyproject.toml $(wildcard packages/*/pyproject.toml) $(PINS) | $(UV)
	$(need_python)
	@test -e $@ || { rm -rf $(VENV) && \
		$(UV) venv --quiet --no-project --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV); }
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes $(PINS)
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation \
		--editable . $$(for package in packages/*/; do echo "--editable $$package"; done)
	@touch $@

.tools/bin/uv: requirements/uv.txt
	$(need_python)
	@$(PYTHON) -m venv --clear .tools || { \
		echo "'$(PYTHON) -m venv' does not work here: install python3-venv, or uv"; exit 1; }
	@.tools/bin/python -m pip install --quiet --require-hashes -r requirements/uv.txt
	@touch $@
