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
LDFLAGS  := -s -w
STRIP    := -ldflags '$(LDFLAGS)'
PREFIX   ?= /usr/local
DESTDIR  ?=
PACKER   := cmd/ronbox-dist

# One set of flags for all of it, so that what was compiled is compiled once. Only the race detector needs C.
export GOFLAGS     := $(strip $(shell $(GO) env GOFLAGS) -trimpath)
export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help build install run test check fmt vet lint staticcheck tidy tools race schedules cover fuzz laws bench sim kill load soak long peers tour-index judges golden dist clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/ronbox
	$(GO) build -buildvcs=auto -ldflags '$(LDFLAGS)' -o bin/ronbox ./cmd/ronbox

bin/ronbox:
	$(MAKE) build

install: | bin/ronbox ## install bin/ronbox and its shell completions below PREFIX (/usr/local); DESTDIR is put before it
	install -D -m 755 bin/ronbox $(DESTDIR)$(PREFIX)/bin/ronbox
	@set -e; share=$(DESTDIR)$(PREFIX)/share; put() { mkdir -p "$$(dirname "$$2")"; bin/ronbox completion $$1 >"$$2"; chmod 644 "$$2"; echo "$$2"; }; \
	put bash $$share/bash-completion/completions/ronbox; put zsh $$share/zsh/site-functions/_ronbox; put fish $$share/fish/vendor_completions.d/ronbox.fish

# Each architecture at its baseline. The version and the time are those of the commit, so sources that are not committed are refused.
# MAINTAINER="NAME <ADDRESS>" is who packs it.
dist: ## build and pack a release for amd64, arm64 and armv7 into dist; RONBOX_RELEASE_KEY, a file of `ronbox-dist keygen`, signs it
	rm -rf dist bin/dist
	set -e; export GOOS=linux GOAMD64=v1 GOARM64=v8.0 GOARM=7; for arch in amd64 arm64 arm; do \
	  GOARCH=$$arch $(GO) build -buildvcs=true -ldflags '$(LDFLAGS)' -o bin/dist/$$arch/ronbox ./cmd/ronbox; done
	cd $(PACKER) && $(GO) build -o $(CURDIR)/bin/ronbox-dist .
	bin/ronbox-dist $(if $(MAINTAINER),-maintainer '$(MAINTAINER)') bin/dist/*/ronbox

run: build ## build, make a dev node in ./data if there is none, serve it
	@exec bin/ronbox --data-dir $(DATA) init --dev --packs testdata/packs --start

# Most of what make test does beside the tests is to link them, which takes a third less time without the tables of a debugger.
test: ## run all tests, shuffled; without a tool that it needs a test is skipped, or fails where RONBOX_TOOLS is set
	$(GO) test -vet=off $(STRIP) -shuffle=on -timeout 30m ./...
	cd $(PACKER) && $(GO) test -vet=off $(STRIP) -shuffle=on ./...

check: fmt vet lint staticcheck tidy schedules long race ## what else CI runs: linters, the schedules of flow, many kills, the tour of the index, the race detector (which wants gcc)

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not gofmt'ed: $$out"; exit 1; }

vet:
	$(GO) vet ./...
	$(GO) vet -tags flowdebug ./appliance/flow
	$(GO) vet -tags flowsched ./appliance/flow
	GOARCH=arm GOARM=7 $(GO) vet ./...
	cd $(PACKER) && $(GO) vet ./...

# No lock is held over a wait, nothing that a command depends on can differ from run to run, and what queues is declared.
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

# What check wants beside Go, by the packages of Debian.
tools:
	@lacks=$$(for t in gcc:gcc strace:strace promtool:prometheus systemd-analyze:systemd; do command -v $${t%:*} >/dev/null || echo $${t#*:}; done); \
	[ -z "$$lacks" ] || { echo "missing: apt-get install" $$lacks; [ -z "$$RONBOX_TOOLS" ]; }

# What takes long in processes of its own: test kills a few nodes, this 50 and more of each kind, and it takes the tour of the index.
# It flips more bits of a registry, and draws more ranges, and more seeds of the wallet.
long:
	$(GO) test -vet=off -count=1 -timeout 30m ./cmd/ronbox -run '^TestKill9|^TestTourOfTheIndex$$|^TestAnyFlippedBitIsFound$$' -args -kills 50 -tour
	$(GO) test -vet=off -count=1 -timeout 30m ./httpapi/edge -run '^TestRangesAreThoseOfServeContent$$' -args -ranges 100000
	WALLET_SIM_SEEDS=200 WALLET_HISTORIES=500 $(GO) test -vet=off -count=1 -timeout 30m ./engines/wallet -run '^TestSimulation$$|^TestLinearizable$$'

# The race detector and the lock ranks of flow.Mutex, over the packages that share anything, and verbs beside a node. Draws and rounds
# are fewer (-short), and what repeats the work of one goroutine is left to test.
race: tools
	CGO_ENABLED=1 $(GO) test -race -tags flowdebug -short -vet=off $(STRIP) -shuffle=on -timeout 30m $$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Imports}}{{end}}' ./... | \
	  grep -E '[[ ](sync|ronbox/appliance/flow)[] ]|^ronbox/(cmd/ronbox|cmd/ronbox/server/load) ' | cut -d' ' -f1)

# Every order in which the primitives' steps can be taken, up to a bound.
schedules:
	$(GO) test -vet=off -tags flowsched -run Schedule ./appliance/flow

cover: ## the tests of what guards money reach COVER (90) % of its statements, those of the registry 85 %
	@set -o pipefail; reach() { least=$$1; shift; $(GO) test -cover "$$@" | tee /dev/stderr | \
	  awk -v least=$$least '/coverage:/ {sub(/.*coverage: /, ""); if ($$1+0 < least) low=1} END {exit low}'; }; \
	reach $(COVER) ./engines/ledger ./engines/ledger/idem ./engines/ledger/record ./engines/wallet && \
	reach 85 ./engines/registry ./engines/registry/checkpoint ./engines/registry/logtree ./engines/registry/record

# Some hundred runs (300x) go without the coverage that guides longer ones: everything would be compiled again for it, which takes minutes.
fuzz: ## fuzz every target for FUZZTIME (10s)
	@set -e; cache=$$($(GO) env GOCACHE)/fuzz; bin=$$(mktemp); trap 'rm -f "$$bin"' EXIT; \
	grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r d; do \
	  $(GO) test -c -vet=off $(if $(filter %x,$(FUZZTIME)),,-fuzz .) -o "$$bin" $$d; \
	  grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' $$d/*_test.go | sed 's/func //' | while read -r f; do \
	    echo "== $$d $$f"; (cd $$d && "$$bin" -test.run '^$$' -test.fuzz "^$$f$$" -test.fuzztime $(FUZZTIME) -test.fuzzcachedir "$$cache/$$d"); done; done

laws: ## hold every law of wallet and ledger against CHECKS (10000) drawn cases
	@set -e; grep -rl --include='*_test.go' 'rapid.Check(' engines/wallet engines/ledger | xargs -n1 dirname | sort -u | while read -r d; do \
	  tests=$$(grep -l 'rapid.Check(' $$d/*_test.go | xargs grep -hoE '^func Test[A-Za-z0-9_]+' | sed 's/func //' | paste -sd'|'); \
	  echo "== $$d $$tests"; $(GO) test ./$$d -run "^($$tests)$$" -count=1 -timeout 6h -rapid.checks $(CHECKS); done

bench: ## run the benchmarks matching BENCH (.)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

sim: ## run SEEDS (10000) seeds of SIMOPS (1000) operations of the wallet over a bad wire; a failing seed is printed
	WALLET_SIM_SEEDS=$(SEEDS) WALLET_SIM_OPS=$(SIMOPS) $(GO) test ./engines/wallet -run Simulation -count=1 -timeout 6h -v

kill: ## kill a node KILLS (1000) times while it commits versions and payments; SEED repeats what is drawn
	$(GO) test ./cmd/ronbox -run 'Kill9' -count=1 -timeout 2h -v -args -kills $(KILLS) $(if $(SEED),-seed $(SEED))

load: ## pay at saturation for SECONDS (300), one request in a hundred twice, and hold receipts, balances and records against it; SEED repeats one
	LOAD_SECONDS=$(SECONDS) LOAD_SEED=$(SEED) $(GO) test ./cmd/ronbox/server/load -run '^TestLoadWithDuplicates$$' -count=1 -timeout 6h -v

soak: ## a mixed load with restarts for SECONDS (300; a day is 86400): memory, goroutines and open files must not grow; SEED repeats one
	SOAK_SECONDS=$(SECONDS) SOAK_SEED=$(SEED) $(GO) test ./cmd/ronbox/server/load -run '^TestSoak$$' -count=1 -timeout 48h -v

peers: ## measure each service beside what else could be used, on this machine: PostgreSQL, nginx, Caddy (Debian's packages)
	@set -e; for f in testdata/bench/{wallet,edge}.sh; do $$f; done

tour-index: build ## four nodes of the index: the peers of one hang, go on, and die
	testdata/tour/index.sh

judges: ## have programs of others read what ronbox writes, and write what it reads; wants npm, and Chromium for maps
	@set -e; for f in testdata/judges/*/run.sh; do echo "== $$f"; $$f; done

golden: ## rewrite the generated tables and pictures, then show what changed
	$(GO) test ./cmd/ronbox/server ./httpapi -run Golden -update
	git --no-pager diff --stat -- testdata/golden README.md

clean: ## remove what was built; the data folder stays
	rm -rf bin dist cover.out
