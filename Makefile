# Everything needs Python 3.11 or newer and make; the rest is installed into .venv/ by the first target that needs it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PORT ?=
DEVICE ?= cpu
PARALLEL := --numprocesses auto --maxprocesses 8 --dist worksteal
BROWSERS := --numprocesses 2 --dist loadfile --reruns 1 -r R
# What depends on packages: modules, methods, charts, pages, commands, files, the Hub.
RANGE_TESTS := tests/install/test_ranges.py tests/methods/test_methods.py tests/methods/test_golden.py tests/viz/test_viz.py \
  tests/app/test_first_views.py tests/app/test_snapshot.py tests/cli/test_cli.py tests/files tests/hub tests/jobs/test_restart.py \
  tests/formats/test_safetensors.py
# Worker threads sleep at barriers instead of spinning, and the allocator keeps few arenas: kind to small machines.
export OMP_WAIT_POLICY := PASSIVE
export MALLOC_ARENA_MAX := 2
# Bytecode is kept even where the environment asks for none: tests and jobs start many processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: app serve status test test-ranges .venv-lowest .venv-newest check fast sample-data library live-assets citation bench fuzz mutations wheel docs clean help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / - /'

$(BIN)/python:
	@echo "Making a virtual environment in $(VENV)/ with $(PYTHON) ..."
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.app: requirements.txt pyproject.toml app/notebook/installed.py merging/__main__.py | $(BIN)/python
	@echo "Installing what the app needs (torch is large; some minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.app
	@echo "Installing what the tests and checks need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

app: $(VENV)/.app ## open the app on the bundled benchmark
	@$(BIN)/python -m merging app $(if $(PORT),--port $(PORT))

serve: $(VENV)/.app ## serve the app to others; settings by the environment only, see docs/serving.md
	@STREAMLIT_SERVER_PORT=$(or $(PORT),8501) $(BIN)/python -m app.serve

status: $(VENV)/.app ## what the server on this machine says of itself: sessions, queue, memory, slow pages
	@STREAMLIT_SERVER_PORT=$(or $(PORT),8501) $(BIN)/python -m app.status

test: fast ## run the tests of every day: all but those marked `full`, in at most seven minutes on two cores
	@echo "Running the short tests in two browsers, each with a server of its own ..."
	@$(BIN)/python -m pytest -m "browser and not full" $(BROWSERS)

fast: $(VENV)/.dev ## run those of them that need no browser
	@echo "Running the tests, on as many cores as there are ..."
	@$(BIN)/python -m pytest -m "not full and not engine and not browser" $(PARALLEL)

test-all: test test-rest ## run all tests

test-rest: $(VENV)/.dev ## run what `make test` leaves out
	@echo "Running the tests with other programs that compute: Dask, an own pool ..."
	@$(BIN)/python -m pytest -m engine --reruns 2 -r R -p no:unraisableexception tests/workers
	@echo "Running the long tests in two browsers ..."
	@$(BIN)/python -m pytest -m "browser and full" $(BROWSERS)
	@echo "Running every stage, every size, every process ..."
	@$(BIN)/python -m pytest -m "full and not engine and not browser" $(PARALLEL)

test-ranges: .venv-lowest .venv-newest ## test what needs other packages with the lowest and the newest versions of them

.venv-lowest .venv-newest: .venv-%:
	@echo "Making $@/ with the $* versions that pyproject.toml allows ..."
	@rm -rf $@ && $(PYTHON) -m venv $@
	@$(PYTHON) tests/support/range_ends.py $* > $@/requirements.txt
	@$@/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r $@/requirements.txt
	@MERGESCOPE_ARROW_TEXTS=1 $@/bin/python -m pytest -m "not engine and not browser" $(PARALLEL) -p no:cacheprovider $(RANGE_TESTS)
	@$@/bin/python -m pytest -m engine --reruns 2 -r R -p no:unraisableexception -p no:cacheprovider tests/workers/test_engines.py

check: $(VENV)/.dev ## lint, format check, strict types, directions of imports, rules of the layout
	@echo "ruff ..." && $(BIN)/ruff check .
	@echo "ruff format ..." && $(BIN)/ruff format --check .
	@echo "mypy --strict on merging/ and viz/ ..." && $(BIN)/mypy
	@echo "import-linter: imports point to the ground ..." && $(BIN)/lint-imports --no-cache --no-logo
	@echo "the rules of the layout ..." && $(BIN)/python -m pytest --quiet --no-header tests/architecture

sample-data: $(VENV)/.dev ## rebuild the bundled benchmark from its sources (an hour on two cores; see sample_data/README.md)
	@$(BIN)/python sample_data/make.py

library: $(VENV)/.app ## recompute the library of precomputed runs on the bundled benchmark
	@$(BIN)/python sample_data/library.py

live-assets: $(VENV)/.app ## compare the program that runs networks in the browser with its digests; fetch it if it differs
	@$(BIN)/python -m app.live.fetch

citation: $(VENV)/.app ## write CITATION.md from the registered methods
	@$(BIN)/python -c 'from pathlib import Path; from merging.methods import registry; \
	  from merging.methods.shared import citations; \
	  Path("CITATION.md").write_text(citations.citation_page(registry.list_methods()), "utf-8")'

bench: $(VENV)/.dev ## time merges of synthetic ViT-B/32 checkpoints against reading them once (DEVICE=cuda: on a GPU)
	@$(BIN)/python tests/bench/bench.py --device $(DEVICE)

fuzz: $(VENV)/.dev ## look for inputs that break a reader, ten minutes for each; see tests/bench/fuzz.py
	@$(BIN)/python tests/bench/fuzz.py

mutations: $(VENV)/.dev ## break merging/ in hundreds of places, one by one, and see that a test notices (half an hour)
	@$(BIN)/python tests/bench/mutations.py

wheel: $(VENV)/.dev ## build the package for pip into dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls -lh dist/*.whl

docs: $(VENV)/.dev ## build the documentation into site/, to be opened at site/index.html; without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open site/index.html."

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .venv-lowest .venv-newest .pytest_cache .mypy_cache .ruff_cache
