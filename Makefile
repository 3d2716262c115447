# Two commands matter: `make demo` and `make test`. Both create what they need.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CORES  ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
OUT    ?= out
ARGS   ?=

unexport PYTHONDONTWRITEBYTECODE  # compiled tests are kept: each test process would compile all of them

.PHONY: demo test lint types unit docs figures browser wheel bench reproduce evidence install clean

demo: $(STAMP)  ## the whole paper on the embedded graph and strict beside it, about a minute
	$(BIN)/python examples/demo.py

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
	MYPY_NUM_WORKERS=$(CORES) $(BIN)/mypy

unit: $(STAMP) browser
	@$(BIN)/python -m compileall -q -j $(CORES) src  # for the processes that tests start
	$(BIN)/pytest -n $(CORES) --dist worksteal -m "not long"

docs: $(STAMP)  ## the documentation site, in $(OUT)/site; tests/docs builds it too
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir $(OUT)/site
	@echo "open $(OUT)/site/index.html"

figures: $(STAMP)  ## the pictures of README and docs, in docs/figures
	$(BIN)/python docs/figures/draw.py
	$(BIN)/python -m reproduce --write-docs
	@command -v chromium >/dev/null || { echo "no Chromium, so docs/figures/report.png stays"; exit 0; }; \
	  rm -rf $(OUT)/figure && $(BIN)/lumos train demo --control --out $(OUT)/figure >/dev/null && \
	  $(BIN)/lumos report $(OUT)/figure && \
	  chromium --headless --no-sandbox --hide-scrollbars --window-size=1020,1240 \
	    --screenshot=docs/figures/report.png $(OUT)/figure/report.html 2>/dev/null

# Debian's Chromium opens the report page in the tests. System packages are installed in CI only, or
# by `make browser INSTALL=yes`; elsewhere the tests are skipped, and say what to install.
APT     := $(shell if [ "$$(id -u)" = 0 ]; then echo apt-get; else echo sudo -n apt-get; fi)
INSTALL ?= $(if $(CI),yes,no)
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  [ "$(INSTALL)" = yes ] && command -v apt-get >/dev/null && $(APT) --version >/dev/null 2>&1 && \
	  echo "installing the Debian package chromium" && $(APT) -qq update && \
	  DEBIAN_FRONTEND=noninteractive $(APT) -qq -y --no-install-recommends install \
	    chromium fonts-dejavu-core </dev/null >/dev/null; } || \
	  echo "no Chromium: tests of the report page in a browser will be skipped. Type: make browser INSTALL=yes, or install the package chromium"

wheel: $(STAMP)
	$(BIN)/python -m build --wheel --outdir $(OUT)/dist . >/dev/null && ls $(OUT)/dist

bench: $(STAMP)  ## ratios against the other way of doing it, both sides in one run
	$(BIN)/python -m benchmarks.bench $(ARGS)

reproduce: $(STAMP)  ## the paper's evaluation beside its numbers; ARGS="--graph facebook --quick"
	$(BIN)/python -m reproduce $(ARGS)

evidence: $(STAMP)  ## the long runs whose figures the docs quote; never part of CI
	PATH="$(abspath $(BIN)):$$PATH" benchmarks/evidence.sh $(OUT)/evidence

clean:
	rm -rf $(VENV) $(OUT)
