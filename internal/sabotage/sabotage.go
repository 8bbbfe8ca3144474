// Package sabotage switches single safety rules off, so that tests can show what each is for: the execution that a rule
// answers must pass with it and fail without. Only tests call [Off]; what is not run with a context of theirs keeps all
// rules.
package sabotage

import "context"

// Rule is a rule that can be switched off.
type Rule uint

// The rules, by package.
const (
	// HandshakeCap, of session: a handshake is bounded by a fraction of the session timeout. Off: by ten times the
	// receive timeout, as in go-zookeeper.
	HandshakeCap Rule = iota
	// ProofByQuorum, of session: a proof of life is a write. Off: it is Exists.
	ProofByQuorum
	// ProofBeyondSync, of session: a proof of life is a write. Off: it is Sync.
	ProofBeyondSync
	// ClientPerSession, of session: a client ends with its ZooKeeper session. Off: it goes on in a new one, with what was
	// queued in it while there was no connection.
	ClientPerSession
	// TouchMargin, of session: an older sign of life bounds trust too. Off: only the newest proof does.
	TouchMargin
	// ConnectMargin, of session: a connect request without an answer shortens trust. Off: it does not.
	ConnectMargin
	// GuardedRelease, of ownership: a release checks the epoch. Off: it is a bare delete.
	GuardedRelease
	// PossiblyMine, of ownership: a claim whose request had no answer is looked at, and claims are swept. Off: it counts
	// as not held.
	PossiblyMine
	// Claims, of ownership: what is owned is claimed in ZooKeeper. Off: whatever is allocated to the member is opened.
	Claims
	// EpochWatch, of ownership: a claim whose epoch was written by another is lost. Off: only the claim is looked at.
	EpochWatch
	// StuckLosesClaim, of ownership: a handler that does not return loses its claim. Off: its member ends the session.
	StuckLosesClaim
	// SameFunction, of allocator: the group runs a function that all members can run. Off: each runs what it prefers.
	SameFunction
	// ByCzxid, of party and allocator: a member that came back under its name is another member. Off: names are compared.
	ByCzxid
)

type key struct{}

// Rules is a set of rules that are off.
type Rules uint

// Off returns a context with which what is run breaks rules, besides those that ctx has off already.
func Off(ctx context.Context, rules ...Rule) context.Context {
	off := Of(ctx)
	for _, r := range rules {
		off |= 1 << r
	}
	return context.WithValue(ctx, key{}, off)
}

// Of returns the rules that are off in ctx.
func Of(ctx context.Context) Rules {
	off, _ := ctx.Value(key{}).(Rules)
	return off
}

// Off reports whether a rule is off.
func (s Rules) Off(r Rule) bool { return s&(1<<r) != 0 }
