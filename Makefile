# make eval and make test set everything up and need nothing but Python 3.10 or later.
# A constraint file for pip can be named: make test CONSTRAINT=file

PYTHON ?= python3
VENV ?= .venv
SUBMISSION ?= submission.py
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINT),--constraint $(CONSTRAINT))

# Many short processes import the same modules: without bytecode each would parse them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: eval test tests corpus versions lint style types clean

eval: $(VENV)/installed
	$(VENV)/bin/nvfp4 eval $(SUBMISSION)

# mypy takes one core for 20 s and runs beside the tests; what it finds is said again in the end.
test: $(VENV)/installed-dev style
	$(MAKE) --jobs=2 types tests || { $(MAKE) types; false; }
	$(VENV)/bin/python -m pytest -m alone $(shell grep -rl "mark\.alone" tests --include=*.py)

tests: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m 'not corpus and not alone'

# The tests that take long, such as most submissions of tests/field in CUDA C++. .ci/nightly runs them.
corpus: $(VENV)/installed-dev
	$(VENV)/bin/python -m pytest -n auto --dist loadfile -m corpus

# The tests again in small with the oldest version of CuTe DSL; they have run with the installed one.
versions: $(VENV)/installed-dev
	$(VENV)/bin/python -m scripts.version_matrix --versions oldest

lint: style types

style: $(VENV)/installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/installed-dev
	nice $(VENV)/bin/mypy *.py nvfp4 benchmarks scripts tests

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable .
	$(VENV)/bin/python -m compileall -q nvfp4
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) --editable '.[dev]'
	-$(PIP) --no-deps nvidia-cutlass # its headers alone; tests of them skip themselves without
	touch $@
