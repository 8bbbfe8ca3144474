// Package sabotage switches single safety rules off, so that tests can show what each is for: the execution that a rule answers
// must pass with it and fail without. Only tests call [Off]; code that runs without such a context keeps all rules.
package sabotage

import "context"

// Rule is a rule that can be switched off.
type Rule uint

// The rules, by package.
const (
	// GuardedRelease, of ownership: a release checks the epoch. Off: it is a bare delete.
	GuardedRelease Rule = iota
	// PossiblyMine, of ownership: a claim whose request had no answer is read, and claims are swept. Off: it counts as not held.
	PossiblyMine
	// Claims, of ownership: what is owned is claimed in ZooKeeper. Off: whatever is allocated to the member is opened.
	Claims
	// EpochWatch, of ownership: a claim whose epoch was written by another is lost. Off: only the claim is read.
	EpochWatch
	// StuckLosesClaim, of ownership: a handler that does not return loses its claim. Off: its member ends the session.
	StuckLosesClaim
)

type key struct{}

// Rules is a set of rules that are off. The zero value is none.
type Rules struct{ bits uint64 }

// Off returns a context under which code breaks these rules, besides those that ctx has off already.
func Off(ctx context.Context, rules ...Rule) context.Context {
	off := Of(ctx)
	for _, r := range rules {
		off.bits |= 1 << r
	}
	return context.WithValue(ctx, key{}, off)
}

// Of returns the rules that are off in ctx.
func Of(ctx context.Context) Rules {
	off, _ := ctx.Value(key{}).(Rules)
	return off
}

// Off reports whether a rule is off.
func (s Rules) Off(r Rule) bool { return s.bits&(1<<r) != 0 }
