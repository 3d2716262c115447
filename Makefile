# Two commands matter: `make demo` and `make test`. Both create what they need.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CORES  ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
OUT    ?= out

.PHONY: demo test lint types unit wheel bench evidence install clean

demo: $(STAMP)  ## train on the embedded graph, strict; then balance its trees by real cryptography
	$(BIN)/lumos train demo --control
	$(BIN)/lumos trees demo --plot $(OUT)/demo-workloads.png

test: lint types unit wheel  ## everything CI runs

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Lumos needs Python 3.11 or newer; $(PYTHON) is older. Type: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/pytest -n $(CORES)

wheel: $(STAMP)
	$(BIN)/python -m build --wheel --outdir $(OUT)/dist . >/dev/null && ls $(OUT)/dist

bench: $(STAMP)  ## ratios against the other way of doing it, both sides in one run
	for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

evidence: $(STAMP)  ## the long runs whose figures the docs quote; never part of CI
	PATH="$(abspath $(BIN)):$$PATH" benchmarks/evidence.sh $(OUT)/evidence

clean:
	rm -rf $(VENV) $(OUT)
