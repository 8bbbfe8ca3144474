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

# A program, so that signals reach it: go run does not pass them all on.
RUNTESTS := go build -o out/runtests ./test/cmd/runtests && exec out/runtests

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## a group at work, on embedded servers, in under a minute; make demo KEEP=1 keeps one to watch as a page
	@echo 'building the demo; the first time that takes a minute …' >&2
	@go run ./cmd/demo-consumer $(if $(KEEP),--keep)

.PHONY: test
test: setup ## all tests, on real servers, some 25 minutes on 2 cores; out/runtests --help tells more
	@$(RUNTESTS) test --timeout=$(TIMEOUT)

.PHONY: test-unit
test-unit: ## the tests that need no servers, in under 2 minutes
	@$(RUNTESTS) unit --timeout=$(TIMEOUT)

.PHONY: soak
soak: setup ## the tests on real servers, COUNT=10 times in random order, 15 minutes each; their long cases once; then 20 × COUNT days of the simulation and 200 × COUNT histories, each fuzz test for a minute, and the mutants
	@go run ./test/cmd/setup -old
	@$(RUNTESTS) soak --count=$(COUNT) --first=$(FIRST)

.PHONY: mutants
mutants: setup ## break one rule after the other: its test must fail as test/mutants says; MUTANTS='^session-' takes some
	@go run ./test/cmd/mutants --run='$(MUTANTS)'

.PHONY: chaos
chaos: setup ## random faults on real processes and servers, for MINUTES=10; SEED=… takes the same steps
	@$(RUNTESTS) chaos --minutes=$(MINUTES) --seed=$(SEED)

.PHONY: sim
sim: ## groups in virtual time under faults, for DAYS=100 group-days, one after the other from seed FIRST=1
	@$(RUNTESTS) sim --days=$(DAYS) --first=$(FIRST)

.PHONY: setup
setup: ## get what the tests need: servers, Prometheus, Python libraries, a C compiler
	@go run ./test/cmd/setup

.PHONY: vet
vet: ## go vet in all modules
	@go vet $(ALL)

.PHONY: lint
lint: ## linters, import rules, formatting, tidy go.mod files, and the API beside the last tag's; the first time it builds them, 90 s
	@for module in $(MODULES); do (cd $$module && go mod tidy -diff) || status=1; (cd $$module && $(GOLANGCI_LINT) run --allow-serial-runners ./...) || status=1; done; \
	go run ./test/cmd/release api || status=1; exit $${status:-0}

.PHONY: vuln
vuln: ## known vulnerabilities in what is called, by govulncheck; without its database it says that nothing was checked
	@go run ./test/cmd/vuln $(MODULES)

.PHONY: fix
fix: ## modernize and format the code
	@for module in $(MODULES); do (cd $$module && go fix ./... && $(GOLANGCI_LINT) fmt ./...); done

.PHONY: bench
bench: setup ## Go benchmarks, then hand-overs and other figures on real servers, ROUNDS=20 times
	@go test -run='^$$' -bench=. -benchmem ./... ./test/bench/functions
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

.PHONY: figures-moves
figures-moves: ROUNDS = 10
figures-moves: setup ## measure hand-overs of groups of consumer, sarama and franz-go, a quarter of an hour on a quiet machine, and renew docs/hand-over.md
	@go test -v -timeout=0 -count=1 -run='^TestMoves$$' ./test/bench -rounds=$(ROUNDS) -keep | grep -v '^=== RUN'
	@go run ./test/cmd/plots

.PHONY: fuzz
fuzz: ## each fuzz test for FUZZTIME=5m on one core, two at a time
	@$(RUNTESTS) fuzz --time=$(FUZZTIME)

.PHONY: cover
cover: ## how much of each package its own tests run
	@mkdir -p out && go test -coverprofile=out/cover.txt ./... | grep -v 'no test files' && go tool cover -func=out/cover.txt | tail -1

.PHONY: clean-cache
clean-cache: ## remove what setup got
	@go run ./test/cmd/setup -clean
