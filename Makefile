# make help lists the targets. Tools are built into .cache, at pinned versions.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tests use loopback only. Without this the SDK would ask the machine's metadata service.
export AWS_EC2_METADATA_DISABLED := true

GOLANGCI_VERSION    := v2.15.0
GOVULNCHECK_VERSION := v1.8.0

BIN         := $(CURDIR)/.cache/bin
GOLANGCI    := $(BIN)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
GOVULNCHECK := $(BIN)/govulncheck-$(GOVULNCHECK_VERSION)/govulncheck

# The root module, then every nested one, because the root's ./... does not enter those.
MODULES := . $(patsubst ./%/go.mod,%,$(sort $(shell find . -mindepth 2 -name go.mod -not -path './.*' -not -path '*/testdata/*')))
NESTED  := $(filter-out .,$(MODULES))

# each-module runs its second argument in every module of the first.
each-module = @for m in $(1); do echo "-- $$m"; (cd $$m && $(2)) || { echo "failed in module $$m" >&2; exit 1; }; done

FUZZTIME ?= 20s
# Builds a fuzzing binary with coverage. Without it the fuzzer varies only the corpus and seeds.
FUZZFLAGS = -fuzz=.
SEEDS    ?= 20000
CHAOS    ?= 15m

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | grep -vE '^($(ABSENT)):' | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: test
test: ## the tests of every module that need no server
	$(call each-module,$(MODULES),go test ./...)

# Packages without a goroutine, in which there is nothing that the race detector could find. Nor is there in the rules
# of the tree, which make house has, in tests that count bytes, requests or allocations, or in those that try one damage or
# one moment after another, or a month in which one is away: make test has them, and others have their concurrency. The tests of
# the examples and of the tools run programs that are built without the detector. With it the scheduler picks
# goroutines at random. TestRepeats wants two equal runs, and failed in one run of ten; 60 without it passed.
SERIAL := ext/group/internal/assign ext/group/internal/member
APART  := examples/[^/]* internal/testkit/mutants internal/testkit/pages
COUNTS := TestHouse TestRot$$ TestRotApart TestRotAndMembers TestCostOfLargeTables TestManyEpochs TestWriteAmplification TestFoldsManyEdits \
	TestRestMemory TestHooksDoNotAllocate TestUnpackedIsNotKept TestHostileFramesAllocateLittle TestOdds$$ TestCompactGroupIsBounded \
	TestManifestsWithoutACompactor TestWhatGrows TestOpeningCosts TestExploreFinds TestMovedAtEvery TestSnapshotAtEveryRequest \
	TestAwayForAMonth TestRunGroupAwayForAMonth TestWhyItCannotWrite TestFaultAtEveryRequest TestCrashAtEveryRequest TestLevelsProperties \
	TestCrash$$ TestSlowLooks TestRebuild TestForget TestInOrderAtFullSpeed TestPausesWithoutOver TestInterleavedAtEveryRequest \
	TestRepeats
# Of the command, what watches and supervises.
RACING := feed outside screen supervise
# golangci-lint has vet's checks.
TEST := go test -vet=off -short -count=1 -timeout 20m
.PHONY: race
race: ## the tests of the root module, and of parts of others, with the race detector; some try fewer cases than in make test
	@! grep -nE '^\s*go |\.Go\(|Parallel\(' $(addsuffix /*.go,$(SERIAL))
	$(TEST) -race -skip '^($(subst $(eval ) ,|,$(strip $(COUNTS))))' $$(go list ./... | grep -vE '/($(subst $(eval ) ,|,$(strip $(APART))))$$')
	cd ext/group && $(TEST) -race -skip '^($(subst $(eval ) ,|,$(strip $(COUNTS))))' $$(go list ./... | grep -vE '/($(subst $(eval ) ,|,$(strip $(SERIAL))))$$|/examples/')
	cd delta && $(TEST) -race -run '^Test(TenPublishers$$|ManySources|SecondStore|UnpublishWhile|OneBadSource|LogThatIsNotThereYet)' .
	cd cmd/fencepost && $(TEST) -race -parallel 4 $(addprefix ./internal/,$(RACING))

# On a bare machine most of CI's time goes into compiling, and the race detector needs a build of its own. So what
# needs the SDKs of the other clouds, client-go, SQLite or a Kafka client is without it.
.PHONY: modules modules-command modules-others
modules: ## the tests of every nested module, but what make race has of cmd/fencepost
	@$(MAKE) -j2 --output-sync=target modules-command modules-others
# The tests of the command often wait. Meanwhile the others run, with less priority.
modules-command:
	cd cmd/fencepost && $(TEST) -parallel 4 $$(go list ./... | grep -vE '/internal/($(subst $(eval ) ,|,$(RACING)))$$')
modules-others:
	$(call each-module,$(filter-out cmd/fencepost $(LATER),$(NESTED)),nice -n 10 $(TEST) -parallel 4 ./...)
.PHONY: race-modules
race-modules: ## every nested module with the race detector
	$(call each-module,$(NESTED),$(TEST) -race -parallel 4 ./...)
# In CI make integration runs all tests of these two.
.PHONY: modules-ci
modules-ci:
	@$(MAKE) modules LATER='store/azurestore store/gcsstore'

.PHONY: servers
servers: ## install the servers of the integration tests
	go test -tags integration -count=1 -timeout 40m -v -run '^TestInstalled$$' ./internal/testkit/servers

.PHONY: integration
integration: ## tests with real servers, processes and a browser; installs what is missing
	@$(MAKE) -j3 --output-sync=target $(INTEGRATION)

# In CI, what needs only the processor or downloads runs meanwhile, with the least priority.
.PHONY: integration-ci background
integration-ci:
	@$(MAKE) -j4 --output-sync=target background $(INTEGRATION)
background:
	@nice -n 19 $(MAKE) -j2 --output-sync=target golangci tidy vuln-ci fuzz-smoke mutants-ci sim-ci $(SPEC) manifests units

# Several run at once, because they often wait for servers and for locks to lapse. Those that take
# longest come first, and the browser is not beside chaos. RACE=-race adds the race detector to those of the root module. It doubles their time, and make race
# has already tested the same packages with it.
INTEGRATION := integration-rest see $(addprefix integration-,gcsstore azurestore chaos groups)
INTEGRATE   := go test -vet=off -tags integration -count=1 -timeout 40m
.PHONY: $(INTEGRATION)
integration-chaos:
	cd integration && $(INTEGRATE) $(RACE) -run '^TestChaos$$' .
integration-groups:
	cd integration && $(INTEGRATE) $(RACE) -run '^TestChaosGroups$$' .
integration-rest:
	cd integration && $(INTEGRATE) $(RACE) -skip '^TestChaos(Groups)?$$' ./...
	$(INTEGRATE) $(RACE) ./internal/testkit/servers
integration-gcsstore integration-azurestore: integration-%:
	cd store/$* && $(INTEGRATE) ./...

# The engines are Python packages at pinned versions. They are in an environment of their own,
# whose name has the hash of the list. Arguments are in ENGINES_ARGS, such as -kill-time 10m -timeout 2h,
# -versions 0 for all of them, and -stores dir,versitygw,minio. The servers are those of make servers.
ENGINES = .cache/engines-$(shell sha256sum integration/engines/requirements.txt | cut -c1-12)
$(ENGINES)/done:
	python3 -m venv $(@D) && $(@D)/bin/pip install -q -r integration/engines/requirements.txt && touch $@

.PHONY: engines
engines: $(ENGINES)/done ## delta-rs, Polars and DuckDB read published tables while workers are killed; installs them on first use
	cd integration/engines && FENCEPOST_ENGINES=$(CURDIR)/$(ENGINES)/bin/python go test -tags integration -count=1 -timeout 20m -v . $(ENGINES_ARGS)
	cd examples/kafka-lake && FENCEPOST_ENGINES=$(CURDIR)/$(ENGINES)/bin/python go test -tags engines -count=1 -timeout 20m -v -run '^TestEngines$$' .

.PHONY: java
java:
	@{ command -v java && command -v mvn; } >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless maven; }

# Spark needs Java. Its jars come from Maven Central, at the versions of the list: 22 MB, and
# Spark itself has 490 MB.
SPARK = .cache/spark-$(shell cat integration/engines/spark/* | sha256sum | cut -c1-12)
$(SPARK)/done: | java
	python3 -m venv $(@D) && $(@D)/bin/pip install -q -r integration/engines/spark/requirements.txt
	mvn -q -B -f integration/engines/spark/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(@D)/jars \
		-DincludeGroupIds=io.delta,org.apache.hadoop,software.amazon.awssdk,software.amazon.eventstream,org.reactivestreams,org.wildfly.openssl -DexcludeArtifactIds=hadoop-client-api,hadoop-client-runtime
	touch $@

.PHONY: engines-spark
engines-spark: $(SPARK)/done ## the same with Spark, at all versions; minutes; installs Java, Maven and Spark on first use
	cd integration/engines && FENCEPOST_SPARK=$(CURDIR)/$(SPARK)/bin/python FENCEPOST_SPARK_JARS=$(CURDIR)/$(SPARK)/jars go test -tags integration -count=1 -timeout 60m -v . -versions 0 -pause 1s $(ENGINES_ARGS)

# Kafka's jars come from Maven Central, at the versions of the list. -failovers and -messages
# make the run longer: make kafka KAFKA='-failovers 50 -messages 1000000'. In the end all engines
# read the table. KAFKA may have another -report.
JARS = .cache/kafka-$(shell sha256sum examples/kafka-lake/broker/pom.xml | cut -c1-12)
$(JARS)/done: | java
	mvn -q -B -f examples/kafka-lake/broker dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(@D) && touch $@

.PHONY: kafka
kafka: $(JARS)/done $(ENGINES)/done $(SPARK)/done ## a real Kafka broker into a Delta table on versitygw: workers and broker are killed, engines count; needs Java and Maven
	cd examples/kafka-lake && FENCEPOST_ENGINES=$(CURDIR)/$(ENGINES)/bin/python FENCEPOST_SPARK=$(CURDIR)/$(SPARK)/bin/python FENCEPOST_SPARK_JARS=$(CURDIR)/$(SPARK)/jars \
		FENCEPOST_KAFKA=$(CURDIR)/$(JARS) go test -tags kafka -count=1 -timeout 60m -v -run '^Test(Broker|MemoryIsBounded)' . -report $(CURDIR)/.cache/kafka-report.json $(KAFKA)

# The validator is a Python package that has the schemas of all versions of Kubernetes. It must
# also find each of the faults in kubelock/testdata/wrong.yaml.
MANIFESTS = .cache/manifests-$(shell sha256sum deploy/kubernetes/requirements.txt | cut -c1-12)
KUBERNETES_VERSIONS := 1.33 1.37
.PHONY: manifests
manifests: ## check deploy/kubernetes against the schemas of the API; installs a validator on first use
	@[ -e $(MANIFESTS)/done ] || { python3 -m venv $(MANIFESTS) && $(MANIFESTS)/bin/pip install -q -r deploy/kubernetes/requirements.txt && touch $(MANIFESTS)/done; }
	@for v in $(KUBERNETES_VERSIONS); do $(MANIFESTS)/bin/kubernetes-validate --strict -k $$v deploy/kubernetes/*.yaml || exit 1; done
	@found=$$($(MANIFESTS)/bin/kubernetes-validate --strict --no-warn kubelock/testdata/wrong.yaml 2>&1 | grep -c '^ERROR' || true); \
		[ "$$found" = 3 ] || { echo "the validator found $$found of 3 planted faults" >&2; exit 1; }

# A real API server and its etcd, of the version that kubelock has the client of. No CI step: to build
# them takes ten minutes of processor time once.
APISERVER_VERSION = $(shell sed -n 's|^\tk8s.io/client-go v0\.||p' kubelock/go.mod)
APISERVER = $(CURDIR)/.cache/apiserver-$(APISERVER_VERSION)
.PHONY: apiserver
apiserver: ## kubelock and deploy/kubernetes with a real API server, which is built on first use
	kubelock/testdata/apiserver $(APISERVER) $(APISERVER_VERSION)
	cd kubelock && FENCEPOST_APISERVER=$(APISERVER) go test -tags apiserver -count=1 -timeout 10m -v -run '^TestAPIServer$$' .

.PHONY: units
units: ## check the systemd units; needs systemd-analyze
	deploy/systemd/check

# The parts that look at Fencepost from outside. Chromium and Prometheus are packages of Debian.
.PHONY: see
see: ## the page and the documentation in a real browser, the dashboard and the alerts in a real Prometheus; installs both
	@$(MAKE) site # as a prerequisite it would let others begin before this target, which takes long
	@command -v chromium prometheus promtool >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium prometheus fonts-dejavu-core; }
	cd integration/see && go test -tags integration -count=1 -timeout 20m -v ./...

.PHONY: chaos
chaos: ## kill, freeze and cut off processes, for CHAOS (15m) on each real server; report in integration/chaos-report.json
	@mkdir -p .cache
	cd integration && go test -tags integration -count=1 -timeout 8h -v -run '^TestChaos$$' . -artifacts -outputdir $(CURDIR)/.cache -chaos-logs 6 -chaos-time $(CHAOS) -chaos-total 5000 -chaos-report chaos-report.json

# Flags in CHAOS_GROUPS are last, so they count: CHAOS_GROUPS='-chaos-time 10s -chaos-handovers 20 -chaos-handovers-total 100' is a
# short run, and -chaos-groups-report $PWD/bench/results/chaos-groups.json writes the report that is committed.
.PHONY: chaos-groups
chaos-groups: ## the same for groups, until 2,000 partitions were handed over; report in .cache/chaos-groups-report.json
	@mkdir -p .cache
	cd integration && go test -tags integration -count=1 -timeout 8h -v -run '^TestChaosGroups' . -artifacts -outputdir $(CURDIR)/.cache -chaos-partitions 32 -chaos-time 3m -chaos-handovers 500 -chaos-handovers-total 2000 -chaos-groups-report $(CURDIR)/.cache/chaos-groups-report.json $(CHAOS_GROUPS)

.PHONY: mutants
mutants: ## remove each guard from the code in turn; the tests must fail
	go run ./internal/testkit/mutants

.PHONY: guards
guards: ## write docs/guards.md from the comments in the code
	go run ./internal/testkit/mutants -doc

.PHONY: mutants-smoke
mutants-smoke: ## the same for a random sample of the guards, about 100 seconds
	go run ./internal/testkit/mutants -budget 100s

.PHONY: fmt
fmt: ## check gofmt; make fmt-fix repairs
	@bad=$$(gofmt -l -s .); if [ -n "$$bad" ]; then echo "not formatted (run make fmt-fix):"; echo "$$bad"; exit 1; fi

.PHONY: fmt-fix
fmt-fix: ## gofmt everything
	gofmt -w -s .

# One process for all modules, in a workspace that is only for this: each library is read once. 17 processes
# needed three times the processor time.
WORKSPACE := $(CURDIR)/.cache/lint
.PHONY: golangci
golangci: $(GOLANGCI) ## golangci-lint, with vet and staticcheck, every module
	@mkdir -p $(WORKSPACE) && { go env GOVERSION | sed 's/^go/go /'; printf 'use %s\n' $(realpath $(MODULES)); } >$(WORKSPACE)/go.work
	@echo "linting $(words $(MODULES)) modules at once; minutes, the first time"
	@GOWORK=$(WORKSPACE)/go.work GOGC=400 GOMEMLIMIT=4GiB $(GOLANGCI) run --config $(CURDIR)/.golangci.yml $(addsuffix /...,$(realpath $(MODULES)))

.PHONY: lint
lint: fmt golangci ## both

# govulncheck takes its database from a flag only, not from a variable.
.PHONY: vuln
vuln: $(GOVULNCHECK) ## find known vulnerabilities in the code that the modules call; needs vuln.go.dev, or the URL of a copy in GOVULNDB
	$(call each-module,$(MODULES),$(GOVULNCHECK) $(if $(GOVULNDB),-db $(GOVULNDB)) -tags integration $(or $(PKG),./...))

# Some networks cannot reach the database. There this only shows that the check would work:
# it finds an invented vulnerability.
.PHONY: vuln-ci
vuln-ci:
	@if getent hosts vuln.go.dev >/dev/null || [ -n "$(GOVULNDB)" ]; then $(MAKE) vuln; else \
		echo "vuln.go.dev is not reachable: checking only for an invented vulnerability"; $(MAKE) vuln-selftest MODULES=.; fi

.PHONY: vuln-selftest
vuln-selftest: $(GOVULNCHECK) ## check that make vuln finds a planted vulnerability, and none in an empty database
	@if out=$$($(MAKE) vuln MODULES=. PKG=./internal/frame GOVULNDB=file://$(CURDIR)/.ci/vulndb/planted 2>&1) || ! grep -q 'zstd.NewReader' <<<"$$out"; then \
		echo "make vuln did not find the planted vulnerability:"; echo "$$out"; exit 1; fi
	@$(MAKE) vuln GOVULNDB=file://$(CURDIR)/.ci/vulndb/empty

.PHONY: tidy
tidy: ## check that go.mod and go.sum are tidy and that downloads match them
	$(call each-module,$(MODULES),go mod tidy -diff && go mod verify)

.PHONY: house
house: ## check the rules of the tree: import direction, sizes, package comments, README
	go test -count=1 ./internal/house

.PHONY: numbers
numbers: ## how large the tree is, with the goals of issue 36
	@go run ./internal/tools/numbers

.PHONY: docs
docs: ## write manual pages and completions of the command line to .cache/share
	@rm -rf .cache/share && mkdir -p .cache/share/completions
	cd cmd/fencepost && go build -o $(CURDIR)/.cache/share/fencepost . && cd $(CURDIR)/.cache/share && ./fencepost man man/man1 && \
		for s in bash zsh fish powershell; do ./fencepost completion $$s >completions/fencepost.$$s || exit 1; done && rm fencepost

# The packages of the site are pinned, like those of engines.
SITE = .cache/mkdocs-$(shell sha256sum site/requirements.txt | cut -c1-12)
.PHONY: site
site: ## build the documentation site into .cache/site, and check its links; installs mkdocs from PyPI on first use
	@[ -e $(SITE)/done ] || { python3 -m venv $(SITE) && $(SITE)/bin/pip install -q -r site/requirements.txt && touch $(SITE)/done; }
	cd site && PYTHONDONTWRITEBYTECODE=1 ../$(SITE)/bin/python -m unittest -q hooks_test
	node --test site/
	PYTHONDONTWRITEBYTECODE=1 NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict -f site/mkdocs.yml

.PHONY: docs-test
docs-test: ## run every command in docs/ and the README, and compile every piece of Go there
	go test -count=1 -run '^TestHouseOfDocuments$$' ./internal/house
	cd cmd/fencepost && go test -count=1 -run '^Test(Documents|JSON.*)$$' .

.PHONY: release
release: ## make the files of a release in dist: make release VERSION=v0.1.0 [PLATFORMS=linux/amd64,...] [KEY=file]
	@[ -n "$(VERSION)" ] || { echo "say which version: make release VERSION=v0.0.0-test" >&2; exit 2; }
	cd internal/release && go run ./dist -version $(VERSION) -out $(CURDIR)/dist $(if $(PLATFORMS),-platforms $(PLATFORMS)) $(if $(KEY),-key $(abspath $(KEY)))

.PHONY: container
container: ## run the image that make release has made in podman, as docs/deploying.md says; installs podman and runc
	@[ -n "$(VERSION)" ] || { echo "say which version: make container VERSION=v0.0.0-test" >&2; exit 2; }
	@command -v podman >/dev/null && command -v runc >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends podman runc; }
	deploy/container/check dist/fencepost_$(VERSION)_image.tar

.PHONY: sim
sim: ## make and check SEEDS (20000) new histories of the whole system on a simulated store
	go test -count=1 -timeout 0 -v -run '^TestHistories$$' ./internal/testkit/sim -seeds $(SEEDS) $(if $(SEED),-seed $(SEED))

.PHONY: sim-groups
sim-groups: ## make and check SEEDS (20000) new histories of groups; about 30 a second
	cd ext/group && FENCEPOST_SEEDS=$$(($(or $(SEED),1)))-$$(($(or $(SEED),1) + $(SEEDS) - 1)) go test -count=1 -timeout 0 -run '^TestManySeeds$$' ./internal/member

# The seeds and the choice of mutants come from a hash of the code. So a change gets new
# ones, and a run of the same code can be repeated.
code-seed = sum=$$(find . -name '*.go' -not -path './.*' | LC_ALL=C sort | xargs cat | sha256sum); echo $$((16\#$${sum:0:12}))
.PHONY: sim-ci mutants-ci
sim-ci:
	@$(MAKE) sim SEEDS=4000 SEED=$$($(code-seed))
mutants-ci:
	go run ./internal/testkit/mutants -budget 60s -order $$($(code-seed))

.PHONY: explore
explore: ## run all schedules of small cases, also of the long ones; about 120 s of processor time
	go test -exec 'env GOMAXPROCS=1 GOGC=800 GOMEMLIMIT=6GiB' -count=1 -timeout 0 -v -run '^TestExplore$$' ./internal/testkit/sim -long

.PHONY: rot
rot: ## damage each bit of a small log, and of a group, with everything in it; verify must find each. USERS=1: all others meet each, too, which takes long
	go test -exec 'env GOGC=400' -count=1 -timeout 0 -v -run '^TestRot(Apart)?$$' ./verify -every 1 -users $(or $(USERS),16)
	cd ext/group && go test -exec 'env GOGC=400' -count=1 -timeout 0 -v -run '^TestRot(AndMembers)?$$' . -every 1 -users $(or $(USERS),16)

# The fuzzer of go1.26 may end with an error at the end of its time although it found
# nothing (golang.org/issue/75804). It writes each finding to a file, so count those.
findings = find . -path './testdata/fuzz/*' -type f | wc -l
.PHONY: fuzz
fuzz: ## fuzz every fuzz test of every module for FUZZTIME (20s)
	@grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -r -n1 dirname | sort -u | while read -r dir; do \
		work=$(CURDIR)/.cache/fuzz/$$dir && mkdir -p $$work/found && cd $(CURDIR)/$$dir && go test -c $(FUZZFLAGS) -o $$work/test . || exit 1; \
		for f in $$($$work/test -test.list '^Fuzz'); do \
			echo "-- $$dir $$f"; \
			known=$$($(findings)); \
			$$work/test -test.run '^$$' -test.fuzz "^$$f\$$" -test.fuzztime $(FUZZTIME) -test.fuzzcachedir $$work/found | tee $$work/out || \
				{ grep -qx ' *context deadline exceeded' $$work/out && [ "$$($(findings))" = "$$known" ]; } || exit 1; \
		done; \
	done

.PHONY: fuzz-keep
fuzz-keep: ## copy the shortest entries that make fuzz has found to testdata/fuzz, up to 30 for each test
	@cd .cache/fuzz && find . -type d -path '*/found/Fuzz*' | while read -r found; do \
		own=$(CURDIR)/$${found%/found/*}/testdata/fuzz/$${found##*/} && mkdir -p $$own || exit 1; \
		find $$found -type f -size -4097c -exec ls -Sr {} + | while read -r entry; do \
			[ "$$(ls $$own | wc -l)" -lt 30 ] || break; \
			cp -n $$entry $$own/ || exit 1; \
		done || exit 1; \
	done

.PHONY: fuzz-smoke
fuzz-smoke: ## the same for one second each, with the binaries of plain tests; about 60 seconds
	@$(MAKE) fuzz FUZZTIME=1s FUZZFLAGS=

.PHONY: bench
bench: ## compare with plain calls of the same stores and of the servers of make servers, about ten minutes; write bench/results
	cd bench && go run .

.PHONY: bench-check
bench-check: ## the same, but write nothing; fail if a ratio is more than 10 % worse than in bench/results in each of three tries, or is missing
	cd bench && go run . -check

.PHONY: bench-election
bench-election: ## compare the election with client-go's, in virtual time; write bench/results/election.json
	cd bench && go test -tags clientgo -count=1 -v -run '^TestElection$$' ./election -write

.PHONY: bench-handover
bench-handover: ## measure hand-overs between processes on versitygw, about twenty minutes; write bench/results/handover.md
	cd bench && go test -count=1 -v -timeout 40m -run '^TestProcesses$$' ./election -results $(CURDIR)/bench/results

# SlateDB is a library for Rust. Its arm is built at the versions of its lock file. ONLY='S3.s tail, 16'
# measures some loads, and keeps the other rows of the page.
SLATEDB := $(CURDIR)/.cache/slatedb
.PHONY: bench-slatedb
bench-slatedb: ## compare appends with SlateDB's, in real time, 14 to 25 minutes; write bench/results/slatedb.md; needs cargo, so not in ci
	cargo build --release --locked --manifest-path bench/rivals/slatedb/Cargo.toml --target-dir $(SLATEDB)
	cd bench && go test -count=1 -v -timeout 60m -run '^TestSlateDB$$' ./rivals -results $(CURDIR)/bench/results -slatedb $(SLATEDB)/release/fencepost-bench-slatedb $(if $(ONLY),-only "$(ONLY)")

# The measured parts are commit, publish, publishers, kafka and lag: ONLY='kafka|lag' measures some, and keeps the
# other rows of the page. REMARK is a sentence for the page.
.PHONY: bench-lake
bench-lake: $(ENGINES)/done ## measure published tables, Kafka to Parquet and delta-rs beside them, three minutes; write bench/results/lake.md; needs PyPI, so not in ci
	cd bench && go test -count=1 -v -timeout 30m -run '^TestLake$$' ./lake -results $(CURDIR)/bench/results -python $(CURDIR)/$(ENGINES)/bin/python $(if $(ONLY),-only "$(ONLY)") $(if $(REMARK),-remark "$(REMARK)")

# These targets exist only if the folder spec does.
ifneq ($(wildcard spec/run),)
.PHONY: spec
spec: ## check the formal models with Spin
	spec/run

.PHONY: spec-full
spec-full: ## the same, then the large configurations, one at a time
	spec/run full
# A sixth of the mutants, others after each change.
.PHONY: spec-ci
spec-ci:
	SHARE=6 OFFSET=$$($(code-seed)) spec/run
SPEC := spec-ci
else
ABSENT := spec|spec-full
endif

# What takes long to compile and to download. CI begins it at once, with the least priority, and awaits it
# where it is needed.
.PHONY: tools
tools:
	@mkdir -p .cache && exec 9>.cache/tools.lock && flock 9 && $(MAKE) $(GOLANGCI) $(GOVULNCHECK) $(ENGINES)/done servers 9>&-

.PHONY: ci
ci: ## everything that must pass before a change lands, except the first steps of .ci/run
	@mkdir -p .cache; set -m; nice -n 19 $(MAKE) tools >.cache/tools.log 2>&1 & set +m; \
		trap 'for p in $$(jobs -pr); do kill -- -$$p; done 2>/dev/null || true' EXIT; \
		.ci/steps $(foreach t,fmt house race modules-ci tools engines integration-ci,"make $(t)")

# Tools. The version is in the path, so that a new version is a new file. GOFLAGS is set,
# because the caller's value may not suit another module. Like .ci/run it leaves out what only debuggers read, and seldom collects garbage.
TOOLFLAGS := -mod=mod -gcflags=all=-dwarf=false
$(GOVULNCHECK):
	GOGC=800 GOFLAGS="$(TOOLFLAGS)" GOWORK=off GOBIN=$(@D) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

$(GOLANGCI):
	GOGC=800 GOFLAGS="$(TOOLFLAGS)" GOWORK=off GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
