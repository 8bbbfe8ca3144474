package history_test

import (
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

// Recipes that do what they must not are found out: holders that go on when their hold has ended, a queue that forgets what it
// got, a counter that repeats a change of which it does not know whether it was made. (What is wrong with each is in its subject,
// where it asks for sabotaged.)
func TestSabotage(t *testing.T) {
	for _, what := range recipes() {
		t.Run(what.name, func(t *testing.T) { foundOut(t, what, harm{sabotaged: true, often: expiry}) })
	}
}

// foundOut fails the test if no history is refused.
func foundOut(t *testing.T, what recipe, h harm) {
	t.Helper()
	const tries = 400
	for seed := *flagFirst; seed < *flagFirst+tries; seed++ {
		s, _ := inMemory(t, seed, what, h)
		if v := s.judge(); v.result == porcupine.Illegal {
			t.Logf("seed %d: found out", seed)
			return
		}
	}
	t.Errorf("%d runs are as they should be", tries)
}

// at makes an operation.
func at(call, ret int64, what any) porcupine.Operation {
	return porcupine.Operation{Input: what, Call: call, Return: ret}
}

// Histories that could have been, and what must not be in them.
func TestModels(t *testing.T) {
	tests := map[string]struct {
		model   porcupine.Model
		resolve func([]porcupine.Operation) []porcupine.Operation
		narrow  func([]porcupine.Operation) []porcupine.Operation
		good    []porcupine.Operation
		bad     map[string][]porcupine.Operation // one by one added to the good ones
	}{
		"lock": {
			model: holdsModel(1, true),
			good: []porcupine.Operation{
				at(1, 4, acquire{1, 100, false}), at(5, 6, use{1}), at(2, 12, acquire{2, 101, false}), at(6, 9, finish{1}), at(13, 14, use{2}),
			},
			bad: map[string][]porcupine.Operation{
				"valid while another holds it":  {at(15, 16, use{1})},
				"valid before it was acquired":  {at(1, 1, use{2})},
				"acquired while another has it": {at(20, 21, acquire{3, 102, false})},
				"token falls":                   {at(20, 21, finish{2}), at(22, 23, acquire{3, 101, false})},
				"held by two":                   {at(10, 11, acquire{3, 99, false})},
				"ends twice":                    {at(20, 21, finish{1})},
			},
		},
		"read/write lock": {
			model: holdsModel(room, false),
			good: []porcupine.Operation{
				at(1, 2, acquire{1, 100, true}), at(3, 4, acquire{2, 99, true}), at(5, 6, use{1}), at(5, 6, use{2}),
				at(7, 8, finish{1}), at(7, 8, finish{2}), at(6, 10, acquire{3, 101, false}), at(11, 12, use{3}),
			},
			bad: map[string][]porcupine.Operation{
				"reader beside a writer":    {at(13, 14, acquire{4, 102, true})},
				"writer beside a reader":    {at(4, 5, acquire{4, 101, false}), at(6, 7, finish{4})},
				"reader with an old token":  {at(13, 14, finish{3}), at(15, 16, acquire{4, 101, true})},
				"reader valid at the wrong": {at(12, 13, use{1})},
			},
		},
		"semaphore": {
			model: holdsModel(2, true),
			good: []porcupine.Operation{
				at(1, 2, acquire{1, 100, true}), at(3, 4, acquire{2, 101, true}), at(5, 6, use{1}), at(7, 8, finish{1}),
				at(5, 9, acquire{3, 102, true}), at(10, 11, use{2}), at(10, 11, use{3}),
			},
			bad: map[string][]porcupine.Operation{
				"three leases": {at(12, 13, acquire{4, 103, true})},
				"three before": {at(5, 6, acquire{4, 101, true})},
				"token falls":  {at(12, 13, finish{2}), at(14, 15, acquire{4, 101, true})},
				"valid later":  {at(12, 13, use{1})},
			},
		},
		"queue": {
			model: queueModel(false), resolve: outcomes, narrow: narrowed,
			good: []porcupine.Operation{
				at(1, 2, put{1, 0, 0}), at(3, 4, put{2, 0, 1}), at(5, never, put{3, 0, unknown}), at(6, never, put{4, 0, unknown}),
				at(7, 8, get{1, 0, false}), at(9, 10, removal{2}), at(11, 12, get{3, 0, false}), at(20, 21, empty{}),
			},
			bad: map[string][]porcupine.Operation{
				"got twice":              {at(22, 23, get{1, 0, false})},
				"got what nobody put":    {at(22, 23, get{9, 0, false})},
				"out of order":           {at(13, 14, put{5, 0, 3}), at(15, 16, put{6, 0, 4}), at(17, 17, get{6, 0, false}), at(18, 19, get{5, 0, false})},
				"forgotten":              {at(13, 14, put{5, 0, 3})},
				"before it was put":      {at(13, 14, put{5, 0, 3}), at(10, 11, get{5, 0, false})},
				"number falls":           {at(13, 14, put{5, 0, 1}), at(15, 16, get{5, 0, false})},
				"empty, but it was not":  {at(3, 3, empty{})},
				"got twice, uncertainly": {at(22, 23, get{2, 0, false}), at(24, 25, get{2, 0, false})},
			},
		},
		"queue with priorities": {
			model: queueModel(true), resolve: outcomes, narrow: narrowed,
			good: []porcupine.Operation{
				at(1, 2, put{1, 1, 0}), at(3, 4, put{2, 2, 1}), at(5, 6, put{3, 0, 2}), at(7, 8, get{3, 1, false}),
				// While one gets 1, another gets 2, and has begun before 4 was put, which comes before it.
				at(9, 20, get{2, 1, false}), at(10, 11, put{4, 1, 3}), at(12, 13, get{1, 1, false}),
				at(21, 22, get{4, 1, false}), at(23, 24, empty{}),
				// A server that does not know 6 and 8 yet.
				at(25, 26, put{5, 1, 5}), at(27, 28, put{6, 0, 6}), at(29, 30, get{5, 1, true}),
				at(31, never, put{7, 1, unknown}), at(32, 33, put{8, 0, 7}), at(34, 35, get{7, 1, true}),
				at(36, 37, get{6, 1, true}), at(38, 39, get{8, 1, false}), at(40, 41, empty{}),
			},
			bad: map[string][]porcupine.Operation{
				"a better one was there": {
					at(42, 43, put{9, 1, 8}), at(44, 45, put{10, 0, 9}), at(46, 47, get{9, 1, false}), at(48, 49, get{10, 1, false}),
				},
				"forgotten": {at(15, 16, put{11, 2, 4})},
				"behind, but it knew": {
					at(42, 43, put{9, 1, 8}), at(44, 45, put{10, 2, 9}), at(46, 47, get{10, 1, true}), at(48, 49, get{9, 1, true}),
				},
				"behind, and out of order": {
					at(42, 43, put{9, 1, 8}), at(44, 45, put{10, 1, 9}), at(46, 47, get{10, 1, true}), at(48, 49, get{9, 1, true}),
				},
			},
		},
		"locking queue": {
			model: lockingModel(), resolve: outcomes,
			good: []porcupine.Operation{
				at(1, 2, put{1, 0, 0}), at(3, never, put{2, 0, unknown}), at(3, never, put{3, 0, unknown}),
				at(4, 5, take{1, 1, 100}), at(6, 7, holds{1, 1}), at(7, 9, ends{1, 1}), at(8, 10, take{1, 2, 101}), at(11, 12, consume{1, 2, false}),
				at(4, 5, take{2, 3, 100}), at(6, never, consume{2, 3, true}), at(6, 7, ends{2, 3}),
				at(20, 21, absent{1}), at(20, 21, absent{2}), at(20, 21, absent{3}),
			},
			bad: map[string][]porcupine.Operation{
				"valid while another holds it":       {at(11, 11, holds{1, 1})},
				"held after it was consumed":         {at(13, 14, take{1, 4, 102})},
				"consumed twice":                     {at(13, 14, consume{1, 2, false})},
				"consumed after another had it":      {at(11, 14, consume{1, 1, false})},
				"consumed before, and still held":    {at(6, 7, consume{1, 1, false})},
				"token falls":                        {at(8, 9, ends{2, 3}), at(9, 10, take{2, 4, 100})},
				"held, but nobody put it":            {at(13, 14, take{9, 4, 102})},
				"gone, but nobody consumed it":       {at(13, 14, put{4, 0, 2}), at(20, 21, absent{4})},
				"held, and then gone by nobody":      {at(13, 14, put{4, 0, 2}), at(15, 16, take{4, 4, 103}), at(17, 18, ends{4, 4}), at(20, 21, absent{4})},
				"there, though perhaps consumed":     {at(22, 23, take{2, 4, 104})},
				"valid though it was never acquired": {at(13, 14, holds{2, 9})},
			},
		},
		"counter": {
			model: counterModel(), resolve: changed,
			good: []porcupine.Operation{
				at(1, 2, add{1, "0", "1", false}), at(3, never, add{2, "", "", true}), at(4, never, add{3, "", "", true}),
				at(5, 6, read{"5"}), at(7, 8, add{-4, "5", "-59", false}), at(9, 10, set{5, "-59", false}), at(11, never, set{0, "", true}),
				at(12, 13, read{"0"}), at(14, never, set{6, "", true}), at(15, 16, read{"1024"}),
			},
			bad: map[string][]porcupine.Operation{
				"repeated":                {at(17, never, add{7, "", "", true}), at(18, 19, read{"9216"})},
				"lost":                    {at(17, 18, add{7, "1024", "5120", false}), at(19, 20, read{"1024"})},
				"old":                     {at(17, 18, read{"0"})},
				"made of nothing":         {at(17, 18, read{"17408"})},
				"perhaps made, and lost":  {at(17, never, add{7, "", "", true}), at(18, 19, read{"5120"}), at(20, 21, read{"1024"})},
				"made on another number":  {at(17, 18, set{7, "5120", false})},
				"an uncertain set, later": {at(17, 18, set{7, "1024", false}), at(19, 20, set{8, "4096", false}), at(21, 22, read{"1024"})},
			},
		},
		"counter of ones": {
			model: onesModel(), resolve: begun,
			good: []porcupine.Operation{
				at(1, 2, add{1, "0", "1", false}), at(3, never, add{1, "", "", true}), at(4, never, add{1, "", "", true}),
				at(5, 8, add{1, "2", "3", false}), at(6, 7, read{"1"}), at(9, 10, read{"4"}),
			},
			bad: map[string][]porcupine.Operation{
				"counted twice":        {at(11, 12, add{1, "4", "5", false}), at(11, 13, add{1, "4", "5", false})},
				"made of nothing":      {at(11, 12, read{"5"})},
				"lost":                 {at(11, 12, add{1, "4", "5", false}), at(13, 14, read{"4"})},
				"added before it came": {at(2, 2, read{"2"})},
				"added too much":       {at(11, 12, add{1, "4", "6", false})},
			},
		},
		"lease": {
			model: leaseModel(),
			good: []porcupine.Operation{
				at(1, 2, obtain{1, 0, 100, 10, 60}), at(3, 4, relies{1, 20, 60, 20}), at(5, 5, extends{1, 80}), at(5, 6, renewed{1, 80}), at(7, 8, relies{1, 50, 80, 20}),
				at(7, 8, refused{1, 0, 50, 80}), at(9, 10, obtain{2, 1, 101, 81, 120}), at(11, 11, attempt{2, 150, 90, false}), at(13, 14, released{2}),
				at(15, 16, refused{0, 2, 90, 150}), at(17, 18, obtain{3, 0, 102, 150, 200}), at(19, 20, obtain{4, 0, 103, 160, 210}),
			},
			bad: map[string][]porcupine.Operation{
				"valid when it may have ended":   {at(7, 8, relies{1, 61, 80, 20})},
				"valid while another has it":     {at(19, 20, relies{2, 85, 120, 20})},
				"obtained before the end":        {at(21, 22, obtain{5, 1, 104, 209, 300})},
				"token falls":                    {at(21, 22, obtain{5, 1, 103, 220, 300})},
				"refused by one who has none":    {at(21, 22, refused{0, 1, 210, 250})},
				"refused by what has ended":      {at(21, 22, refused{1, 0, 210, 210})},
				"refused by what was released":   {at(21, 22, released{4}), at(23, 24, refused{1, 0, 200, 210})},
				"refused by its own":             {at(21, 22, refused{0, 0, 200, 210})},
				"renewed after another has it":   {at(21, 22, renewed{1, 300})},
				"the old hold of one identifier": {at(21, 22, relies{3, 170, 200, 20})},
				"refused by what nobody wrote":   {at(21, 22, refused{1, 0, 200, 211})},
				"refused by more than was tried": {at(21, 22, refused{1, 2, 90, 151})},
			},
		},
		"multi lease": {
			model: slotsModel(),
			good: []porcupine.Operation{
				at(1, 2, inSlot{0, obtain{1, 0, 100, 10, 60}}), at(3, 4, inSlot{0, passed{1, 15}}), at(3, 4, inSlot{1, obtain{2, 1, 101, 20, 80}}),
				at(5, 6, inSlot{0, shown{0, 60, 20, 25, true, true, 20}}), at(5, 6, inSlot{2, shown{-1, 0, 20, 25, false, false, 20}}),
				// Client 2 wants all, and gets 0 for a while, until it is refused 1.
				at(7, 8, inSlot{0, released{1}}), at(9, 9, inSlot{0, begins{2, 32, true}}), at(10, 11, inSlot{0, refused{0, 2, 30, 90}}),
				at(9, 12, inSlot{1, refused{2, 1, 30, 80}}), at(12, 13, inSlot{0, gives{2}}), at(14, 15, inSlot{0, shown{-1, 0, 35, 36, false, false, 20}}),
				// Client 1 leaves slot 1 to itself, and then has it for a while again.
				at(16, 16, inSlot{1, begins{1, 39, true}}), at(17, 18, inSlot{1, gives{1}}), at(19, 20, inSlot{1, obtain{3, 0, 102, 40, 100}}),
			},
			bad: map[string][]porcupine.Operation{
				"went by a slot that is free":       {at(21, 22, inSlot{0, passed{1, 41}})},
				"went by its own":                   {at(21, 22, inSlot{1, passed{0, 41}})},
				"went by one that has ended":        {at(21, 22, inSlot{1, passed{2, 100}})},
				"refused by what was given back":    {at(21, 22, inSlot{0, refused{0, 2, 41, 90}})},
				"one slot of two":                   {at(21, 22, inSlot{1, obtain{4, 2, 103, 50, 110}})},
				"still valid":                       {at(21, 22, inSlot{1, relies{2, 41, 80, 20}})},
				"shown without a record":            {at(21, 22, inSlot{1, shown{-1, 0, 50, 51, false, false, 20}})},
				"shown as another's":                {at(21, 22, inSlot{1, shown{2, 100, 50, 51, true, true, 20}})},
				"shown as free":                     {at(21, 22, inSlot{1, shown{0, 100, 50, 51, false, true, 20}})},
				"shown as taken after its end":      {at(21, 22, inSlot{1, shown{0, 100, 100, 101, true, true, 20}})},
				"shown for longer than was written": {at(21, 22, inSlot{1, shown{0, 101, 50, 51, true, true, 20}})},
				"shown when it was given back":      {at(21, 22, inSlot{0, shown{2, 90, 50, 51, true, true, 20}})},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			check := func(ops []porcupine.Operation) porcupine.CheckResult {
				return (&subject{hist: &history{ops: ops}, model: tt.model, resolve: tt.resolve, narrow: tt.narrow}).judge().result
			}
			if got := check(tt.good); got != porcupine.Ok {
				t.Errorf("the good one: %s", got)
			}
			for what, more := range tt.bad {
				if got := check(append(slices.Clone(tt.good), more...)); got != porcupine.Illegal {
					t.Errorf("%s: %s", what, got)
				}
			}
		})
	}
	if len(tests) < len(recipes())-1 { // elections are locks
		t.Error("some recipe's model is not here")
	}
}
