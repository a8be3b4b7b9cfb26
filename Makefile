# make demo       a fresh machine to the ledger
# make ledger     all ledgers of the README; goes on where it was stopped:
#                 reference (draft, target, control), drafters (and accept rules), lambda-depth (of MTP)
# make test       ruff, mypy and pytest, from a bare machine
# make check      the same checks, without the install
# make gpu-check  on a CUDA host, in at most eight minutes: GPU tests, reference training, ledger; installs nothing
# make clean      removes the environment and caches; runs and ledgers stay

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

REFERENCE := --config configs/reference.yaml --ckpt_path last
TARGET := runs/reference_main/checkpoints/last.ckpt
DRAFTERS := --target $(TARGET) --draft runs/reference_draft/checkpoints/last.ckpt --arms draft,mtp,ngram \
	--drafter distilled=runs/reference_distilled/checkpoints/last.ckpt \
	--drafter unrolled=runs/reference_heads/checkpoints/last.ckpt
RESULTS ?= results
MACHINE ?= cpu

.NOTPARALLEL:
.PHONY: demo ledger reference drafters lambda-depth pretrained test check lint gpu-check clean

demo: $(VENV)/.locked
	@echo "Some minutes of training, then the bench; on a busy machine OMP_NUM_THREADS=1 make demo is much faster."
	$(BIN)/python train.py --config configs/quick_draft.yaml --ckpt_path last
	$(BIN)/python train.py --config configs/quick_main.yaml --ckpt_path last
	$(BIN)/python bench.py --target runs/quick_main --draft runs/quick_draft --backends eager,compile --graph-gammas 1 \
		--draws 20000

ledger: reference drafters lambda-depth

reference: $(VENV)/.locked
	@echo "The reference experiment. On two CPU cores some hours; Ctrl-C and the same again go on."
	$(BIN)/python train.py --config configs/draft.yaml $(REFERENCE) --run_name reference_draft --trainer.max_steps 3000
	$(BIN)/python train.py --config configs/main.yaml $(REFERENCE) --run_name reference_main --trainer.max_steps 5000
	$(BIN)/python train.py --config configs/control.yaml $(REFERENCE) --run_name reference_control --trainer.max_steps 5000
	$(BIN)/python bench.py --target $(TARGET) --draft runs/reference_draft/checkpoints/last.ckpt \
		--arms draft,mtp,uncached,greedy --backends eager,compile --profile --repeats 5 \
		--output $(RESULTS)/reference_$(MACHINE)/ledger.json
	$(BIN)/python -m specmtp.report.results $(RESULTS)/reference_$(MACHINE) \
		"[runs/reference_main,runs/reference_draft,runs/reference_control]"
	$(BIN)/python -m specmtp.report.markdown $(RESULTS)/reference_$(MACHINE)/ledger.json --table figures

drafters: $(VENV)/.locked
	@echo "Drafters trained to be accepted by the reference target, and the accept rules."
	$(BIN)/python train.py --config configs/draft.yaml --config configs/distill.yaml --model.target $(TARGET) \
		--ckpt_path last --run_name reference_distilled
	$(BIN)/python train.py --config configs/mtp_heads.yaml --model.target $(TARGET) \
		--ckpt_path last --run_name reference_heads
	$(BIN)/python bench.py $(DRAFTERS) --rules block,exact_match --gammas 1,2,4 --backends compile --draws 40000 \
		--repeats 7 --output $(RESULTS)/drafters_$(MACHINE)/ledger.json
	$(BIN)/python bench.py $(DRAFTERS) --rules block,exact_match,typical --gammas 1,2,4,8 --draws 50000 --prompts 2 \
		--output $(RESULTS)/rules_$(MACHINE)/ledger.json
	$(BIN)/python -m specmtp.report.markdown $(RESULTS)/drafters_$(MACHINE)/ledger.json --table drafters
	$(BIN)/python -m specmtp.report.markdown $(RESULTS)/rules_$(MACHINE)/ledger.json --table rules

lambda-depth: $(VENV)/.locked
	@echo "20 short runs: weight and depth of MTP, two seeds; Ctrl-C and the same again go on."
	@for seed in 1 2; do \
		$(BIN)/python train.py --config configs/control.yaml --config configs/lambda_depth.yaml --ckpt_path last \
			--seed_everything $$seed --run_name weight_0_depth_0_seed_$$seed || exit; \
		for weight in 0.1 0.3 1; do for depth in 1 2 4; do \
			$(BIN)/python train.py --config configs/main.yaml --config configs/lambda_depth.yaml --ckpt_path last \
				--model.mtp_weight $$weight --model.mtp_depth $$depth --seed_everything $$seed \
				--run_name weight_$${weight}_depth_$${depth}_seed_$$seed || exit; \
		done; done; \
	done
	$(BIN)/python -m specmtp.report.lambda_depth $(RESULTS)/lambda_depth_$(MACHINE) \
		"[$$(echo runs/weight_* | tr ' ' ,)]"

pretrained: $(VENV)/.locked
	$(BIN)/python -m specmtp.pretrained runs/reference_main runs/reference_draft --control runs/reference_control

test: $(VENV)/.locked
	@.ci/browser
	$(MAKE) check

check: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

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
