# All set-up is here: a fresh machine needs Rust stable, Python >= 3.10 with pip, a C compiler and make.
# Everything is installed into .venv and target/; nothing outside this folder is touched.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps
VENV_TENSORFLOW := .venv-tensorflow
RUST_SOURCES := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
# Warnings are errors everywhere, in one set of flags, so that nothing is built twice.
CARGO_FLAGS := --locked --workspace
# How the extension is built. With `dev` it has checks, is slower, and shares what the tests of Rust build.
PROFILE ?= release

say = @printf '\n== %s\n' "$(1)"

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

$(STAMPS)/requirements: requirements-dev.lock
	$(call say,Python environment in $(VENV))
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/extension: $(STAMPS)/requirements $(RUST_SOURCES) pyproject.toml
	$(call say,Rust extension ($(PROFILE)))
	@VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop --profile $(PROFILE) --locked --quiet
	@touch $@

.PHONY: build
build: $(STAMPS)/extension ## Build the extension into .venv

.PHONY: demo
demo: build ## Make photographs, train on them with the stock loader and with wellfed, compare
	$(call say,Demo)
	@$(PY) -m wellfed demo

.PHONY: test
test: lint test-rust docs test-python ## Run everything that must pass

.PHONY: lint
lint: $(STAMPS)/requirements ## Formatting, clippy, ruff, types
	$(call say,cargo fmt)
	@cargo fmt --all --check
	$(call say,ruff)
	@$(VENV)/bin/ruff format --check python benches examples crates
	@$(VENV)/bin/ruff check python benches examples crates
	$(call say,mypy)
	@$(VENV)/bin/mypy
	@$(MAKE) --no-print-directory clippy

.PHONY: clippy
clippy: ## Rust's lints
	$(call say,clippy)
	@cargo clippy $(CARGO_FLAGS) --all-targets --quiet -- -D warnings

.PHONY: test-rust
test-rust: $(STAMPS)/requirements ## Rust tests and documentation examples
	$(call say,Rust tests)
	@cargo test $(CARGO_FLAGS) --quiet

# Its tests run without it, too, and say so: TensorFlow has no wheels for some Pythons and platforms.
$(STAMPS)/tensorflow: requirements-tensorflow.lock
	$(call say,TensorFlow in $(VENV_TENSORFLOW))
	@test -x $(VENV_TENSORFLOW)/bin/python || $(PYTHON) -m venv $(VENV_TENSORFLOW)
	@$(VENV_TENSORFLOW)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements-tensorflow.lock || echo "note: TensorFlow cannot be installed; its tests are left out" >&2
	@mkdir -p $(STAMPS) && touch $@

.PHONY: environments
environments: $(STAMPS)/requirements $(STAMPS)/tensorflow ## Both Python environments

# They start scripts and wait for them for most of their time, so they run beside the others.
WAITING_TESTS := $(wildcard python/tests/test_doctor_*.py python/tests/test_planted.py python/tests/test_torch_examples.py python/tests/test_handover.py python/tests/test_keras.py)
WAITING_LOG := $(VENV)/waiting-tests.log

.PHONY: test-python
test-python: build $(STAMPS)/tensorflow ## Python tests against real PyTorch and TensorFlow, and docstring examples
	$(call say,Python tests)
	@if $(VENV_TENSORFLOW)/bin/python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("tensorflow"))'; then \
		export WELLFED_TENSORFLOW_PYTHON=$(abspath $(VENV_TENSORFLOW))/bin/python; fi; \
	$(PY) -m pytest -p no:cacheprovider $(WAITING_TESTS) >$(WAITING_LOG) 2>&1 & waiting=$$!; \
	$(PY) -m pytest $(WAITING_TESTS:%=--ignore=%); others=$$?; \
	wait $$waiting; status=$$?; cat $(WAITING_LOG); [ $$others = 0 ] && [ $$status = 0 ]

.PHONY: pillow-suite torchvision-suite tfdata-suite
pillow-suite: build ## Pillow's own tests with and without accelerate() (WELLFED_PILLOW_SUITE names a checkout)
	$(call say,Pillow's tests)
	@$(PY) python/tests/suites/run.py pillow

torchvision-suite: build ## torchvision's own tests with and without accelerate() (WELLFED_TORCHVISION_SUITE)
	$(call say,torchvision's tests)
	@$(PY) python/tests/suites/run.py torchvision

# Python steps need torch, which lies in the other environment.
tfdata-suite: build $(STAMPS)/tensorflow ## tf.data's own tests with wellfed's data sets, and with feed() (WELLFED_TENSORFLOW_SUITE)
	$(call say,tf.data's tests)
	@export PYTHONPATH=$(abspath python) TF_CPP_MIN_LOG_LEVEL=3; \
	export WELLFED_SUITE_PACKAGES=$$($(PY) -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])'); \
	$(VENV_TENSORFLOW)/bin/python python/tests/suites/run.py tfdata-verbs && \
	$(VENV_TENSORFLOW)/bin/python python/tests/suites/run.py tfdata-feed

# By the oldest NVRTC of CUDA 12, so that every driver of CUDA 12 and later loads what it makes.
NVRTC := target/nvrtc-12.0.140
$(NVRTC):
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --target $@ nvidia-cuda-nvrtc-cu12==12.0.140

.PHONY: ptx
ptx: $(NVRTC) ## Compile the CUDA kernels into the PTX that is shipped, after a change of crates/wellfed-cuda/kernels
	$(call say,PTX)
	@$(PYTHON) crates/wellfed-cuda/ptx/build.py --nvrtc $(NVRTC)

.PHONY: docs
docs: ## API documentation, warnings denied
	$(call say,Rust documentation)
	@RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps --quiet

.PHONY: bench
bench: build ## Compare with DALI, tf.data, torch, FFCV and others, side by side (downloads them)
	$(call say,Peers)
	@$(PYTHON) benches/setup_peers.py
	$(call say,Benchmark)
	@$(PYTHON) benches/run.py

.PHONY: bench-torch
bench-torch: build ## Compare wellfed.feed() with torch's DataLoader, side by side
	@$(PY) benches/torch_loader/run.py

.PHONY: bench-jpeg
bench-jpeg: ## Compare JPEG decoders on one core (needs cmake and nasm; downloads the others)
	$(call say,JPEG decoders)
	@$(PYTHON) benches/jpeg/run.py

FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= decode region levels index packed oracle
.PHONY: damaged-sounds
damaged-sounds: ## Decode 5,000 mutated and truncated files of each format of sound
	@cargo test --locked --release -p wellfed-audio --test damage -- --ignored --nocapture

.PHONY: fuzz
fuzz: ## Fuzz the JPEG decoder, each target for FUZZ_SECONDS (needs nightly, cargo-fuzz, cmake and nasm)
	@cargo run --locked --quiet -p wellfed-jpeg --example generate -- bulk target/fuzz-seeds 400
	@cargo run --locked --quiet -p wellfed-jpeg --example generate -- damaged target/fuzz-seeds 100
	@cd crates/wellfed-jpeg && for target in $(FUZZ_TARGETS); do \
		printf '\n== fuzz %s\n' $$target; \
		mkdir -p fuzz/corpus/$$target; \
		cargo +nightly fuzz run --target-dir ../../target/fuzz $$target fuzz/corpus/$$target ../../target/fuzz-seeds \
			-- -max_total_time=$(FUZZ_SECONDS) -max_len=16384 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 || exit 1; \
	done

.PHONY: bench-kernels
bench-kernels: ## Time the kernels and the engine alone
	@cargo run --release --locked --quiet -p wellfed-kernels --example bench_kernels
	@cargo run --release --locked --quiet -p wellfed --example bench_engine

.PHONY: fmt
fmt: $(STAMPS)/requirements ## Format Rust and Python
	@cargo fmt --all
	@$(VENV)/bin/ruff format python benches
	@$(VENV)/bin/ruff check --fix --quiet python benches

.PHONY: lock
lock: ## Renew the lock files from requirements-*.in, for all Pythons and platforms
	@$(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/pip install --quiet --disable-pip-version-check uv
	@$(VENV)-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes \
		--no-header --no-emit-index-url --output-file requirements-dev.lock requirements-dev.in
	@$(VENV)-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes \
		--no-header --no-emit-index-url --output-file requirements-tensorflow.lock requirements-tensorflow.in
	@rm -rf $(VENV)-lock

.PHONY: wheel
wheel: $(STAMPS)/requirements ## Build the wheel into dist/
	@$(VENV)/bin/maturin build --release --locked --out dist

.PHONY: clean
clean: ## Remove everything that was built or installed
	@rm -rf target $(VENV) $(VENV_TENSORFLOW) dist .demo .bench
