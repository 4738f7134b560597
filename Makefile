# `make demo` and `make test` need only Python 3.11 to 3.13; everything is installed into $(VENV).
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# pip takes three times as long. It works too: make INSTALL=".venv/bin/python -m pip install" ...
INSTALL = $(BIN)/uv pip install --python $(BIN)/python
# uv does not read pip's configuration. Your own package index is handed on, where packages are installed.
$(BIN)/.installed $(BIN)/.installed-dev $(BIN)/.installed-all: export UV_DEFAULT_INDEX ?= $(or $(PIP_INDEX_URL),$(shell $(PYTHON) -m pip config get global.index-url 2>/dev/null))
INTERLEAVED_HOME ?= $(CURDIR)/.dagster_home
# independent of a DAGSTER_HOME that the caller has for other projects
export DAGSTER_HOME := $(INTERLEAVED_HOME)
# Each code server, run and test process would otherwise compile all modules of the project again.
unexport PYTHONDONTWRITEBYTECODE
export UI_PORT ?= 3000
# Time limits of sensor and schedule evaluations in seconds, for very many shards; the default of Dagster is 60.
export DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS ?= 300
export DAGSTER_SCHEDULE_GRPC_TIMEOUT_SECONDS ?= 600
# Runs of a backfill that the daemon queues before it checks whether the backfill was cancelled; Dagster's default is 25.
export DAGSTER_ASSET_BACKFILL_RUN_CHUNK_SIZE ?= 2
# A backfill waits while the settings are refused; otherwise it ends as failed, and its runs are cancelled.
export DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR ?= 1

.DELETE_ON_ERROR:
.PHONY: demo ui test test-all check format docs screenshots bench wheel clean help

help:
	@echo "make demo    install, draw demo shards, materialize every asset, print a summary"
	@echo "make ui      the Dagster UI on that data, http://127.0.0.1:$(UI_PORT), and interleaved serve"
	@echo "make test    the tests (no system packages, no GPU, no network)"
	@echo "make test-all  tests that need PostgreSQL, PgBouncer, Chromium, Caddy, libzbar or Ray; installs these (apt-get, pip);"
	@echo "             and more examples of the properties"
	@echo "make check   lint, format and types"
	@echo "make docs    the pages that are made from the code: settings, errors, library reference"
	@echo "make screenshots  the pictures of README and docs, with the demo and Chromium (installs what make test-all does)"
	@echo "make bench   the four directions on a share of 80 shards, 9.9 GB: make bench SCALE=0.05"
	@echo "make wheel   the package as a wheel, in dist/"
	@echo "make clean   remove the environment, the Dagster instance and builds; data/raw and data/out stay"

$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=/path/to/python3.11 ...")'
	@echo "Installing about 140 packages into $(VENV), once: a minute with a fast network, and up to 6.5 GB with the CUDA build of torch."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(INSTALL) --constraint constraints.txt --editable '.[nsfw,clip]'
	touch $@

# What tests, checks and benchmarks need as well.
$(BIN)/.installed-dev: $(BIN)/.installed
	$(INSTALL) --constraint constraints.txt --editable '.[dev,nsfw,clip]'
	touch $@

$(DAGSTER_HOME)/dagster.yaml: dagster.yaml | $(BIN)/.installed
	mkdir -p $(DAGSTER_HOME)
	cp dagster.yaml $@

# Once for a new instance, so that limits changed later are kept. Also creates the SQLite storage, which services that
# start at the same time have damaged.
$(DAGSTER_HOME)/.pools: | $(DAGSTER_HOME)/dagster.yaml
	$(BIN)/dagster instance concurrency set gpu 1
	$(BIN)/dagster instance concurrency set shard_io 2
	touch $@

demo: $(BIN)/.installed $(DAGSTER_HOME)/dagster.yaml $(DAGSTER_HOME)/.pools
	$(BIN)/interleaved demo

ui: $(BIN)/.installed $(DAGSTER_HOME)/dagster.yaml $(DAGSTER_HOME)/.pools
	@$(BIN)/python -c 'import socket, sys; sys.exit("make ui: port $(UI_PORT) is taken, perhaps by another make ui. Take another: make ui UI_PORT=%d" % ($(UI_PORT) + 1) if socket.socket().connect_ex(("127.0.0.1", $(UI_PORT))) == 0 else 0)'
	@# Ctrl-C ends dagster dev, and the shell then ends interleaved serve, which ignores Ctrl-C in the background.
	@$(BIN)/interleaved serve & serve=$$!; trap 'kill $$serve 2>/dev/null' EXIT; trap : INT TERM; \
	$(BIN)/dagster dev --workspace workspace.yaml --host 127.0.0.1 --port $(UI_PORT)

# A process for each core, up to four: each has an S3 server of its own. A process that is done takes over tests of others.
test: $(BIN)/.installed-dev
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal -m "not system"

# Debian packages that `make test-all` installs, as root or through sudo.
DEBIAN := postgresql pgbouncer libzbar0 caddy chromium
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

$(BIN)/.installed-all: $(BIN)/.installed-dev
	$(SUDO) apt-get update -qq
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $(DEBIAN) >/dev/null
	$(INSTALL) --constraint constraints.txt --quiet --editable '.[dev,nsfw,clip,ray,postgres,k8s]'
	touch $@

RAY_TESTS := interleaved_assets_tests/deploy/test_ray.py

# Two files at a time, each with servers of its own: one waits for a daemon while the other computes. The nodes of the
# Ray cluster work under time limits on all cores, and so have the machine for themselves. Both parts run in any case.
test-all: $(BIN)/.installed-all
	@status=0; set -x; \
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "system or hypothesis" --hypothesis-profile many --no-skips --ignore $(RAY_TESTS) || status=1; \
	$(BIN)/python -m pytest -m system --no-skips $(RAY_TESTS) || status=1; \
	exit $$status

check: $(BIN)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(BIN)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(BIN)/.installed-dev
	$(BIN)/python docs/generate.py

screenshots: $(BIN)/.installed-all
	$(BIN)/python -m docs.screenshots

# Share of the 80 shards; 1 needs 30 GB of disk.
SCALE ?= 0.05

bench: $(BIN)/.installed-dev
	$(BIN)/python -m benchmarks.bench --scale $(SCALE)

# The same bytes for the same commit. build/ is deleted first: removed files would be packed from it.
wheel: $(BIN)/.installed-dev
	rm -rf build dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	rm -rf build
	@ls dist/*.whl

clean:
	rm -rf $(CURDIR)/.venv $(CURDIR)/.dagster_home $(CURDIR)/artefacts $(CURDIR)/build $(CURDIR)/dist
