package main

import (
	"runtime"
	"strconv"
	"time"
)

// plan is what one command runs: stages, one after the other.
type plan []stage

// stage is lanes that run at the same time.
type stage []lane

// lane is parts that run one after the other.
type lane []part

// part is one call of go test, or of what another field names.
type part struct {
	name string
	why  string // what it is, and why it stands where it does

	packages []string // of this project, in this order
	rest     kind     // then those of this kind that no other part names
	more     bool     // adds to what another part runs of its packages: other tests, or the same ones in another way

	race    bool
	shuffle bool
	timeout time.Duration // longest run of one package; 0: none
	count   int           // how often each test runs; 0: once
	jobs    int           // packages at a time; 0: one on each core
	flags   []string      // more flags of go test
	args    []string      // flags of the tests' programs
	env     []string
	low     bool // at the lowest priority

	fuzzFor time.Duration // fuzz tests instead: how long each runs
	fuzz    []string      // which, with their packages; all of the library, if none

	command []string // another program
}

// kind says what a package's tests need.
type kind string

const (
	units   kind = "unit"    // nothing
	servers kind = "servers" // real servers, however far down the tests import them
)

const (
	sim     = "test/sim"
	history = "test/history"
	chaos   = "test/chaos"
	allocfn = "allocfn"
	groups  = "test/consumer"

	// randomDays is how many group-days of the simulation run with a random seed, besides those with fixed seeds.
	randomDays = 2

	// norace are tests that run without the race detector; the soak has them with it. The detector itself crashes in
	// TestFlappingMember and in the tests of ownership, as it does in the simulation. The others take it minutes: tests of
	// thousands of partitions, members or lines, of hours, of what one goroutine decodes, and of one case more of what runs with
	// it.
	norace = `^TestFlappingMember$|^TestTenThousandPartitions$|^TestSickMember$/./^z$|^TestLinesOfHandlers$|^TestCalmCostsNoList$|` +
		`^TestCharactersOfPaths$|^TestHostileServer$|^TestDataWatchesAtRandom$|^TestStormOfJoins$|^TestThousandClaimsCostFewRequests$|` +
		`^TestAnswersHaveBoundedMemory$|` +
		`^TestRandomSchedules$|^TestLiveness$|^TestEachRequestRefused$|^TestLeavingWhileRefused$|` + // ownership
		`^TestManyMembers$|^TestTwoStaticProcesses$|^TestRestoredFromABackup$|` +
		`^TestRandomLogs$|^TestNothingComesTwice$|^TestMemoryOfCompressed$|^TestScratchIsDropped$|^TestBombs$` // consumer/internal/fetch

	// raced are tests of whole groups that run with the race detector, too: of calls, callbacks and handlers that run at the same
	// time. It makes them eight times as slow; the soak has all with it.
	raced = `^Test(Eager|Seek|Session|Metrics|Pause|Stuck|Callbacks|Observer|Setup|Cleanup|HandOver|ManyPartitions|RandomSeeks|Trust|Zombie|Run|CloseIn[As]|CloseW)`

	// soaked are left to the soak: tests of test/bench that take figures, and programs of others, which require hundreds of
	// modules. TestHandover's joins, leaves, crashes and cuts are chaos's Leaves, Killed and BlackHole, too.
	soaked = `^Test(LoadOnZooKeeper|Recipes|Handover|Moves|Restarts|Storm|Sessions|CostOfMetrics|Modules)$`

	// moves are tests of how many partitions move, which on other processors are left to the soak: that a mapping is the same
	// there shows in the vectors.
	moves = `^Test(BalancedMovement|StatelessBound|StatelessMovement|ReplacingMembers|BalancedMovesLittle|BalancedMovesLittleByWeights|RollingDeploy)$`
)

// longest are the packages that run first where they run, so that nothing waits for them in the end.
var (
	longestUnits   = []string{"test/stack", "ownership", "test/dropin/scenarios", "consumer/internal/fetch", "session", "allocator"}
	longestServers = []string{"test/consumer/realkafka", "test/attacks", "test/conformance", "test/interop/recipes"}

	// tools are the packages that start programs, or read what is in files: the race detector would watch the tests alone.
	tools = []string{
		"test/quickstart", ".", "cmd/demo-consumer", "cmd/kiel", "test/dropin/programs", "test/cmd/release", "test/cmd/mutants", "test/cmd/runtests",
		"test/internal/fuzz",
	}

	// processes are the packages whose tests watch processes at work.
	processes = []string{"test/page", "test/integration", "test/interop", "test/incident", "test/alerts", "test/compose"}

	// full are the packages of which the soak runs more: see their flag -full.
	full = []string{
		"test/alerts", "test/compose", "test/consumer/differential", "test/consumer/realkafka", "test/dropin/functional",
		"test/dropin/modules", "test/dropin/programs/realkafka", "test/dropin/scenarios/realkafka", "test/incident", "test/integration", "test/cmd/release",
	}
)

// testPlan is make test.
func testPlan(timeout time.Duration) plan {
	return plan{
		{
			append(lane{
				unit(timeout, true),
				{name: "raced", packages: []string{groups}, more: true, race: true, timeout: timeout, flags: []string{"-run=" + raced}, why: "what runs at the same time in a group"},
			}, otherProcessors(timeout)...),
			{
				{
					name: "sim", packages: []string{sim}, shuffle: true, timeout: timeout, args: []string{"-random=" + strconv.Itoa(randomDays)},
					why: "groups in virtual time; the race detector crashes most often in bubbles that live for days, and makes them five times as slow",
				},
				{
					name: "pure", packages: append([]string{groups, history, allocfn, "test/stack/idle"}, tools...), shuffle: true, timeout: timeout,
					why: "what else runs without the race detector",
				},
				{
					name: "history-race", packages: []string{history}, more: true, race: true, timeout: timeout,
					flags: []string{"-run=^TestHistories$"}, args: []string{"-runs=33"},
					why: "the recipes' clients under faults, each recipe three times",
				},
				{name: "concurrent", packages: []string{allocfn}, more: true, race: true, timeout: timeout, flags: []string{"-run=Concurrent"}, why: "what runs at the same time"},
				{name: "norace", packages: []string{"test/stack", "ownership", "party", "session", "allocator", "consumer/inspect", "consumer/internal/fetch"}, more: true, timeout: timeout, flags: []string{"-run=" + norace}, why: "what the unit part left out"},
			},
		},
		{
			{{
				name: "chaos", packages: []string{chaos}, timeout: timeout, args: []string{"-minutes=1.5"},
				why: "has the machine for itself, since it judges times of processes; not shuffled: the longest test is in the first file, beside which the others run; the soak has it for twice as long, with each fault at least once",
			}},
			{{name: "lint", command: []string{"make", "lint"}, low: true, why: "takes what is left by chaos, which mostly waits; its linters have all checks of go vet"}},
		},
		{
			{{
				name: "processes", packages: processes, shuffle: true, timeout: timeout, jobs: 1, flags: []string{"-skip=" + soaked},
				why: "what starts processes that work; the race detector would watch the tests alone",
			}},
			{{
				name: "servers", packages: longestServers, rest: servers, shuffle: true, timeout: timeout, jobs: 2, flags: []string{"-skip=" + soaked},
				why: "what else starts real servers, but for what takes figures, which make bench does on a quiet machine; two at a time beside the processes, since they wait for servers half of the time; the soak has it with the race detector, and the unit part the same code on servers in memory",
			}},
			{{name: "vuln", command: []string{"make", "vuln"}, low: true, why: "known vulnerabilities; an answer of another day must not stop what else runs"}},
		},
	}
}

// unit are the tests without servers.
func unit(timeout time.Duration, race bool) part {
	p := part{name: "unit", packages: longestUnits, rest: units, shuffle: true, timeout: timeout, race: race, why: "what needs no servers"}
	if race {
		p.flags = []string{"-skip=" + norace}
	}
	return p
}

// otherProcessors are tests that must give the same results on all processors, since members must agree: Linux for amd64 runs 386
// by itself and arm64 by emulation.
func otherProcessors(timeout time.Duration) lane {
	if !emulates() {
		return nil
	}
	return lane{
		{
			name: "386", packages: []string{allocfn, ".", "internal/zones", "allocator"}, more: true, timeout: timeout, env: []string{"GOARCH=386"},
			flags: []string{"-skip=" + moves}, why: "members must judge alike what they read",
		},
		{
			name: "arm64", packages: []string{allocfn}, more: true, timeout: timeout, env: []string{"GOARCH=arm64"},
			flags: []string{"-exec=qemu-aarch64-static", "-run=Vectors|Kiels|Pythons"},
			why:   "allocation functions give the same results everywhere",
		},
	}
}

func emulates() bool { return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" }

// soakPlan is make soak.
func soakPlan(count, first int) plan {
	p := plan{
		{{{
			name: "servers", rest: servers, race: true, shuffle: true, count: count, jobs: 1,
			why: "the tests on real servers, many times",
		}}},
		{{
			{name: "full", packages: full, more: true, race: true, jobs: 1, args: []string{"-full"}, why: "their long cases, once"},
			{
				name: "upgrade", packages: []string{chaos}, more: true, race: true, flags: []string{"-run=^Test(RollingUpgrade|RestartsOfFive)$"}, args: []string{"-full"},
				why: "the way back to an earlier version, and frozen members on both; twenty rounds of restarts; the rest of chaos has no long cases",
			},
		}},
		{{
			{name: "groups", packages: []string{groups}, race: true, shuffle: true, why: "all tests of whole groups with the race detector"},
			{name: "unit", packages: longestUnits, rest: units, race: true, shuffle: true, why: "all tests without servers with it"},
		}},
		{{days(float64(20*count), 1000*first)}},
		{{{
			name: "history", packages: []string{history}, why: "histories of the recipes under faults",
			args: []string{"-runs=" + strconv.Itoa(200*count), "-real=" + strconv.Itoa(10*count), "-first=" + strconv.Itoa(first)},
		}}},
		{{{name: "fuzz", fuzzFor: time.Minute, why: "inputs that nobody thought of; those known already are in the unit part"}}},
		{{{name: "mutants", command: []string{"go", "run", "./test/cmd/mutants"}, why: "for each rule a defect that its test must find"}}},
	}
	if emulates() {
		p = append(p, stage{{{
			name: "386", packages: []string{allocfn}, more: true, flags: []string{"-run=" + moves}, env: []string{"GOARCH=386"},
			why: "how many partitions move there",
		}}})
	}
	return p
}

// days are group-days of the simulation.
func days(count float64, first int) part {
	return part{
		name: "sim", packages: []string{sim}, why: "groups in virtual time under faults", flags: []string{"-run=^Test(Days|Groups)$"},
		args: []string{"-days=" + number(count), "-first=" + strconv.Itoa(first)},
	}
}

// chaosPlan is make chaos.
func chaosPlan(minutes float64, seed uint64) plan {
	return plan{{{{
		name: "chaos", packages: []string{chaos}, race: true, flags: []string{"-run=^TestMix$"}, why: "random faults on real processes and servers",
		args: []string{"-minutes=" + number(minutes), "-seed=" + strconv.FormatUint(seed, 10)},
	}}}}
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
