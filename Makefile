# ronbox: `make` lists the targets.
SHELL    := /bin/bash
GO       ?= go
DATA     ?= data
FUZZTIME ?= 10s
CHECKS   ?= 10000
BENCH    ?= .
SEEDS    ?= 10000
SIMOPS   ?= 1000
KILLS    ?= 1000
COVER    ?= 90
SECONDS  ?= 300
SEED     ?=
RANGE    ?= $(shell git rev-parse -q --verify origin/HEAD >/dev/null 2>&1 && echo origin/HEAD..HEAD)
PLAN     ?= lead=200,all=50,pause=50,cut=50,out=50,in=50,follow=20,wipe=10,oldlog=10,replace=10,slow=10,ring=10,flap=10,cutkill=10,eio=5,stall=5,flip=5,install=5,full=5,revoke=5,upload=10,term=10,termall=5,termboot=5,termelect=5,termlife=10,termalone=5,termstall=3,hand=20,brim=5,behind=5,ahead=5,move=10
CUTS     ?= 50
LDFLAGS  := -s -w
STRIP    := -ldflags '$(LDFLAGS)'
WAITING  := -p 4
PREFIX   ?= /usr/local
DESTDIR  ?=
PACKER   := cmd/ronbox-dist

# All targets use the same flags, so that each package is compiled once. Only the race detector needs C.
export GOFLAGS     := $(strip $(shell $(GO) env GOFLAGS) -trimpath)
export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help build install run test full check commits fmt vet lint staticcheck tidy tools race schedules cover fuzz laws bench sim kill load soak long long-smallbox long-kills long-nemeses long-draws peers check-cluster tour-fleet tour-index tour-cluster tour-archive tour-periods judges golden dist clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/ronbox
	$(GO) build -buildvcs=auto -ldflags '$(LDFLAGS)' -o bin/ronbox ./cmd/ronbox

bin/ronbox:
	$(MAKE) build

install: | bin/ronbox ## install bin/ronbox and its shell completions in PREFIX (/usr/local), below DESTDIR if set
	install -D -m 755 bin/ronbox $(DESTDIR)$(PREFIX)/bin/ronbox
	@set -e; share=$(DESTDIR)$(PREFIX)/share; put() { mkdir -p "$$(dirname "$$2")"; bin/ronbox completion $$1 >"$$2"; chmod 644 "$$2"; echo "$$2"; }; \
	put bash $$share/bash-completion/completions/ronbox; put zsh $$share/zsh/site-functions/_ronbox; put fish $$share/fish/vendor_completions.d/ronbox.fish

# Each binary is built for the baseline of its architecture. Version and times are those of the commit, so dist refuses uncommitted
# sources. MAINTAINER="NAME <ADDRESS>" is the maintainer that the packages name.
dist: ## build and pack a release for amd64, arm64 and armv7 into dist; RONBOX_RELEASE_KEY, a file of `ronbox-dist keygen`, signs it
	rm -rf dist bin/dist
	set -e; export GOOS=linux GOAMD64=v1 GOARM64=v8.0 GOARM=7; for arch in amd64 arm64 arm; do \
	  GOARCH=$$arch $(GO) build -buildvcs=true -ldflags '$(LDFLAGS)' -o bin/dist/$$arch/ronbox ./cmd/ronbox; done
	cd $(PACKER) && $(GO) build -o $(CURDIR)/bin/ronbox-dist .
	bin/ronbox-dist $(if $(MAINTAINER),-maintainer '$(MAINTAINER)') bin/dist/*/ronbox

run: build ## build, create a dev node in ./data if there is none, serve it
	@exec bin/ronbox --data-dir $(DATA) init --dev --packs testdata/packs --start

# Linking the tests takes a third less time without debug information.
# Many tests wait for timeouts and for other processes, so that two packages at a time would leave two processors idle.
test: ## run every test with fewer random cases; what has not changed is not run again
	$(GO) test -vet=off -short $(STRIP) $(WAITING) -timeout 15m ./...
	cd $(PACKER) && $(GO) test -vet=off -short $(STRIP) ./...

full: ## run every test with all random cases, shuffled; a test whose tool is missing is skipped, or fails if RONBOX_TOOLS is set
	$(GO) test -vet=off $(STRIP) $(WAITING) -count=1 -shuffle=on -timeout 30m ./...
	cd $(PACKER) && $(GO) test -vet=off $(STRIP) -count=1 -shuffle=on ./...

check: ## run the other CI checks: linters, nemeses of the cluster, schedules of flow, all random cases, kill tests, tours, race detector (needs gcc)
	$(MAKE) fmt tidy commits
	$(MAKE) -j2 --output-sync=target long-nemeses vet lint staticcheck schedules long-draws
	$(MAKE) full long-smallbox
	$(MAKE) -j2 --output-sync=target race long-kills

commits: ## check the messages of the commits in RANGE (A..B; by default those that origin/HEAD lacks)
	@.github/commits '$(RANGE)'

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not gofmt'ed: $$out"; exit 1; }

vet:
	$(GO) vet ./...
	$(GO) vet -tags flowdebug ./appliance/flow
	$(GO) vet -tags flowsched ./appliance/flow
	GOARCH=arm GOARM=7 $(GO) vet ./...
	cd $(PACKER) && $(GO) vet ./...

# ronlint checks that no lock is held over a wait, that store commands are deterministic, that queues are declared, that no error is dropped,
# and that nothing is left undone.
lint:
	$(GO) build -o bin/ronlint ./cmd/ronlint
	$(GO) vet -vettool=$(CURDIR)/bin/ronlint ./...
	cd $(PACKER) && $(GO) vet -vettool=$(CURDIR)/bin/ronlint ./...

staticcheck:
	$(GO) tool staticcheck ./...
	bin=$$($(GO) tool -n staticcheck) && cd $(PACKER) && "$$bin" ./...

tidy:
	$(GO) mod tidy -diff
	$(GO) mod verify
	cd $(PACKER) && $(GO) mod tidy -diff

# Tools that check needs beside Go, with their Debian packages.
tools:
	@lacks=$$(for t in gcc:gcc strace:strace promtool:prometheus systemd-analyze:systemd; do command -v $${t%:*} >/dev/null || echo $${t#*:}; done); \
	[ -z "$$lacks" ] || { echo "missing: apt-get install" $$lacks; [ -z "$$RONBOX_TOOLS" ]; }

# Tests that run long in their own processes: test kills a few nodes; long kills 50 of each kind, runs the tours and ten nemeses of the
# cluster. It also runs a node on a small box, alone because that is timed, flips more bits of a registry and of names, draws more ranges, and
# runs more seeds of the wallet. The nemeses and the kills mostly wait for nodes, so that what computes, as the linters, the draws and the race
# detector, can run at the same time.
long:
	$(MAKE) -j2 --output-sync=target long-nemeses long-draws
	$(MAKE) long-smallbox long-kills

long-smallbox:
	$(GO) test -vet=off $(STRIP) -count=1 -timeout 30m ./cmd/ronbox -run '^TestSmallBox$$' -args -smallbox

long-kills:
	$(GO) test -vet=off $(STRIP) -count=1 -timeout 30m ./cmd/ronbox -run '^TestKill9|^TestTours$$|^TestAnyFlippedBitIsFound$$' -args -kills 50 -tour

long-nemeses:
	$(GO) test -vet=off $(STRIP) -count=1 -timeout 30m ./cmd/ronbox/clustertest -run '^Test(Nemeses|Recover)$$' -v -args -plan lead=1,all=1,pause=1,cut=1,out=1,wipe=1,oldlog=1,replace=1,upload=1,term=1

long-draws:
	$(GO) test -vet=off $(STRIP) -count=1 -timeout 30m ./httpapi/edge -run '^TestRangesAreThoseOfServeContent$$' -args -ranges 100000
	$(GO) test -vet=off $(STRIP) -count=1 -timeout 30m ./cmd/ronbox/server -run '^TestNamesRot$$' -args -rotten 60
	WALLET_SIM_SEEDS=100 WALLET_HISTORIES=250 $(GO) test -vet=off $(STRIP) -count=1 -timeout 30m ./engines/wallet -run '^TestSimulation$$|^TestLinearizable$$'

# The race detector and the lock ranks of flow.Mutex, for the packages that share state, and for verbs that run with a node. With -short
# tests use fewer random cases, and tests of a single goroutine are skipped.
race: tools
	CGO_ENABLED=1 $(GO) test -race -tags flowdebug -short -vet=off $(STRIP) $(WAITING) -shuffle=on -timeout 30m $$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Imports}}{{end}}' ./... | \
	  grep -E '[[ ](sync|ronbox/appliance/flow)[] ]|^ronbox/(cmd/ronbox|cmd/ronbox/server/load) ' | cut -d' ' -f1)

# All orders of the steps of flow's primitives, up to a bound.
schedules:
	$(GO) test -vet=off $(STRIP) -tags flowsched -run Schedule ./appliance/flow

cover: ## check that test coverage is at least COVER (90) % for ledger and wallet, and 85 % for the registry
	@set -o pipefail; reach() { least=$$1; shift; $(GO) test -cover "$$@" | tee /dev/stderr | \
	  awk -v least=$$least '/coverage:/ {sub(/.*coverage: /, ""); if ($$1+0 < least) low=1} END {exit low}'; }; \
	reach $(COVER) ./engines/ledger ./engines/ledger/idem ./engines/ledger/record ./engines/wallet && \
	reach 85 ./engines/registry ./engines/registry/checkpoint ./engines/registry/logtree ./engines/registry/record

# Short runs such as 300x do not use coverage guidance, because it would recompile everything, which takes minutes.
fuzz: ## fuzz every target for FUZZTIME (10s)
	@set -e; cache=$$($(GO) env GOCACHE)/fuzz; bin=$$(mktemp); trap 'rm -f "$$bin"' EXIT; \
	grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r d; do \
	  $(GO) test -c -vet=off $(STRIP) $(if $(filter %x,$(FUZZTIME)),,-fuzz .) -o "$$bin" $$d; \
	  grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' $$d/*_test.go | sed 's/func //' | while read -r f; do \
	    echo "== $$d $$f"; (cd $$d && "$$bin" -test.run '^$$' -test.fuzz "^$$f$$" -test.fuzztime $(FUZZTIME) -test.fuzzcachedir "$$cache/$$d"); done; done

laws: ## run the property tests of wallet and ledger with CHECKS (10000) random cases
	@set -e; grep -rl --include='*_test.go' 'rapid.Check(' engines/wallet engines/ledger | xargs -n1 dirname | sort -u | while read -r d; do \
	  tests=$$(grep -l 'rapid.Check(' $$d/*_test.go | xargs grep -hoE '^func Test[A-Za-z0-9_]+' | sed 's/func //' | paste -sd'|'); \
	  echo "== $$d $$tests"; $(GO) test ./$$d -run "^($$tests)$$" -count=1 -timeout 6h -rapid.checks $(CHECKS); done

bench: ## run the benchmarks matching BENCH (.)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

sim: ## run SEEDS (10000) seeds of SIMOPS (1000) operations of the wallet over a faulty connection; print failing seeds
	WALLET_SIM_SEEDS=$(SEEDS) WALLET_SIM_OPS=$(SIMOPS) $(GO) test ./engines/wallet -run Simulation -count=1 -timeout 6h -v

kill: ## kill a node KILLS (1000) times while it commits versions and payments; SEED repeats a run
	$(GO) test ./cmd/ronbox -run 'Kill9' -count=1 -timeout 2h -v -args -kills $(KILLS) $(if $(SEED),-seed $(SEED))

load: ## pay at full load for SECONDS (300), repeat one request in a hundred, check receipts, balances and records; SEED repeats a run
	LOAD_SECONDS=$(SECONDS) LOAD_SEED=$(SEED) $(GO) test ./cmd/ronbox/server/load -run '^TestLoadWithDuplicates$$' -count=1 -timeout 6h -v

soak: ## run a mixed load with restarts for SECONDS (300); memory, goroutines and open files must not grow; SEED repeats a run
	SOAK_SECONDS=$(SECONDS) SOAK_SEED=$(SEED) $(GO) test ./cmd/ronbox/server/load -run '^TestSoak$$' -count=1 -timeout 48h -v

check-cluster: ## kill, pause, cut off and replace nodes of a cluster of three as PLAN says, and cut their power CUTS (50) times, two hours by default; SEED repeats the draws
	CLUSTER_SEED=$(SEED) $(GO) test ./cmd/ronbox/clustertest -run '^Test(Nemeses|Recover)$$' -count=1 -timeout 4h -v -args -plan '$(PLAN)'
	CLUSTER_SEED=$(SEED) $(GO) test ./cmd/ronbox/clustertest -run '^TestPowerCutOfThree$$' -count=1 -timeout 2h -v -args -cuts $(CUTS) -hold 4s
	$(GO) test -count=1 ./engines/cluster -run '^TestModel$$' -args -crashes 1

peers: ## compare the services with PostgreSQL, nginx, Caddy (packages of Debian) and go-pmtiles on this machine
	@set -e; for f in testdata/bench/{wallet,edge}.sh; do $$f; done

tour-fleet: build ## run a hub and three sites that follow its registry, share a site and are paid for it
	testdata/tour/fleet.sh

tour-cluster: build ## make a cluster of three of one node, kill its leader while payments run, and make it one node again
	testdata/tour/cluster.sh

tour-index: build ## run four nodes of the index, and stop, resume and kill the peers of one
	testdata/tour/index.sh

tour-archive: build ## pay wrongly, lose the disk, and restore what was before from an archive
	testdata/tour/archive.sh

tour-periods: build ## close the old records of a ledger, use what they left, and prove every record since the first
	testdata/tour/periods.sh

judges: ## test ronbox with other implementations of its formats; needs npm, Chromium for maps, nginx for extracts, Prometheus, age and b3sum
	@set -e; for f in testdata/judges/*/run.sh; do echo "== $$f"; $$f; done

golden: ## regenerate the golden files, then show the changes
	$(GO) test ./cmd/ronbox/server ./cmd/ronbox/server/dashboard ./httpapi -run Golden -update
	git --no-pager diff --stat -- testdata/golden

clean: ## remove build results; the data folder stays
	rm -rf bin dist cover.out
