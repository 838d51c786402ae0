# Everything that a fresh clone needs: `make demo` to see it work, `make test` to check it.
# Requires make and Python 3.11 or newer; choose another interpreter with `make PYTHON=python3.12 test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

.PHONY: demo test lint types slow docs check-docs clean help

help:
	@echo "make demo   a small inference from start to finish, with figures"
	@echo "make test   style, types and the fast tests (minutes on two cores)"
	@echo "make slow   the long tests: end-to-end fits against exact posteriors"
	@echo "make docs   the website, in site/; open site/index.html"
	@echo "make check-docs   the website in a browser: accessibility, links, errors; needs Chromium or Chrome"
	@echo "make lint   style only          make types  types only"
	@echo "make clean  remove the virtual environment and caches"

demo: $(STAMP)
	$(BIN)/unle demo

# Types are checked while the tests run; what was found is printed after them.
test: lint
	@log=$$(mktemp); $(BIN)/basedpyright src > $$log 2>&1 & types=$$!; \
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$types; types=$$?; cat $$log; rm -f $$log; \
	test $$tests -eq 0 && test $$types -eq 0

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff check --isolated --select F821 tests  # undefined names; in src, axes of arrays look like some
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/basedpyright src

slow: $(STAMP)
	$(BIN)/pytest -m slow

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 JAX_PLATFORMS=cpu $(BIN)/mkdocs build --strict --quiet
	@echo "the website is in site/: open site/index.html"

check-docs: docs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	UNLE_SITE=site $(BIN)/pytest -m slow tests/test_website.py

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $(DOCS_STAMP)

# sbibm is installed for its data files alone (the official observations and reference posteriors): its own
# dependencies are heavy and old. Without it the built-in tasks use observations of their own.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "unle needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps sbibm==1.1.0 \
		|| echo "note: the benchmark data (sbibm 1.1.0) could not be installed; built-in tasks use our own observations."
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist site
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
