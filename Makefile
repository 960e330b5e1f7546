# Every target sets up what it needs: a virtual environment in .venv, and the native core, built in release mode. Both are
# made again only when what they are made from has changed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
CORE := hbroker/_native.abi3.so
CORE_SOURCES := Cargo.toml Cargo.lock hbroker/native/Cargo.toml $(shell find hbroker/native -name '*.rs')

# pyo3 asks this interpreter which ABI to build for, wherever cargo is called from.
export PYO3_PYTHON := $(CURDIR)/$(PY)
# One answer for every tool, whatever the shell that called make had activated.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1
export NO_MKDOCS_2_WARNING := 1

.PHONY: help
help: ## List the targets (this is the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

# Set-up ---------------------------------------------------------------------------------------------------------------

$(VENV)/.created: scripts/preflight.sh
	@python=$$(scripts/preflight.sh)
	echo "making $(VENV) with $$($$python --version)"
	$$python -m venv $(VENV)
	$(PY) -m pip install --upgrade 'pip>=25.1'
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	@echo "installing the development tools"
	$(PY) -m pip install --group dev
	touch $@

$(CORE): $(VENV)/.installed $(CORE_SOURCES)
	@echo "building the native core (release mode)"
	$(BIN)/maturin develop --release --quiet --extras admin,analysis,capture,top,traces
	touch $@

.PHONY: setup
setup: $(CORE) ## Make the environment and build the core; the other targets do so by themselves

# What a user does -----------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(CORE) ## A house of six brokers, live, for about ten seconds
	@$(PY) -m hbroker.demo

.PHONY: bench
bench: $(CORE) ## Measure beside mosquitto, nats-server, Zenoh and the kernel's limit; fill docs/benchmarks.md in
	@$(PY) -m bench.contest --write
	$(PY) -m bench.durable

# With zig's linker and headers, so that they run with an old C library. The ABI is that of Python 3.11 and later, whatever
# the Python of this machine is.
WHEEL_TARGETS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu

.PHONY: wheels
wheels: $(VENV)/.installed ## Build wheels for Linux into dist/, for each architecture whose Rust target is installed
	@for target in $(WHEEL_TARGETS); do
		if ! rustup target list --installed | grep -qx $$target; then
			echo "no wheel for $$target: call rustup target add $$target"
			continue
		fi
		env -u PYO3_PYTHON $(BIN)/maturin build --release --quiet --zig --compatibility manylinux_2_28 --target $$target --out dist
	done
	ls dist/*.whl

# What a developer does ------------------------------------------------------------------------------------------------

.PHONY: test
test: $(CORE) ## All tests, Rust and Python (under 10 minutes)
	@cargo test --workspace --quiet
	$(PY) -m pytest --quiet --numprocesses 2 --dist loadfile --no-loadscope-reorder

SEEDS ?= 2000
# Those with a long form, or without a short one.
LONG_TESTS := tests/analysis/test_cluster.py \
	tests/analysis/following/test_following.py \
	tests/clients/test_speed.py \
	tests/fuzz \
	tests/gateway/transports/test_guesses.py \
	tests/http_api/dashboard/test_many_nodes.py \
	tests/http_api/test_schema.py \
	tests/http_api/test_thousand_nodes.py \
	tests/lab \
	tests/loop \
	tests/network/moving/test_recovery.py \
	tests/network/moving/test_kills_while_moving.py \
	tests/product/hostile/test_control_flood.py \
	tests/product/dying/test_ended_leases.py \
	tests/product/dying/test_long_queues.py \
	tests/product/dying/test_random_kills.py \
	tests/product/dying/test_store.py \
	tests/product/moving/test_kills_while_moving.py \
	tests/product/moving/test_queue_moves.py \
	tests/product/dying/test_successions.py \
	tests/product/hosts/test_join_elsewhere.py \
	tests/product/hosts/test_replacing_under_load.py \
	tests/product/sessions/test_under_load.py \
	tests/rooms

.PHONY: soak
soak: $(CORE) ## Simulated networks from SEEDS (N or A-B), real ones for long, then randomised tests with fresh examples
	@$(PY) -m hbroker.sim.soak --seeds $(SEEDS)
	cargo build --release --quiet --features extension-module,broken --target-dir target/broken
	$(PY) -m tests.defects --core "$$(ls target/broken/release/lib_native.{so,dylib} 2>/dev/null)"
	cargo test --release --quiet -p hbroker-native --lib churn -- --ignored --nocapture
	$(PY) -m pytest --quiet $(LONG_TESTS) --long --timeout 3600
	$(PY) -m pytest --quiet -m hypothesis --hypothesis-profile soak --timeout 3600 --numprocesses 2 --dist worksteal

.PHONY: check
check: lint types layers generated rust docs ## Every static check, as CI makes them

.PHONY: lint types layers generated rust
lint: $(VENV)/.installed
	@$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(CORE)
	@$(BIN)/mypy
	$(PY) -m mypy.stubtest --allowlist scripts/stubtest-allowlist.txt hbroker._native

layers: $(VENV)/.installed
	@$(BIN)/lint-imports

generated: $(CORE)
	@$(PY) scripts/proto.py --check
	$(PY) -m scripts.wireshark --check
	$(PY) -m scripts.diagrams --check
	$(PY) -m scripts.metrics --check
	$(PY) -m scripts.conformance --check

rust: $(VENV)/.installed
	@cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy --workspace --all-targets --quiet --features python -- -D warnings

.PHONY: docs
docs: $(VENV)/.installed ## Build the documentation into site/ (strict: a dead link fails)
	@$(BIN)/mkdocs build --strict --quiet

.PHONY: diagrams
diagrams: $(CORE) ## Generate the diagrams of the documentation from tables and from a simulated run
	@$(PY) -m scripts.diagrams

.PHONY: conformance
conformance: $(VENV)/.installed ## Generate the table of MQTT 5's statements and their tests
	@$(PY) -m scripts.conformance

.PHONY: proto
proto: $(VENV)/.installed ## Generate the code that comes from packet.proto, and the dissector for Wireshark
	@$(PY) scripts/proto.py
	$(PY) -m scripts.wireshark

.PHONY: format
format: $(VENV)/.installed ## Format Python and Rust
	@$(BIN)/ruff format
	$(BIN)/ruff check --fix
	cargo fmt --all

.PHONY: clean
clean: ## Remove everything that was made, the environment too
	rm -rf $(VENV) target dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f $(CORE)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
