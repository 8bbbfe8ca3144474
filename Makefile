# `make` prints the targets: the lines below with a `##`.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
MODULES := . cmd test
ALL := ./... ./cmd/... ./test/...

# Longest run of one package's tests.
TIMEOUT ?= 15m
FUZZTIME ?= 5m
COUNT ?= 10
ROUNDS ?= 20
DAYS ?= 100
FIRST ?= 1
MINUTES ?= 10
SEED ?= 0

# Packages whose tests start real servers, however far down they import them.
SERVER_PACKAGES = $(shell go list -e -test -f '{{.ImportPath}} {{join .Deps " "}}' ./test/... \
	| awk '$$1 ~ /\.test$$/ && /kiel\/test\/servers( |$$)/ { sub(/\.test$$/, "", $$1); print $$1 }')
# Members must judge alike what they read, and allocation functions give the same results everywhere: other processors run them on
# Linux for amd64, which runs 386 by itself and arm64 by emulation.
ifeq ($(shell go env GOHOSTOS GOHOSTARCH | tr '\n' ' '),linux amd64 )
OTHER_PROCESSORS = yes
endif
SIM = github.com/kielgo/kiel/test/sim
HISTORY = github.com/kielgo/kiel/test/history
CHAOS = github.com/kielgo/kiel/test/chaos
# Packages of which make soak runs more than make test: see their flag -full.
FULL = github.com/kielgo/kiel/test/consumer/differential github.com/kielgo/kiel/test/consumer/realkafka
# How many group-days of the simulation make test takes, from a random seed, besides those with fixed seeds.
RANDOM_DAYS = 5
# The race detector crashes in most runs of this test of test/stack, as it does in the simulation.
STACK = github.com/kielgo/kiel/test/stack
NORACE = '^TestFlappingMember$$'
# Tests on servers that are left to make soak: those of test/bench that take figures, and outages of which test/chaos has others.
SOAKED = '^Test(ClaimThousand|Recipes|PartitionThousand|BrokersAreKilledInTurn|ZooKeeperIsAway)$$'
PURE = github.com/kielgo/kiel/allocfn
JUDGED = ./internal/zones ./allocator
ARM64_TESTS = 'Vectors|Kiels|Pythons'
LONGEST = github.com/kielgo/kiel/test/stack github.com/kielgo/kiel/ownership github.com/kielgo/kiel/test/consumer
UNIT_PACKAGES = $(LONGEST) $(filter-out $(LONGEST) $(SERVER_PACKAGES),$(shell go list -e $(ALL)))

# Fuzz tests of what servers and other members send, and of what must hold for any group, which make test runs for 30 s each.
FUZZ_TESTS = ./session.FuzzConnectReply ./session.FuzzFrames ./sharedset.FuzzDecode ./internal/zones.FuzzDecode \
	./allocator.FuzzRecord ./allocfn.FuzzTopicBalanced

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## a group at work, on embedded servers, in under a minute
	@go run ./cmd/demo-consumer

# The packages without servers run two at a time, the longest first. Then the simulation runs beside what else needs no race detector. That
# crashes most often in bubbles that live for days, and makes them five times as slow: the simulation and the histories go
# without it. So do the allocation functions, but for tests of what runs at the same time. chaos has the machine for itself,
# since it judges times; it takes its tests in the order of its files: the longest, of three minutes, is in the first, beside
# which the others run. The other packages with servers run two at a time; the figures that they report are for make bench to
# take on a quiet machine, and those that do nothing else are left to make soak. They wait for their servers a quarter of the
# time. The fuzz tests use that, at the lowest priority, so that they take nothing from tests that judge times. Packages in which
# the race detector crashed (see test/cmd/results) run again, twice at most.
BESIDE = go test -json -shuffle=on -timeout=$(TIMEOUT) $(HISTORY) $(PURE) || status=1; \
	go test -json -race -run=Concurrent $(PURE) || status=1; \
	go test -json -run=$(NORACE) $(STACK) || status=1; \
	$(if $(OTHER_PROCESSORS),GOARCH=386 go test -json $(PURE) $(JUDGED) || status=1;) \
	$(if $(OTHER_PROCESSORS),GOARCH=arm64 go test -json -exec=qemu-aarch64-static -run=$(ARM64_TESTS) $(PURE) || status=1;)

.PHONY: test
test: setup vet ## all tests, on real servers, some 20 minutes on 2 cores
	@mkdir -p out; set +e; \
	{ go test -json -race -shuffle=on -timeout=$(TIMEOUT) -skip=$(NORACE) $(filter-out $(SIM) $(HISTORY) $(PURE),$(UNIT_PACKAGES)) || status=1; \
	  { $(BESIDE) exit $${status:-0}; } >out/beside.json & \
	  go test -json -shuffle=on -timeout=$(TIMEOUT) $(SIM) -random=$(RANDOM_DAYS) || status=1; \
	  wait $$! || status=1; cat out/beside.json; \
	  go test -json -race -timeout=$(TIMEOUT) $(CHAOS) || status=1; \
	  nice -n 19 go run ./test/cmd/fuzz -time=30s $(FUZZ_TESTS) >out/fuzz.json & \
	  go test -json -race -shuffle=on -timeout=$(TIMEOUT) -p=2 -skip=$(SOAKED) $(filter-out $(HISTORY) $(CHAOS),$(SERVER_PACKAGES)) || status=1; \
	  wait $$! || status=1; cat out/fuzz.json; \
	  exit $${status:-0}; } | go run ./test/cmd/results -again out/again.txt; \
	ended=("$${PIPESTATUS[@]}"); \
	for try in 2 3; do \
	  [ $${ended[1]} = 0 ] && [ -s out/again.txt ] || break; \
	  go test -json -race -timeout=$(TIMEOUT) -p=1 $$(cat out/again.txt) | go run ./test/cmd/results -again out/again.txt; \
	  ended=("$${PIPESTATUS[@]}"); \
	done; \
	exit $$((ended[0] + ended[1]))

.PHONY: test-unit
test-unit: ## the tests that need no servers, in under 2 minutes
	@go test -json -shuffle=on -timeout=$(TIMEOUT) $(UNIT_PACKAGES) | go run ./test/cmd/results

.PHONY: soak
soak: setup ## the tests on real servers, COUNT=10 times in random order, 15 minutes each; their long cases once; then 20 × COUNT days of the simulation and 200 × COUNT histories
	@{ go test -json -race -shuffle=on -count=$(COUNT) -timeout=0 -p=1 $(filter-out $(HISTORY),$(SERVER_PACKAGES)) || status=1; \
	  go test -json -race -count=1 -timeout=0 -p=1 $(FULL) -full || status=1; \
	  go test -json -run='^Test(Days|Groups)$$' -timeout=0 $(SIM) -days=$$((20 * $(COUNT))) -first=$$((1000 * $(FIRST))) || status=1; \
	  go test -json -timeout=0 $(HISTORY) -runs=$$((200 * $(COUNT))) -real=$$((10 * $(COUNT))) -first=$(FIRST) || status=1; \
	  exit $${status:-0}; } | go run ./test/cmd/results

.PHONY: chaos
chaos: setup ## random faults on real processes and servers, for MINUTES=10; SEED=… takes the same steps
	@go test -json -race -run='^TestMix$$' -timeout=0 -count=1 ./test/chaos -minutes=$(MINUTES) -seed=$(SEED) | go run ./test/cmd/results

.PHONY: sim
sim: ## groups in virtual time under faults, for DAYS=100 group-days, one after the other from seed FIRST=1
	@go test -json -run='^Test(Days|Groups)$$' -timeout=0 -count=1 ./test/sim -days=$(DAYS) -first=$(FIRST) | go run ./test/cmd/results

.PHONY: setup
setup: ## get what the tests need: servers, Python libraries, a C compiler
	@go run ./test/cmd/setup

.PHONY: vet
vet: ## go vet in all modules
	@go vet $(ALL)

.PHONY: lint
lint: ## linters, import rules and formatting; the first time it builds them, 90 s
	@for module in $(MODULES); do (cd $$module && $(GOLANGCI_LINT) run --allow-serial-runners ./...) || status=1; done; exit $${status:-0}

.PHONY: fix
fix: ## modernize and format the code
	@for module in $(MODULES); do (cd $$module && go fix ./... && $(GOLANGCI_LINT) fmt ./...); done

.PHONY: bench
bench: setup ## Go benchmarks, then hand-overs and claims on real servers, ROUNDS=20 times
	@go test -run='^$$' -bench=. -benchmem $(UNIT_PACKAGES)
	@go test -v -timeout=0 ./test/bench -rounds=$(ROUNDS) | grep -v '^=== RUN'

.PHONY: figures
figures: ## measure the allocation functions, 20 minutes on a quiet machine, and renew docs/choosing-a-function.md
	@go test -v -timeout=0 -count=1 -run='^TestAllocation' ./test/bench -rounds=$(ROUNDS) -keep | grep -v '^=== RUN'
	@go run ./test/cmd/plots

.PHONY: figures-data
figures-data: ROUNDS = 5
figures-data: setup ## measure what a message costs consumer, sarama and franz-go, an hour on a quiet machine, and renew docs/data-path.md
	@go test -v -timeout=0 -count=1 -run='^TestDataPath$$' ./test/bench -rounds=$(ROUNDS) -keep | grep -v '^=== RUN'
	@go run ./test/cmd/plots

.PHONY: fuzz
fuzz: ## each fuzz test for FUZZTIME=5m on one core, two at a time
	@go run ./test/cmd/fuzz -time=$(FUZZTIME) | go run ./test/cmd/results

.PHONY: cover
cover: ## how much of each package its own tests run
	@mkdir -p out && go test -coverprofile=out/cover.txt ./... | grep -v 'no test files' && go tool cover -func=out/cover.txt | tail -1

.PHONY: ci
ci: lint test ## what must pass before a change goes in

.PHONY: clean-cache
clean-cache: ## remove what setup got
	@go run ./test/cmd/setup -clean
