# make demo   train on two synthetic graphs, test on a third; a table and a picture
# make test   format, lint, strict types, tests
# make test-browser   the report page in a headless Chromium, which it installs where it is missing (Debian, as root)
# make bench-speed   time and memory against the stock libraries; the data's folder in EDGEMASK_DATA
PYTHON ?= python3
BIN := .venv/bin
# The demo's and the tests' tensors are small: a second OpenMP thread only waits, and two test processes share 2 cores.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-browser bench-speed setup clean

demo: setup
	@$(BIN)/edgemask demo

test: setup
	@echo "== format and lint"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@echo "== types"
	@$(BIN)/mypy
	@echo "== tests"
	@$(BIN)/python -m pytest -n 2

test-browser: setup
	@if [ ! -x /usr/bin/chromium ]; then \
	  if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	    echo "make test-browser needs Chromium in /usr/bin/chromium: install the Debian package chromium as root" >&2; exit 1; \
	  fi; \
	  echo "== installing Chromium"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium > /dev/null; \
	fi
	@$(BIN)/python -m pytest -m browser tests/browser

bench-speed: setup
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.page > docs/performance.md

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "edgemask needs Python 3.11 or newer, got " + sys.version.split()[0])'
	@echo "== setting up .venv: this is done once and takes a few minutes"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv out build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
