# Every target makes the environment it needs: .venv at the root, from Python 3.11 or later and constraints.txt.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN    := .venv/bin
STAMP  := .venv/.stamp
PIP    := -m pip --disable-pip-version-check --no-input

# Program and Debian's package of each thing beside Python that the external tests drive.
EXTERNAL := kubectl:kubernetes-client prometheus:prometheus chromium:chromium
# The same for the tests at a real API server, which is built by tests/real/binaries.py.
REAL := etcd:etcd-server kubectl:kubernetes-client
# What Debian has not, built by `go install` into GO_BIN where it is not on PATH: program and the module of its version.
GO_TOOLS := helm:helm.sh/helm/v3/cmd/helm@v3.22.0 kustomize:sigs.k8s.io/kustomize/kustomize/v5@v5.7.1 \
	versitygw:github.com/versity/versitygw/cmd/versitygw@v1.6.0
# As helm's release builds are linked: charts ask for the version of Kubernetes that helm was made for.
GO_LDFLAGS := -s -w $(foreach part,rules chartutil,$(foreach number,Major=1 Minor=37,\
	-X helm.sh/helm/v3/pkg/$(part:rules=lint/rules).k8sVersion$(number)))
GO_BIN    = $(shell go env GOPATH 2>/dev/null || echo "$$HOME/go")/bin
SOURCES  := vcd tests hatch_build.py $(wildcard bench deploy docs examples grafana)

# For two processors: each worker begins with tests that have daemons, which mostly wait.
WORKERS     ?= 6
# What needs Python alone; folders in which all tests need more are not even imported.
PYTHON_ONLY := -m "not external and not real" --ignore=tests/external --ignore=tests/real
PYTEST_ARGS ?=
BENCH_ARGS  ?=
SEEDS       ?= 1000

.PHONY: help demo test test-all test-external external-tools go-tools test-real storm real-tools simulate mutants shown bench docs site screenshots \
	chart release image lint format lock clean
.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE  # tests begin hundreds of programs, which would each be compiled anew

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

$(STAMP): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "vcd needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' \
		|| { echo "$(PYTHON) cannot make environments; on Debian install python3-venv" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	$(BIN)/python $(PIP) install --quiet -c constraints.txt hatchling editables
	$(BIN)/python $(PIP) install --quiet -c constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## gangs on the embedded cluster, one pending job explained, the log replayed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

test: $(STAMP)  ## the tests that need Python alone: under eight minutes on two cores
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTHON_ONLY) $(PYTEST_ARGS)

test-all: $(STAMP)  ## the same on more cases (VCD_WIDE=1), with the tests marked wide: before a release
	VCD_WIDE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTHON_ONLY) $(PYTEST_ARGS)

# $(call install,PROGRAM:PACKAGE ...): what is missing of these, by Debian's packages, or say so.
define install
	@missing=""; packages=""; \
	for tool in $(1); do \
		command -v "$${tool%%:*}" >/dev/null || { missing="$$missing $${tool%%:*}"; packages="$$packages $${tool##*:}"; }; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "missing:$$missing (Debian:$$packages); run this as root, or install them" >&2; exit 1; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends $$packages </dev/null
endef

test-external: $(STAMP) external-tools  ## the tests that drive kubectl, helm and Prometheus
	PATH="$$PATH:$(GO_BIN)" $(BIN)/python -m pytest -m external $(PYTEST_ARGS)

external-tools: go-tools  ## install what test-external drives (apt-get, as root; go install), or say what is missing
	$(call install,$(EXTERNAL))

test-real: $(STAMP) real-tools  ## the tests at a real kube-apiserver and etcd, and beside Volcano's own programs
	PATH="$$PATH:$(GO_BIN)" $(BIN)/python -m pytest -n 2 --dist worksteal -m real tests/real tests/contract $(PYTEST_ARGS)

storm: $(STAMP) real-tools  ## ten minutes of faults at a real kube-apiserver; VCD_STORM_SECONDS=60 makes them one
	VCD_WIDE=1 $(BIN)/python -m pytest -m real tests/real/test_storm.py $(PYTEST_ARGS)

real-tools: $(STAMP) go-tools  ## build kube-apiserver and Volcano (Go, minutes, once a version), install etcd, or say what is missing
	$(call install,$(REAL))
	@$(BIN)/python -m tests.real.binaries

go-tools:
	@for tool in $(GO_TOOLS); do \
		name="$${tool%%:*}"; module="$${tool#*:}"; \
		if PATH="$$PATH:$(GO_BIN)" command -v "$$name" >/dev/null; then continue; fi; \
		command -v go >/dev/null || { echo "missing: $$name (go install $$module, with Go 1.26 or later)" >&2; exit 1; }; \
		echo "building $$module into $(GO_BIN)"; \
		GOBIN="$(GO_BIN)" go install -ldflags "$(GO_LDFLAGS)" "$$module" || exit 1; \
	done

simulate: $(STAMP)  ## the whole system on simulated time, with all that can go wrong: SEEDS=N, or SEEDS=A:B
	@mkdir -p build
	$(BIN)/python -m tests.simulation seeds $(SEEDS) --workers 2 --digests build/digests.txt

mutants: $(STAMP)  ## in how many seeds the simulation finds each planted bug
	$(BIN)/python -m tests.simulation mutants

shown: $(STAMP)  ## that the kept scripts and tests still show the planted bugs
	$(BIN)/python -m tests.simulation shown

bench: $(STAMP)  ## run the benchmarks and write their figures into docs/performance.md; BENCH_ARGS=NAME for some
	$(BIN)/python -m bench --write $(BENCH_ARGS)

docs: $(STAMP)  ## write the generated parts of the documentation, and build the website into build/site
	$(BIN)/python docs/generate.py
	$(BIN)/python -m grafana.dashboards
	@$(MAKE) --no-print-directory site

site: $(STAMP)  ## build the website from the pages; a broken link or a page outside the table of contents is an error
	$(BIN)/sphinx-build -W --keep-going -q -c docs . build/site
	@echo '<meta http-equiv="refresh" content="0; url=docs/site.html">' > build/site/index.html

screenshots: $(STAMP) external-tools  ## write the pictures in the documentation anew, by chromium
	$(BIN)/python docs/screenshots.py

chart: $(STAMP)  ## write anew what the Helm chart has from elsewhere: its table of values, the custom resources
	$(BIN)/python deploy/chart/readme.py

lint: $(STAMP) site  ## ruff, mypy --strict, the layers, and the website's links
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMP)  ## let ruff format, and repair what it can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

release: $(STAMP)  ## build sdist, wheel and SBOM of the checked-out tag into dist/, and try them in an empty environment
	$(BIN)/python deploy/release.py --check
	rm -rf dist build/release
	$(BIN)/python -m build --no-isolation --outdir dist .
	"$(PYTHON)" -m venv build/release/run
	build/release/run/bin/python $(PIP) install --quiet -c constraints.txt dist/*.whl
	build/release/run/bin/vcd plan -f examples/gang.yaml
	"$(PYTHON)" -m venv build/release/sbom
	build/release/sbom/bin/python $(PIP) install --quiet -c deploy/sbom.txt cyclonedx-bom
	build/release/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o dist/vcd.cdx.json build/release/run/bin/python
	cd dist && sha256sum * > SHA256SUMS
	@cat dist/SHA256SUMS

# What is checked out as an image, by the version that a wheel of it would have. A tag can hold no plus sign.
VERSION = $(shell $(BIN)/python deploy/release.py --version)
IMAGE  ?= vcd:$(subst +,-,$(VERSION))

image: $(STAMP)  ## build the image; IMAGE=registry.example.com/batch/vcd:0.2.0 names it, docker push takes it there
	docker build -f deploy/Dockerfile --build-arg VCD_VERSION=$(VERSION) -t $(IMAGE) .

lock:  ## resolve the dependencies anew and write constraints.txt
	rm -rf build/lock
	"$(PYTHON)" -m venv build/lock
	build/lock/bin/python $(PIP) install --quiet '.[dev]'
	build/lock/bin/python $(PIP) freeze --exclude vcd > build/lock/constraints.txt
	mv build/lock/constraints.txt constraints.txt
	rm -rf build/lock

clean:  ## remove the environment and everything that was built
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
