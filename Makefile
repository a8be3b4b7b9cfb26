# make demo       a fresh machine to the ledger
# make ledger     the reference experiment in full: draft, target, control, ledger; goes on where it was stopped
# make test       ruff, mypy and pytest, from a bare machine
# make check      the same checks, without the install
# make gpu-check  on a CUDA host, in at most eight minutes: GPU tests, reference training, ledger; installs nothing
# make clean      removes the environment and caches; runs and ledgers stay

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

REFERENCE := --config configs/reference.yaml --ckpt_path last
RESULTS ?= results/reference_cpu

.PHONY: demo ledger pretrained test check lint gpu-check clean

demo: $(VENV)/.locked
	$(BIN)/python train.py --config configs/quick_draft.yaml --ckpt_path last
	$(BIN)/python train.py --config configs/quick_main.yaml --ckpt_path last
	$(BIN)/python bench.py --target runs/quick_main --draft runs/quick_draft --backends eager,compile --graph-gammas 1 \
		--draws 20000

ledger: $(VENV)/.locked
	@echo "On two CPU cores some hours. Ctrl-C and 'make ledger' again go on."
	$(BIN)/python train.py --config configs/draft.yaml $(REFERENCE) --run_name reference_draft --trainer.max_steps 3000
	$(BIN)/python train.py --config configs/main.yaml $(REFERENCE) --run_name reference_main --trainer.max_steps 5000
	$(BIN)/python train.py --config configs/control.yaml $(REFERENCE) --run_name reference_control --trainer.max_steps 5000
	$(BIN)/python bench.py --target runs/reference_main/checkpoints/last.ckpt \
		--draft runs/reference_draft/checkpoints/last.ckpt --arms draft,mtp,uncached,greedy --backends eager,compile --profile --repeats 15 \
		--output $(RESULTS)/ledger.json
	$(BIN)/python -m specmtp.report.results $(RESULTS) \
		"[runs/reference_main,runs/reference_draft,runs/reference_control]"
	$(BIN)/python -m specmtp.report.markdown $(RESULTS)/ledger.json --table figures

pretrained: $(VENV)/.locked
	$(BIN)/python -m specmtp.pretrained runs/reference_main runs/reference_draft --control runs/reference_control

test: $(VENV)/.locked
	@.ci/browser
	$(MAKE) check

check: lint
	$(BIN)/python -m pytest

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --quiet -r requirements.lock
	@touch $@

gpu-check:
	.ci/gpu-check $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
