package history_test

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// narrowed returns a history with shorter operations, which has an order only if the given one has: puts without an outcome,
// which may have been done in any order until their values were got, are to be done in the order in which they were got. So the
// checker finds in no time what it would else look for among all their orders.
func narrowed(ops []porcupine.Operation) []porcupine.Operation {
	const step = 1 << 10 // between two times, so that there is room
	ops = slices.Clone(ops)
	got := map[int64]porcupine.Operation{}
	for i := range ops {
		ops[i].Call *= step
		if ops[i].Return != never {
			ops[i].Return *= step
		}
		switch in := ops[i].Input.(type) {
		case get:
			got[in.value] = ops[i]
		case removal:
			got[in.value] = ops[i]
		}
	}
	lines := map[int][]line{} // by priority
	for i := range ops {
		if p, ok := ops[i].Input.(put); ok {
			if g, ok := got[p.value]; ok {
				lines[p.priority] = append(lines[p.priority], line{&ops[i], g, p.number == unknown})
			}
		}
	}
	for _, all := range lines {
		slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.got.Return, b.got.Return) })
		for i, one := range all {
			for _, before := range all[:i] {
				if one.uncertain && before.got.Return < one.got.Call {
					one.put.Call = min(max(one.put.Call, before.put.Call+1), one.put.Return)
				}
			}
		}
		for i, one := range slices.Backward(all) {
			for _, after := range all[i+1:] {
				if one.uncertain && one.got.Return < after.got.Call {
					one.put.Return = max(min(one.put.Return, after.put.Return-1), one.put.Call)
				}
			}
		}
	}
	return ops
}

// line is a put, and the get that got its value.
type line struct {
	put       *porcupine.Operation
	got       porcupine.Operation
	uncertain bool
}
