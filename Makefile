# The few commands. `make up` serves a real model on this machine; `make test` runs everything that the tests need.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
BENCH  ?= $(basename $(notdir $(shell grep -l __main__ benchmarks/*.py)))

.PHONY: help up down model test lint format completions corpus bench gpu chaos chaos-recovery mixes judgements peers clean
.DEFAULT_GOAL := help

help:  ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

up: $(VENV)/engine.stamp  ## install, fetch the model, start prefill + decode + router, prove it with a request
	$(BIN)/pdctl up $(UP_ARGS)

down: $(VENV)/engine.stamp  ## stop what `make up` started
	$(BIN)/pdctl down

model: $(VENV)/engine.stamp  ## fetch the default model into the cache
	$(BIN)/python -m pdctl.cli.default_model

test: $(VENV)/test.stamp model  ## all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

chaos: $(VENV)/test.stamp  ## one part of the long chaos run: PART=aborts|mass|restarts|stops|fuzz|mixed|states [CHAOS_ARGS='--seed N --tcp --schedule normal --tp 2']
	$(BIN)/python -m tests.chaos $(PART) $(CHAOS_ARGS)

mixes: $(VENV)/test.stamp  ## random request mixes get the same tokens in every way to serve [MIXES_ARGS='--mixes 200 --model tiny|smollm2']
	$(BIN)/python -m tests.mixes $(MIXES_ARGS)

judgements: $(VENV)/test.stamp model  ## judge systems in good health, and count the alarms [JUDGEMENTS_ARGS='--count 300 --results FILE']
	$(BIN)/python -m tests.judgements $(JUDGEMENTS_ARGS)

peers: $(VENV)/test.stamp  ## install the other engines that tests/peers runs, outside the repository [PEERS='vllm vllm-router dynamo']
	$(BIN)/python -m tests.peers.install $(PEERS)

lint: $(VENV)/test.stamp  ## style, types, import rules, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pdctl.cli.completions --check

format: $(VENV)/test.stamp  ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

completions: $(VENV)/test.stamp  ## write completions/ anew
	$(BIN)/python -m pdctl.cli.completions

corpus: $(VENV)/test.stamp  ## score the diagnosis on the incidents of tests/corpus
	$(BIN)/python -m tests.corpus.score

bench: $(VENV)/test.stamp model  ## every figure we quote, as ratios in one run [BENCH='engine ttft'] [BENCH_ARGS='...']
	for name in $(BENCH); do $(BIN)/python -m benchmarks.$$name $(BENCH_ARGS) || exit 1; done

gpu: $(VENV)/test.stamp  ## the Triton kernels compiled, against torch; says so where there is no CUDA device
	$(BIN)/python -m benchmarks.kernels

chaos-recovery: $(VENV)/test.stamp  ## kill pdctl -9 at every step boundary of a restart, before and after, client, executor and both
	PDCTL_CHAOS=long $(BIN)/python -m pytest -n 2 tests/chaos/test_recovery_kills.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# torch first and exactly pinned: on its own the pin finds a CPU build where one is offered, a range never does.
$(VENV)/engine.stamp: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet 'torch==2.13.0'
	$(PIP) install --quiet --editable '.[engine]'
	touch $@

$(VENV)/test.stamp: $(VENV)/engine.stamp
	$(PIP) install --quiet --editable '.[engine,test]'
	touch $@
