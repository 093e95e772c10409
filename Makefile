# Every command sets up what it needs and may be run again at any time. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo example test check format bench chaos fuzz docs lock clean env

DEMO_ARGS ?=
PYTEST_ARGS ?=
# Files of tests run side by side; each process has servers of its own. JOBS=0 runs everything in one process.
# Half of their time they wait, for servers, leases and killed processes: two for each core keep it busy.
JOBS ?= $(shell echo $$((2 * $$(nproc))))
BENCH_ARGS ?=
CHAOS_ARGS ?=
FUZZ_ARGS ?=
EXAMPLE_ARGS ?=
# Names what exists, so that the commands work from the first day of a tree.
PYTHON_DIRS = $(wildcard src tests bench examples)

help:  ## list the commands
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1|/' | while IFS='|' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

demo:  ## serve the payments demo on 127.0.0.1:8000 (DEMO_ARGS="--port 9000 --workers 2")
	@tools/venv .venv-demo requirements/demo.txt
	@.venv-demo/bin/oncekey demo $(DEMO_ARGS)

example: env  ## run the order service of examples/ and kill it at random (EXAMPLE_ARGS="--orders 100 --kills 50")
	@tools/provision servers
	@.venv/bin/python -m examples.orders.run $(EXAMPLE_ARGS)

test: env  ## install what is missing, check format, lint and types, run all tests (PYTEST_ARGS="-k claim")
	@tools/provision servers || [ -z "$$CI" ]  # without its server a test skips itself; CI must have them all
	@$(MAKE) --no-print-directory check
	@echo "pytest: all tests, real servers included"
	@.venv/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

check: env  ## format, lint and types, changing nothing (make format mends the first two)
	@echo "ruff: format and lint"
	@.venv/bin/ruff format --quiet --check $(PYTHON_DIRS)
	@.venv/bin/ruff check --quiet $(PYTHON_DIRS)
	@echo "mypy: types"
	@.venv/bin/mypy --no-error-summary

format: env  ## format the code and mend what lint can mend
	.venv/bin/ruff format $(PYTHON_DIRS)
	.venv/bin/ruff check --fix $(PYTHON_DIRS)

bench:  ## measure beside naive code and beside the peers (BENCH_ARGS="--write-docs", BENCH_ARGS="redis --quick")
	@tools/provision servers bench || [ -z "$$CI" ]  # without wrk or a server its section says so
	@PYTHON=$$(tools/pick-python newest) tools/venv .venv-bench requirements/bench.txt
	@PYTHON=$$(tools/pick-python newest) tools/venv .venv-peers requirements/bench-peers.txt
	@.venv-bench/bin/python -m bench $(BENCH_ARGS)

chaos: env  ## break it on purpose for ten minutes, and judge what happened (CHAOS_ARGS="--seconds 60 --store redis")
	@tools/provision servers
	@.venv/bin/python -m tests.chaos $(CHAOS_ARGS)

fuzz: env  ## feed bytes of strangers to everything that reads them, a minute for each target (FUZZ_ARGS="--seconds 600 --target replayed")
	@.venv/bin/python -m tests.fuzz $(FUZZ_ARGS)

docs: env  ## run every example of the docs as a test
	@if [ -d tests/docs ]; then .venv/bin/python -m pytest tests/docs $(PYTEST_ARGS); else echo "There is no tests/docs yet: no examples to run."; fi

lock: env  ## resolve the newest allowed packages and write their hashes (then read the diff)
	@tools/lock

clean:  ## remove what these commands made
	rm -rf .venv .venv-demo .venv-bench .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests bench examples docs -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

env:
	@tools/venv .venv requirements/dev.txt
