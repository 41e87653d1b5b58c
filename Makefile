# The targets are listed by `make` alone. Everything is made inside this directory: .venv, target, demo.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
# The tests start pgdyno hundreds of times: keep its bytecode, even if the environment does not.
TESTS := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
ENGINE_SOURCES := $(shell find crates -name '*.rs' -o -name '*.sql' -o -name '*.lua' -o -name '*.txt' -o -name Cargo.toml) Cargo.toml Cargo.lock

.DEFAULT_GOAL := help
.PHONY: help setup requirements installed demo fleet-demo test core-test crash-test long-test page-test release-check build-test check wheel portable-wheel wheel-demo bench docs golden lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1	\2/' | expand -t 20

setup: ## build the engine and make .venv, so that .venv/bin/pgdyno is the command
	@$(MAKE) --no-print-directory --jobs=2 installed

installed: $(BIN)/pgdyno $(BIN)/pgdyno-engine
	@:

requirements:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pgdyno needs Python 3.11 or newer; $(PYTHON) is older. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@found=$$(cargo --version 2>/dev/null | cut -d' ' -f2); test "$$found" && printf '%s\n' 1.85 "$$found" | sort -V -C || { echo "pgdyno needs Rust (cargo 1.85 or newer; found: $${found:-none}) to build its engine; install it with rustup or your distribution's package (Debian 12: cargo-web)" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "pgdyno needs a C compiler (cc) and the headers of the C library to build its engine; on Debian: apt-get install gcc libc6-dev" >&2; exit 1; }

# .venv/bin/python is a link to a file that may not be ours to touch: a stamp of our own says what is installed.
.venv/installed: requirements.lock | requirements
	@echo "Installing Python packages in .venv, about 400 MB"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	@touch $@

$(BIN)/pgdyno: .venv/installed pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@# Only what pgdyno imports is compiled: compiling all packages takes as long as their installation.
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import pgdyno.cli.report'
	@touch $@

target/release/pgdyno-engine: $(ENGINE_SOURCES) | requirements
	@echo "Compiling the engine: this takes about 4 minutes on two cores the first time"
	MAKEFLAGS= cargo build --release --locked $$(test -t 2 || echo --quiet)
	@touch $@

$(BIN)/pgdyno-engine: .venv/installed target/release/pgdyno-engine
	@install -m 755 target/release/pgdyno-pgbench $(BIN)/pgdyno-pgbench
	@install -m 755 target/release/pgdyno-sysbench $(BIN)/pgdyno-sysbench
	@install -m 755 target/release/pgdyno-engine $@

demo: setup ## measure what synchronous_commit=off gains and loses in about three minutes, after the build; report in demo/
	$(BIN)/pgdyno demo demo

fleet-demo: setup ## compare 17 and 18 with load generators on two of three local Ray nodes, and kill one; needs pip install 'ray'
	$(BIN)/python tests/e2e/fleet_demo.py $(or $(ARMS),17 18) --directory demo/fleet

# A file keeps to one worker, in the order of conftest.py: those with servers first.
test: setup ## the tests of every change: the engine's, the Python side's, and those against real servers
	PGDYNO_TEST_PG_BIN="$${PGDYNO_TEST_PG_BIN:-$$($(BIN)/pgdyno servers path system 2>/dev/null || $(BIN)/pgdyno servers path 18)}" cargo test --release --quiet
	$(TESTS) -n $$(( $$(nproc) + 1 )) --dist loadfile --no-loadscope-reorder

core-test: setup ## the tests of the core, in a copy without the folder of features and their list
	rm -rf target/core && mkdir -p target/core
	git ls-files -z | xargs -0 cp --parents --target-directory target/core
	rm -rf target/core/python/pgdyno/features
	sed -i '/^FEATURES = (/,/^)/c FEATURES: tuple[str, ...] = ()' target/core/python/pgdyno/cli/features.py
	cd target/core && PYTHONPATH=python PYTHONDONTWRITEBYTECODE= $(CURDIR)/$(BIN)/python -m pytest tests/unit -n $$(( $$(nproc) + 1 )) --dist loadfile

crash-test: setup ## kill pgdyno, its engine and its servers N times (default 50, SEED=… repeats one) and check that nothing is lost
	PYTHONPATH=tests $(BIN)/python tests/e2e/crash.py --kills $(or $(N),50) $(if $(SEED),--seed $(SEED))

long-test: setup ## tests that take minutes or a quiet machine: bundled studies, power cuts, benchmarks, wheel, Ray, simulations
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[fleet]'
	$(TESTS) --long
	$(TESTS) tests/whole/test_fuzz_evidence.py --fuzz 500

page-test: setup ## the pages in the distribution's Chromium
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -qq --no-install-recommends chromium >/dev/null; } || { echo "page-test needs the package chromium; install it as root: apt-get install chromium" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/page/requirements.lock
	$(TESTS) tests/page

release-check: check test long-test page-test crash-test ## everything that is tested before a release, and the ratios to other programs
	$(BIN)/python -m bench ratios

build-test: setup ## build the clone of PostgreSQL in PGDYNO_CLONE from source, measure and bisect it
	$(BIN)/python -m pytest --long -rs tests/e2e/test_e2e_postgres_source.py

check: setup ## format, lint, types
	cargo fmt --check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy & types=$$!; cargo clippy --release --quiet --all-targets -- -D warnings; engine=$$?; wait $$types && exit $$engine

wheel: .venv/installed ## build the wheel of this platform, engine included, into target/wheel
	@rm -rf target/wheel
	@echo "Compiling the engine with link-time optimization: this takes longer than make setup"
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir target/wheel .

portable-wheel: .venv/installed ## build the wheel for glibc 2.28 or newer with zig, on any glibc; for ARM see CONTRIBUTING.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ziglang==0.17.1 cargo-zigbuild==0.24.1
	PATH="$(CURDIR)/$(BIN):$$PATH" PGDYNO_ZIG_TARGET=$(or $(TARGET),x86_64-unknown-linux-gnu.2.28) $(MAKE) --no-print-directory wheel

wheel-demo: wheel ## install the wheel in a bare environment and run its demo there, with cargo off the PATH
	@rm -rf target/bare
	$(PYTHON) -m venv target/bare/environment
	target/bare/environment/bin/python -m pip install --quiet --disable-pip-version-check target/wheel/*.whl
	cd target/bare && PATH="$$(echo "$$PATH" | tr : '\n' | grep -v cargo | paste -sd :)" environment/bin/pgdyno demo

bench: setup ## our own speed against the peers, on this machine, with the programs as a wheel has them
	cargo build --profile dist --locked
	PGDYNO_ENGINE=$(CURDIR)/target/dist/pgdyno-engine $(BIN)/python -m bench

docs: setup ## renew the pages of docs/ that are made from the code, with the help of every command
	$(BIN)/python docs/generate.py

golden: docs ## renew the golden files that tests compare: the generated pages, and reports and commands in tests/data/golden
	PYTHONPATH=tests:tests/unit:tests/whole $(BIN)/python tests/whole/golden_reports.py
	PYTHONPATH=tests:tests/unit:tests/whole $(BIN)/python tests/whole/golden_commands.py

lock: ## renew requirements.lock (names, versions, hashes) from pyproject.toml
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --extra dev --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-annotate -o requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --constraint requirements.lock --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-annotate -o tests/page/requirements.lock tests/page/requirements.in

clean: ## remove what was built here (the cache of servers and datasets stays: pgdyno cache prune)
	rm -rf .venv target demo
