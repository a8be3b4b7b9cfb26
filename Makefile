# make demo    a fresh machine to the ledger, about seven minutes on two cores
# make test    ruff, mypy and pytest, from a bare machine
# make check   the same checks, without the install
# make clean   removes the environment and caches; runs and ledgers stay

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check lint clean

demo: $(VENV)/.locked
	$(BIN)/python train.py --config configs/quick_draft.yaml --ckpt_path last
	$(BIN)/python train.py --config configs/quick_main.yaml --ckpt_path last
	$(BIN)/python bench.py --target runs/quick_main --draft runs/quick_draft

test: $(VENV)/.locked
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

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
