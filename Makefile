# make train   train the small character model of examples/gpt.py; TRAIN_ARGS=--resume goes on
# make test    run the test suite
# make test-long run it with every dtype and sample, and the tests that take minutes
# make kernels compile every CUDA kernel for every architecture, and look for spilt registers
# make emulated run them on an emulated GPU, which takes a quarter of an hour
# make test-gpu run the tests that need a GPU, and record what passed
# make sanitize run a part of that lane under compute-sanitizer: every access, every race
# make check   everything a change must pass: lint, types, generated documents, kernels, tests
# make format  rewrite the sources in the house layout
# make clean   remove the environment and what the tools left behind
#
# Each target installs what it needs into .venv, once; PYTHON picks the interpreter it is made with.

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
JOBS ?= 2
PYTEST_ARGS ?=
TRAIN_ARGS ?=
TOOLS ?=

.PHONY: train test test-long kernels emulated test-gpu sanitize check lint types generated format clean
.NOTPARALLEL:

train: $(VENV)/examples.stamp
	$(RUN) examples/gpt.py $(TRAIN_ARGS)

test: $(VENV)/test.stamp
	$(RUN) -m pytest -q -n $(JOBS) $(PYTEST_ARGS)

test-long: $(VENV)/test.stamp
	$(RUN) -m pytest -q -n $(JOBS) --full -m "slow or not slow" $(PYTEST_ARGS)

# What passed is known by its text: a second run compiles what has changed since.
kernels: $(VENV)/test.stamp
	$(RUN) -m tests.cuda.gate -j $(JOBS)

emulated: $(VENV)/test.stamp
	$(RUN) -m pytest -q -n $(JOBS) -m "kernels and not slow" tests/cuda $(PYTEST_ARGS)

# On a machine with a GPU, with the Python that has CuPy: writes tests/gpu_record.json. References run
# on one thread each: there is a process for each core already.
test-gpu:
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 RUDA_GPU_RECORD=1 $(PYTHON) -m pytest -q -p no:benchmark --timeout 100 -n 14 -m gpu tests/gpu

# There too; TOOLS picks of memcheck, racecheck and synccheck.
sanitize:
	$(PYTHON) -m tests.gpu.sanitize $(TOOLS)

check: lint types generated kernels test

lint: $(VENV)/dev.stamp
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check

types: $(VENV)/dev.stamp
	$(RUN) -m mypy

generated: $(VENV)/dev.stamp
	$(RUN) -m ruda.stubs --check
	$(RUN) -m ruda.ops --check docs/ops.md

format: $(VENV)/dev.stamp
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

# One stamp for each extra, so a second run installs nothing until pyproject.toml changes.
$(VENV)/%.stamp: pyproject.toml | $(RUN)
	$(RUN) -m pip install --quiet --editable ".[$*]"
	@touch $@

$(RUN):
	$(PYTHON) -m venv $(VENV)
