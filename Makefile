# make run     the main job on real data, and its report
# make test    lint, types, import contract, tests
#
# Both do their own set-up, in .venv, and may be repeated. They need Python >= 3.11 with venv, make
# and a C compiler; what is missing is named with the command that installs it.

# The Python that .venv is made with; empty: the one it has, or the first that is new enough.
PYTHON =
# The directory to run against: `make run TARGET=/mnt/ssd`. Without it a folder in this checkout.
TARGET = target
# demo (seconds), quick (minutes) or full (hours).
SCALE = quick
# The name of this drive or setting in a comparison.
LABEL = A
# Where the records and the report go.
RUNS = runs
# Which groups of benchmarks: engine,ceilings,unet3d,checkpoint,dlrm,harness,sampler,report; empty: all of them.
ONLY =
# How often each comparison is made; empty: 9 times.
PAIRS =

BIN := .venv/bin
COVERAGE_FLOOR := 85

.PHONY: help setup loaders run test check bench lab lab-truth clean

help:
	@echo "make run [TARGET=/mnt/ssd] [SCALE=demo|quick|full] [LABEL=A]   three AI jobs and their report"
	@echo "make test    lint, types, import contract, tests with a coverage floor of $(COVERAGE_FLOOR) %"
	@echo "make setup   only the environment in .venv"
	@echo "make loaders DALI and dlio-benchmark too, for loader=dali and loader=dlio (0.8 GB of disk)"
	@echo "make bench [ONLY=engine,unet3d]   how fast the suite itself is, as ratios to fio, DLIO, torch"
	@echo "make lab     tests on emulated NVMe drives in QEMU, one of which knows its true energy"
	@echo "make lab-truth   the long table of its energy against what each source makes of it"
	@echo "make clean [TARGET=/mnt/ssd]   remove the data that runs left on the target"

setup:
	@tools/setup.sh "$(PYTHON)"

# dlio-benchmark asks for packages that the registry does not hold, and runs without them.
loaders: setup
	$(BIN)/python -m pip install --quiet --constraint .venv/constraints.txt --no-build-isolation --editable '.[dali,dlio]'
	$(BIN)/python -m pip install --quiet --constraint .venv/constraints.txt --no-deps dlio-benchmark

run: setup
	@$(BIN)/python tools/main_job.py --target "$(TARGET)" --scale "$(SCALE)" --label "$(LABEL)" --runs "$(RUNS)"

# pytest comes last: its summary is the last line.
test: setup check
	@$(BIN)/python -m pytest --cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR)

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy tests tools benchmarks
	$(BIN)/lint-imports

bench: setup
	@$(BIN)/python -m benchmarks.run --target "$(TARGET)" --runs "$(RUNS)" --only "$(ONLY)" \
		$(if $(PAIRS),--pairs $(PAIRS))

lab: setup
	@tests/lab/run.sh

lab-truth: setup
	@tests/lab/run.sh lab_truth

clean: setup
	@$(BIN)/wattload clean "$(TARGET)"
