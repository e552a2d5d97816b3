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
MUTANTS  ?= 60
KILLED   ?= 85
SECONDS  ?= 300
SEED     ?=
LDFLAGS  := -s -w

.DEFAULT_GOAL := help
.PHONY: help build run test check fmt vet lint staticcheck tidy lockdebug schedules cover mutants fuzz laws bench sim kill load soak peers golden clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/ronbox
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=auto -ldflags '$(LDFLAGS)' -o bin/ronbox ./cmd/ronbox

run: build ## build, make a dev node in ./data if there is none, serve it
	@exec bin/ronbox --data-dir $(DATA) init --dev --start

test: ## run all tests with the race detector, shuffled
	$(GO) test -race -shuffle=on -timeout 15m ./...

check: fmt vet lint staticcheck tidy lockdebug schedules test ## what CI runs, beside a little of fuzz

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not gofmt'ed: $$out"; exit 1; }

vet:
	$(GO) vet ./...

# No lock is held over a wait, and nothing that a command depends on can differ from run to run.
lint:
	$(GO) build -o bin/ronlint ./cmd/ronlint
	$(GO) vet -vettool=$(CURDIR)/bin/ronlint ./...

staticcheck:
	$(GO) tool staticcheck ./...

tidy:
	$(GO) mod tidy -diff
	$(GO) mod verify

# The lock ranks of flow.Mutex are checked at run time in this build.
lockdebug:
	$(GO) vet -tags flowdebug ./appliance/flow
	$(GO) test -tags flowdebug ./appliance/flow ./store ./engines/...

# Every order in which the primitives' steps can be taken, up to a bound.
schedules:
	$(GO) vet -tags flowsched ./appliance/flow
	$(GO) test -tags flowsched -run Schedule ./appliance/flow

cover: ## the tests of what guards money reach COVER (90) % of its statements
	@set -o pipefail; $(GO) test -cover ./engines/ledger ./engines/ledger/idem ./engines/ledger/record ./engines/wallet | tee /dev/stderr | \
	  awk -v least=$(COVER) '/coverage:/ {sub(/.*coverage: /, ""); if ($$1+0 < least) low=1} END {exit low}'

mutants: ## change the code that guards money in MUTANTS (60) places a part: its tests must notice KILLED (85) %; SEED repeats what is drawn
	@$(GO) build -o bin/ronmutate ./cmd/ronmutate; low=0; \
	part() { bin/ronmutate -p 2 -n $(MUTANTS) -least $(KILLED) $(if $(SEED),-seed $(SEED)) "$$@" || low=1; }; \
	part -first 'Conformance|Rules|Shared|Determinism|BookLaws' ./engines/ledger:rules.go,post.go,accounts.go,apply.go,groupops.go,run.go; \
	part ./engines/ledger/idem; \
	part ./engines/ledger/record:decode.go,cut.go,check.go; \
	part -first 'Slots|Early|Turn|Overtaken|Pending|Nonce|AnyOrder|TestOrder' ./engines/wallet:nonces.go,early.go,turn.go; \
	part -first 'Idem|Receipt|Replay|Fingerprint|SameKey|Cache' ./engines/wallet:receipts.go,fingerprint.go; \
	exit $$low

fuzz: ## fuzz every target for FUZZTIME (10s)
	@set -e; cache=$$($(GO) env GOCACHE)/fuzz; bin=$$(mktemp); trap 'rm -f "$$bin"' EXIT; \
	grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r d; do \
	  $(GO) test -c -fuzz . -o "$$bin" $$d; \
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
	LOAD_SECONDS=$(SECONDS) LOAD_SEED=$(SEED) $(GO) test ./appliance -run '^TestLoadWithDuplicates$$' -count=1 -timeout 6h -v

soak: ## a mixed load with restarts for SECONDS (300; a day is 86400): memory, goroutines and open files must not grow; SEED repeats one
	SOAK_SECONDS=$(SECONDS) SOAK_SEED=$(SEED) $(GO) test ./appliance -run '^TestSoak$$' -count=1 -timeout 48h -v

peers: ## measure the wallet beside PostgreSQL (Debian's package) on this machine
	testdata/bench/wallet.sh

golden: ## rewrite the generated tables and pictures, then show what changed
	$(GO) test ./appliance ./httpapi -run Golden -update
	git --no-pager diff --stat -- testdata/golden README.md

clean: ## remove what was built; the data folder stays
	rm -rf bin cover.out
