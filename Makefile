# make demo           train on two synthetic graphs, test on a third: a table and a picture
# make test           format, lint, import rules, strict types, tests
# make test-long      the tests that start many processes: kills, workers, clusters, examples
# make test-fast      the tests of the edit loop, in under a minute
# make test-portable  the numerical tests with other instruction sets and thread counts
# make test-browser   the report page in headless Chromium (installs Chromium on Debian as root if it is missing)
# make torture        kill commands at any moment and stage faults of the system: KILLS=200 SEED=1
# make fuzz           mutated files to every reader, in under 25 minutes on 2 cores: INPUTS=100000 SEED=1
# make check-paper    compare the pages and figures in docs/ with the records in results/, byte for byte
# make docs           build the documentation site in out/site; a broken link or a missing page is an error
# make paper          write those pages and figures
# make bench-speed    time and memory against stock libraries; needs the benchmark data in EDGEMASK_DATA
PYTHON ?= python3
BIN := .venv/bin
INPUTS ?= 100000
KILLS ?= 200
SEED ?= 1
# The tensors of the demo and the tests are small: a second OpenMP thread only waits, and two test processes share 2 cores.
export OMP_NUM_THREADS ?= 1
PYTEST := $(BIN)/python -m pytest

.PHONY: demo lint test test-long test-fast test-portable test-browser torture fuzz check-paper paper docs bench-speed setup clean

demo: setup
	@$(BIN)/edgemask demo

lint: setup
	@echo "== format and lint"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@echo "== import rules"
	@$(BIN)/lint-imports --no-logo
	@echo "== types"
	@$(BIN)/mypy

test: lint
	@echo "== tests"
	@$(PYTEST) -n 2

test-long: setup
	@$(PYTEST) -n 2 -m long

test-fast: setup
	@$(PYTEST) -n 2 --fast

# Each command runs the numerical tests as if on another machine, where the last bits of results may differ. The slow
# ones run in the setting that differs most, torch without vector instructions.
test-portable: setup
	@echo "== NumPy without AVX-512"
	@NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR" $(PYTEST) -n 2 -m "numerical and not slow and not browser and not paper"
	@echo "== torch without vector instructions"
	@ATEN_CPU_CAPABILITY=default $(PYTEST) -n 2 -m "numerical and not long and not browser and not paper"
	@echo "== Numba for a generic CPU"
	@NUMBA_CPU_NAME=generic $(PYTEST) -n 2 -m "numerical and not slow and not browser and not paper"
	@echo "== two OpenMP threads, in one process"
	@OMP_NUM_THREADS=2 $(PYTEST) -m "numerical and not slow and not browser and not paper"

test-browser: docs
	@if [ ! -x /usr/bin/chromium ]; then \
	  if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then \
	    echo "make test-browser needs Chromium in /usr/bin/chromium: install the Debian package chromium as root" >&2; exit 1; \
	  fi; \
	  echo "== installing Chromium"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium > /dev/null; \
	fi
	@$(PYTEST) -m browser tests/browser

torture: setup
	@$(BIN)/python -m attacks.torture --kills $(KILLS) --seed $(SEED)

fuzz: setup
	@$(BIN)/python -m attacks.fuzz --inputs $(INPUTS) --seed $(SEED)

check-paper: setup
	@$(PYTEST) -n 2 -m paper tests

paper: setup
	@$(BIN)/python -m paper

docs: setup
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html --doctree-dir out/doctrees docs out/site
	@echo "out/site/index.html"

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
	rm -rf .venv out build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
