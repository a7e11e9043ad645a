# Two commands matter: `make demo` and `make test`. Both make .venv and can be repeated.
#
#   make demo ARGS="--json verdict.json"     arguments for the command
#   make demo ARGS=--with-audit              also archives and audits the queue
#   make demo ARGS=--with-spark              the same with Spark and Java
#   make test PYTEST="-k hashing"            arguments for pytest
#   make test TESTS=untimed                  those that wait for no process and no timer
#   make demo PYTHON=/usr/bin/python3.12     the Python that .venv is made of
#   make e2e PYTEST="-k scale"               arguments for pytest
#   make e2e CLUSTERS=2                      two stories at a time, each on a cluster: for 4 cores
#   make demo-kubernetes KEEP=1              leaves the cluster for trying things
#   make manifests KUBE=1.20.0               for that version of Kubernetes

SHELL := /bin/bash
BIN := .venv/bin
ARGS ?=
PYTEST ?=
# Many tests wait for processes and timers: four workers left a part of two cores idle.
WORKERS ?= 6
LIGHT := $(addprefix tests/,broker client coordinator core embedded resources server store testing wire test_errors.py test_settings.py)
# These wait for no timer, and for no process that has to answer in time: they may run while others do.
UNTIMED := $(wildcard tests/lab/simulate/test_*.py) $(addprefix tests/,core lab/simulate/oracle lab/verdict model resources \
    test_any.py test_architecture.py test_chart.py test_errors.py test_house.py test_manifests.py test_prose.py test_verbs.py)
TESTS ?= all
# A recipe's line that has MAKE itself is run by `make --dry-run`, too: with all that stands in it.
CHECK = $(MAKE) --no-print-directory check
PART_all := -n $(WORKERS)
PART_timed := $(PART_all) $(addprefix --ignore=,$(UNTIMED))
# One at a time: two took from the timed ones what the stories leave idle later.
PART_untimed := -n 1 --timeout 1800 $(UNTIMED)
KUBE ?= 1.30.0
SPARK ?= 4.0.5 4.1.4 4.2.1
KEEP ?=
export KEEP
CLUSTERS ?= 1
COMMA := ,
WITH_AUDIT := $(filter --with-audit,$(ARGS))
WITH_SPARK := $(filter --with-spark,$(ARGS))
# Where an image sets it, each of the hundreds of processes here would compile all of partq again.
unexport PYTHONDONTWRITEBYTECODE
# Tests start hundreds of servers that sync each write. Where there is room they do so in memory: a disk
# that others keep busy is no subject of theirs, and when one stalls for seconds, every lease ends.
MEMORY := $(shell [ -w /dev/shm ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts && \
    [ "$$(df -k --output=avail /dev/shm | tail -n 1)" -gt 2000000 ] && echo /dev/shm)
# All checkouts share it: mypy reads again only what differs.
MYPY_CACHE := $(or $(PARTQ_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/partq)/mypy
ifdef PYTHON
export PYTHON
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-kubernetes test test-light e2e manifests conformance conformance-mutants code-mutants check format lock chaos simulate
.PHONY: model simulate-nightly bench docs spark-versions clean

help: ## what there is
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 24

setup: ## .venv with the command partq and a redis-server, for trying things by hand
	@scripts/setup.sh embedded

demo: ## the main job on real input: live view, then the verdict
	@scripts/setup.sh lab$(if $(WITH_AUDIT),$(COMMA)pipeline)$(if $(WITH_SPARK),$(COMMA)spark)
	@$(if $(WITH_SPARK),scripts/java_for_spark.sh)
	@$(BIN)/partq demo $(ARGS)

# Meanwhile the tests are compiled, once: in a new checkout each of the workers would do it.
# .ci/run has TESTS=timed and TESTS=untimed beside each other, the second at the lowest priority.
test: test-tools ## make check, then every test; TESTS=timed: those that wait for processes and timers, TESTS=untimed: the others
	@$(if $(filter-out all timed untimed,$(TESTS)),$(error TESTS is $(TESTS): expected all, timed or untimed))true
	@$(if $(filter timed,$(TESTS)),,$(BIN)/python -m pytest --collect-only -qq &>/dev/null & \
	    $(CHECK); checked=$$?; wait; exit $$checked)
	@$(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/python -m pytest --dist loadfile $(PART_$(TESTS)) $(PYTEST)

test-tools: ## what the tests need, installed or in the cache
	@scripts/setup.sh dev
	@scripts/redis_for_tests.sh
	@scripts/java_for_spark.sh
	@scripts/apiserver_for_tests.sh
	@scripts/chromium_for_tests.sh
	@scripts/mariadb_for_tests.sh

test-light: ## the tests that need neither Java nor Kubernetes, as for PYTHON=python3.13
	@scripts/setup.sh dev
	@scripts/redis_for_tests.sh
	@$(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(LIGHT) $(PYTEST)

demo-kubernetes: ## the same on a real cluster, scaled by kubectl
	@scripts/setup.sh cli
	@$(BIN)/python -m e2e.demo

# The time of a story is its own: before the first one a cluster and the images are made, once.
e2e: ## the stories on a real cluster; see e2e/README.md
	@scripts/setup.sh dev
	@$(BIN)/python -m pytest e2e $(if $(filter 1,$(CLUSTERS)),-p no:xdist,-n $(CLUSTERS) --dist loadfile --no-loadscope-reorder) \
	    -W ignore::ResourceWarning --timeout 600 -o timeout_func_only=true --durations 0 $(PYTEST)

e2e-images: ## the images for the stories, ahead of them
	@scripts/setup.sh dev
	@$(BIN)/python -m e2e.images

manifests: ## dist/*.yaml, for `kubectl apply -f` without helm
	@scripts/setup.sh cli
	@KUBE=$(KUBE) PYTHONPATH=. $(BIN)/python scripts/manifests.py

conformance: ## docs/conformance.md, from the rows and the marks of the tests
	@scripts/setup.sh dev
	@$(BIN)/python -m tests.conformance

conformance-mutants: ## mistakes in the product, each found by the tests of one row alone; ARGS="--row SOL-13"
	@scripts/setup.sh dev
	@scripts/redis_for_tests.sh
	@$(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/python -m tests.conformance.mutants $(ARGS)

code-mutants: ## the mistakes of the models of changes of the partition count and of shared keys, made in the code; ARGS=NAME for one
	@scripts/setup.sh dev
	@scripts/redis_for_tests.sh
	@$(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/python -m tests.model.code_mutants $(ARGS)

check: ## formatting, lint, types, import rules, links of the site
	@scripts/setup.sh dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@MYPY_CACHE_DIR=$(MYPY_CACHE) $(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/mkdocs build

docs: ## site/index.html, from docs/; a dead link, or a page without a place, fails it
	@scripts/setup.sh docs
	@$(BIN)/mkdocs build

format: ## repair formatting and what lint can repair
	@scripts/setup.sh dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: ## constraints*.txt, from pyproject.toml; ARGS=--upgrade for the newest versions
	@[ -x .venv/lock/bin/uv ] || { python3 -m venv .venv/lock && .venv/lock/bin/pip install --quiet "uv>=0.10"; }
	@PATH=$(CURDIR)/.venv/lock/bin:$$PATH .venv/lock/bin/python scripts/lock.py renew $(ARGS)

chaos: ## kill everything under load, for at most ten minutes; ARGS="--minutes 30" for longer
	@scripts/setup.sh lab
	@$(BIN)/partq chaos $(ARGS)

simulate: ## 10,000 seeds of faults in simulated time
	@scripts/setup.sh lab
	@$(BIN)/partq simulate --seeds 10000 $(ARGS)

simulate-nightly: ## a million new seeds, longer ones; before them 10,000 beside a real Redis
	@scripts/setup.sh lab
	@$(BIN)/partq simulate --real-redis --seed $$(( $$(date +%s) * 1000 )) --seeds 10000
	@$(BIN)/partq simulate --seed $$(( $$(date +%s) * 1000 )) --seeds 1000000 --events 30 $(ARGS)

model: ## every state of the models of protocols, and each mistake in them; docs/delivery-model.md, docs/rescale-model.md
	@$(or $(PYTHON),python3) -m tests.model $(ARGS)

bench: ## the speed, beside the limit of the same Redis
	@scripts/setup.sh lab
	@$(BIN)/partq bench $(ARGS)

spark-versions: ## the data source's tests with the other versions of Spark; SPARK="4.0.0" for one
	@scripts/setup.sh dev
	@scripts/redis_for_tests.sh
	@scripts/java_for_spark.sh
	@scripts/spark_versions.sh $(SPARK)

clean: ## remove what make and the tools have made
	@rm -rf .venv .venv.lock build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find operator tests -name __pycache__ -type d -prune -exec rm -rf {} +
