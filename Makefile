# make run    the three AI jobs on real data, and their report
# make test   lint, types, import contracts and the tests, within 8 minutes
#
# Both set up .venv first and can be repeated. They need Python >= 3.11 with venv, make and a C
# compiler; if one is missing, set-up names the command that installs it.

# The Python to create .venv with; empty: the one it has, or the first that is new enough.
PYTHON =
# The directory to run against: `make run TARGET=/mnt/ssd`. Without it a folder in this checkout.
TARGET = target
# demo (seconds), quick (minutes) or full (hours).
SCALE = quick
# The name of this drive or setting in a comparison.
LABEL = A
# Where the records and the report go.
RUNS = runs
# Benchmark groups: engine,random_write,ceilings,unet3d,checkpoint,dlrm,harness,sampler,gpu,gpu_queue,gnn,kv_cache,vector_search,vector_build,hosts,load,report; empty: all.
ONLY =
# How often each comparison is repeated; empty: 9 times.
PAIRS =

# Where a container sets it, every process of a test would compile all modules that it imports.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
COVERAGE_FLOOR := 85
# Some tests wait, so three processes run on two cores. --dist loadscope keeps a module's fixtures in
# one; it would begin with the modules of most tests, but the longest ones have few.
PYTEST := $(BIN)/python -m pytest --numprocesses=$(shell echo $$(($$(nproc) * 3 / 2))) --dist=loadscope \
	--no-loadscope-reorder
# Collecting all tests again would take as long as a test.
ALONE = $(shell grep --recursive --files-with-matches --include='test_*.py' 'pytest.mark.alone' tests)

.PHONY: help setup loaders run test test-fast test-all coverage lint check size docs bench lab lab-all lab-truth lab-example image image-cluster docker-test clean

help:
	@echo "make run [TARGET=/mnt/ssd] [SCALE=demo|quick|full] [LABEL=A]   three AI jobs and their report"
	@echo "make test       lint, types, import contracts, tests: within 8 minutes on 2 cores"
	@echo "make test-fast  lint and the tests that take milliseconds: within 90 seconds"
	@echo "make test-all   every test"
	@echo "make coverage   the tests of make test, with a coverage floor of $(COVERAGE_FLOOR) %"
	@echo "make setup      only the environment in .venv"
	@echo "make loaders    add the packages of loader=dali, dlio, dgl, gpu_queue, runai, instanttensor and fastsafetensors (1 GB of disk)"
	@echo "make docs       the JSON Schema of a record, docs/record.schema.json"
	@echo "make bench [ONLY=engine,unet3d]   speed of the suite itself, as ratios to fio, DLIO and torch"
	@echo "make size       lines and statements, by package and by workload"
	@echo "make lab        the everyday tests on emulated NVMe drives in QEMU (15 minutes)"
	@echo "make lab-all    all of them, with the energy that a virtual drive knows to be true (an hour)"
	@echo "make lab-truth  the long table: true energy against what each source reports (an hour)"
	@echo "make lab-example  the runs of docs/examples/two-drives, kv-cache and vector-search, on virtual drives (three hours)"
	@echo "make image      the container image wattload; make image-cluster: the one of docker/compose.cluster.yaml"
	@echo "make docker-test  the images and compose files, with Docker; root on Debian needs none"
	@echo "make clean [TARGET=/mnt/ssd]   delete the data that runs left on the target"

setup:
	@tools/setup.sh "$(PYTHON)"

# dlio-benchmark requires packages that PyPI does not have; it runs without them.
loaders: setup
	$(BIN)/python -m pip install --quiet --constraint .venv/constraints.txt --no-build-isolation --editable '.[dali,dlio,dgl,cuda,runai,instanttensor,fastsafetensors]'
	$(BIN)/python -m pip install --quiet --constraint .venv/constraints.txt --no-deps dlio-benchmark

run: setup
	@$(BIN)/python tools/main_job.py --target "$(TARGET)" --scale "$(SCALE)" --label "$(LABEL)" --runs "$(RUNS)"

# pytest comes last in each: its summary is the last line.
test: setup check
	@$(PYTEST) -m "not thorough and not alone"

test-fast: setup lint
	@$(PYTEST) -m "not thorough and not slow"

test-all: setup check
	@status=0; \
	$(PYTEST) -m "not alone" || status=$$?; \
	$(BIN)/python -m pytest -m alone $(ALONE) || status=$$?; \
	exit $$status

# By itself: a test takes 1.7 times as long with it. sys.monitoring (COVERAGE_CORE=sysmon), which costs
# less, needs Python 3.12.
coverage: setup
	@$(PYTEST) -m "not thorough and not alone" --cov --cov-report=term:skip-covered \
		--cov-fail-under=$(COVERAGE_FLOOR)

lint: setup
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo

check: lint
	$(BIN)/mypy
	$(BIN)/mypy tests tools benchmarks

size:
	@python3 tools/size.py

docs: setup
	@$(BIN)/python -m tools.schema

bench: setup
	@$(BIN)/python -m benchmarks.run --target "$(TARGET)" --runs "$(RUNS)" --only "$(ONLY)" \
		$(if $(PAIRS),--pairs $(PAIRS))

lab: setup
	@tests/lab/run.sh "lab and not lab_long"

lab-all: setup
	@WATTLOAD_LAB_LIMIT_S=$${WATTLOAD_LAB_LIMIT_S:-7200} tests/lab/run.sh lab

lab-truth: setup
	@WATTLOAD_LAB_LIMIT_S=$${WATTLOAD_LAB_LIMIT_S:-7200} tests/lab/run.sh lab_truth

lab-example: setup
	@WATTLOAD_LAB_LIMIT_S=$${WATTLOAD_LAB_LIMIT_S:-14400} tests/lab/run.sh lab_example

# The commit is in the image's label and in its records; -dirty if files differ from it, or are untracked.
image image-cluster: export REVISION = $(shell git rev-parse HEAD)$(if $(shell git status --porcelain),-dirty)
image:
	docker compose -f docker/compose.yaml build wattload

image-cluster:
	docker compose -f docker/compose.cluster.yaml build node1

docker-test: setup
	@tests/containers/run.sh

clean: setup
	@$(BIN)/wattload clean "$(TARGET)"
