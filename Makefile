# make help lists the targets. .ci/tasks says what each does.

# Tests use loopback only. Without this the SDK would ask the machine's metadata service.
export AWS_EC2_METADATA_DISABLED := true
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## /\1\t/p' Makefile | expand -t 16

# For all day.
test: ## the tests of every module that need no server
house: ## the rules of the tree: imports, sizes, exported names, documents
docs-test: ## run every command in docs/ and the README, and compile every piece of Go there
fmt: ## check gofmt; make fmt-fix repairs
fmt-fix: ## gofmt everything
golangci: ## golangci-lint, with vet and staticcheck, every module
lint: ## both
numbers: ## how large the tree is, with the goals of issue 36
guards: ## write docs/guards.md from the comments in the code
docs: ## write manual pages and completions of the command line to .cache/share
site: ## build the documentation site into .cache/site, and check its links; installs mkdocs from PyPI on first use

# For a change, and for the night.
ci: ## everything that must pass before a change lands, except the first steps of .ci/run
nightly: ## list what CI has no time for: what is done for this tree, and what remains; make nightly PART=x runs one part
race: ## the tests of the root module, and of parts of others, with the race detector; some try fewer cases than in make test
modules: ## the tests of every nested module, but what make race has of cmd/fencepost
race-modules: ## every nested module with the race detector
servers: ## install the servers of the integration tests
integration: ## tests with real servers and processes; installs what is missing
see: ## the page and the documentation in a real browser, the dashboard and the alerts in a real Prometheus; installs both
chaos: ## kill, freeze and cut off processes, for CHAOS (15m) on each real server; report in integration/chaos-report.json
chaos-groups: ## the same for groups, until 2,000 partitions were handed over; report in .cache/chaos-groups-report.json
engines: ## delta-rs, Polars and DuckDB read published tables while workers are killed; installs them on first use
engines-spark: ## the same with Spark, at all versions; minutes; installs Java, Maven and Spark on first use
kafka: ## a real Kafka broker into a Delta table on versitygw: workers and broker are killed, engines count; needs Java and Maven
recipes: ## the programs of docs/recipes.md, killed and frozen; installs them on first use
python-client: ## check and test the Python client, with mypy and pytest from PyPI; HISTORIES (2) with processes killed and frozen
typescript-client: ## check and test the TypeScript client, with tsc from npm; HISTORIES (2) with processes killed and frozen
wheel: ## build the Python client for this machine, with the program inside, into dist
tarball: ## build the TypeScript client for this machine, with the program inside, into dist
manifests: ## check deploy/kubernetes against the schemas of the API; installs a validator on first use
units: ## check the systemd units; needs systemd-analyze
apiserver: ## kubelock and deploy/kubernetes with a real API server, which is built on first use
vuln: ## find known vulnerabilities in the code that the modules call; needs vuln.go.dev, or the URL of a copy in GOVULNDB
vuln-selftest: ## check that make vuln finds a planted vulnerability, and none in an empty database
tidy: ## check that go.mod and go.sum are tidy and that downloads match them
mutants: ## remove each guard from the code in turn; the tests must fail
mutants-smoke: ## the same for a random sample of the guards, about 100 seconds
spec: ## check the formal models with Spin
spec-full: ## the same, then the large configurations, one at a time
sim: ## make and check SEEDS (20000) new histories of the whole system on a simulated store
sim-groups: ## make and check SEEDS (20000) new histories of groups; about 30 a second
explore: ## run all schedules of small cases, also of the long ones; about 120 s of processor time
rot: ## damage each bit of a small log, and of a group; verify must find each. USERS=1: all others meet each, too, which takes long
fuzz: ## fuzz every fuzz test of every module for FUZZTIME (20s)
fuzz-keep: ## copy the shortest entries that make fuzz has found to testdata/fuzz, up to 30 for each test
fuzz-smoke: ## the same as make fuzz for one second each, with the binaries of plain tests; about 60 seconds

# Benchmarks.
bench: ## compare with plain calls of the same stores and of the servers of make servers, about ten minutes; write bench/results
bench-check: ## the same, but write nothing; fail if a ratio is more than 10 % worse than in bench/results in each of three tries, or is missing
bench-election: ## compare the election with client-go's, in virtual time; write bench/results/election.json
bench-handover: ## measure hand-overs between processes on versitygw, about twenty minutes; write bench/results/handover.md
bench-slatedb: ## compare appends with SlateDB's, in real time, 14 to 25 minutes; write bench/results/slatedb.md; needs cargo
bench-lake: ## measure published tables, Kafka to Parquet and delta-rs beside them, three minutes; write bench/results/lake.md; needs PyPI

# A release.
release: ## make the files of a release in dist: make release VERSION=v0.1.0 [PLATFORMS=linux/amd64,...] [KEY=file]
container: ## run the image that make release has made in podman, as docs/deploying.md says; installs podman and runc

# Parts of the targets above, which run beside each other.
PARTS := modules-command modules-others integration-ci integration-rest integration-gcsstore integration-azurestore \
	chaos-ci recipes-ci java-client background tools sim-ci mutants-ci spec-ci

TASKS := $(filter-out help,$(shell sed -nE 's/^([a-z-]+):.*\#\# .*/\1/p' Makefile)) $(PARTS)
.PHONY: help $(TASKS)
$(TASKS):
	@.ci/tasks $@
