# Needs make, a C compiler, and Python 3.11 or newer with venv and headers. The rest is set up in .venv.
#
#   make test PYTHON=python3.13             with another Python (after `make clean`)
#   make test PYTEST_ARGS="-k plan"         a part of the tests
#   make test WORKERS=0                     in one process; by default one for each core

PYTHON ?= python3
PYTEST_ARGS ?=
WORKERS ?= auto
MACHINES ?=
BENCH_ARGS ?=
CHAOS_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
DEMO := .venv-demo
SAY := sh .ci/say
CORE := $(wildcard src/ringhash/*.px[di] src/ringhash/*.pyx src/ringhash/interop/*.pxd src/ringhash/interop/*.pyx) setup.py pyproject.toml

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo gateway balancer test chaos chaos-fleet lint format types build bench asan portable everywhere valgrind clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Stamps: what they depend on is newer only when there is something to do again.

$(VENV)/.made:
	@$(SAY) "Making the environment $(VENV)" sh .ci/make-venv "$(PYTHON)" $(VENV)
	@touch $@

# The demonstration needs click and rich, and nothing of the tests.
$(DEMO)/.made: $(CORE)
	@[ -x $(DEMO)/bin/python ] || $(SAY) "Making the environment $(DEMO)" sh .ci/make-venv "$(PYTHON)" $(DEMO)
	@$(SAY) "Compiling ringhash, and installing numpy, click and rich" \
		$(DEMO)/bin/python -m pip install --quiet ".[cli]"
	@touch $@

$(VENV)/.core: $(VENV)/.made $(CORE)
	@$(SAY) "Compiling ringhash, and installing what its tests need: pytest, hypothesis, pandas, polars, pyarrow" \
		$(BIN)/python -m pip install --quiet --editable ".[cli,interop]" --group test --group frames
	@$(SAY) "Looking for PostgreSQL, and installing psycopg" sh .ci/install-postgres $(BIN)/python
	@touch $@

$(VENV)/.lint: $(VENV)/.made pyproject.toml
	@$(SAY) "Installing ruff, mypy and the other checkers" $(BIN)/python -m pip install --quiet --group lint
	@touch $@

$(VENV)/.bench: $(VENV)/.core benchmarks/peers.txt
	$(BIN)/python -m pip install --quiet --editable ".[cli,interop,bench]" --group bench
	@while read -r peer; do \
		$(BIN)/python -m pip install --quiet "$$peer" || echo "No $$peer here: its column will be missing."; \
	done <benchmarks/peers.txt
	@touch $@

demo: $(DEMO)/.made ## Route a year of real flights, then change the cluster
	@$(DEMO)/bin/python examples/flights_demo.py

gateway: $(VENV)/.core ## A cluster of WebSocket gateways: one joins, one is killed (live view)
	$(BIN)/python examples/websocket_gateway/gateways.py

balancer: $(VENV)/.core ## An HTTP balancer and five backends under load, one of which is killed
	$(BIN)/python examples/http_balancer/demo.py

test: $(VENV)/.core ## The tests. PYTEST_ARGS="-k plan" narrows them
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

chaos: $(VENV)/.core ## A minute of faults on real processes and PostgreSQL. CHAOS_ARGS="--db sqlite"
	$(BIN)/python tests/leases/chaos.py --seconds 60 $(CHAOS_ARGS)

chaos-fleet: $(VENV)/.core ## A minute of faults on a fleet whose keys move. CHAOS_ARGS="--db sqlite"
	$(BIN)/python tests/fleet/fleet_chaos.py --seconds 60 $(CHAOS_ARGS)

lint: $(VENV)/.lint ## The style of Python, Cython and workflow files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint src
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --config .ci/zizmor.yml .github/workflows

format: $(VENV)/.lint ## Rewrite the Python files in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.core $(VENV)/.lint ## Static types, and the stub against the built core
	$(BIN)/mypy --strict src $(wildcard tests/typing_*.py)
	$(BIN)/python -m mypy.stubtest ringhash._core ringhash._ordered ringhash.interop._table --mypy-config-file pyproject.toml

# Two builds of one commit are one file, byte for byte: the time in them is that of the commit.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1700000000)

build: $(VENV)/.lint ## The sdist, and this machine's wheel made from it, in dist/
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python .ci/even_sdist.py dist/*.tar.gz
	$(BIN)/python .ci/check_dists.py dist/*
	$(BIN)/twine check --strict dist/*

bench: $(VENV)/.bench ## The benchmarks. BENCH_ARGS are theirs
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

# AddressSanitizer needs gcc with its libasan (part of Debian's gcc), or clang: then say
# ASAN_RUNTIME=/path/to/libclang_rt.asan.so CC=clang. Python itself is not built for it, so the runtime is
# preloaded and leaks are not looked for. Its own environment: the core of `make test` stays as it is.
CC ?= cc
ASAN_RUNTIME ?= $(shell $(CC) -print-file-name=libasan.so) $(shell $(CC) -print-file-name=libstdc++.so)

$(VENV)-asan/.made:
	sh .ci/make-venv "$(PYTHON)" $(VENV)-asan
	@touch $@

asan: $(VENV)-asan/.made ## The core's tests under AddressSanitizer (needs libasan)
	RINGHASH_SANITIZE=address $(VENV)-asan/bin/python -m pip install --quiet ".[cli,interop]" --group test --group frames
	LD_PRELOAD="$(ASAN_RUNTIME)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		$(VENV)-asan/bin/python -m pytest tests -m core -p no:cacheprovider $(PYTEST_ARGS)

# What machines without SSE2 have. Its own environment, and its own objects.
$(VENV)-portable/.made:
	sh .ci/make-venv "$(PYTHON)" $(VENV)-portable
	@touch $@

portable: $(VENV)-portable/.made ## The core's tests with the core of a machine without SSE2
	RINGHASH_PORTABLE=1 $(VENV)-portable/bin/python -m pip install --quiet ".[cli,interop]" --group test --group frames
	$(VENV)-portable/bin/python -m pytest tests -m core -p no:cacheprovider $(PYTEST_ARGS)

# Needs Debian, and root for most of it; see .ci/everywhere/run. Downloads and builds are kept in ~/.cache.
everywhere: ## The core on other machines: without the GIL, s390x, aarch64; 32 bits are refused. MACHINES="arm64"
	PYTHON="$(PYTHON)" .ci/everywhere/run $(MACHINES)

# valgrind needs Debian's valgrind (and libc6-dbg). PYTHONMALLOC=malloc lets it see every block of Python's.
# About fifty times slower: narrow it with PYTEST_ARGS.
valgrind: $(VENV)/.core ## The core's tests under valgrind (needs valgrind)
	PYTHONMALLOC=malloc valgrind --quiet --suppressions=.ci/valgrind.supp --error-exitcode=99 --leak-check=no \
		$(BIN)/python -m pytest tests -m "core and not slow" --hypothesis-profile=few -p no:cacheprovider $(PYTEST_ARGS)

clean: ## Take away all that was built or installed here
	rm -rf .venv .venv-* build dist wheelhouse src/*.egg-info src/ringhash/*.so
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache .benchmarks
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
