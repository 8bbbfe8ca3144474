// Package sabotage switches single safety rules off, so that tests can show what each is for: the execution that a rule
// answers must pass with it and fail without. Only tests call [Off]; what is not run with a context of theirs keeps all
// rules.
package sabotage

import "context"

// Rule is a rule that can be switched off.
type Rule uint

// The rules, by package.
const (
	// GuardedRelease, of ownership: a release checks the epoch. Off: it is a bare delete.
	GuardedRelease Rule = iota
	// PossiblyMine, of ownership: a claim whose request had no answer is looked at, and claims are swept. Off: it counts
	// as not held.
	PossiblyMine
	// Claims, of ownership: what is owned is claimed in ZooKeeper. Off: whatever is allocated to the member is opened.
	Claims
	// EpochWatch, of ownership: a claim whose epoch was written by another is lost. Off: only the claim is looked at.
	EpochWatch
	// StuckLosesClaim, of ownership: a handler that does not return loses its claim. Off: its member ends the session.
	StuckLosesClaim

	// ContenderChecked, of lease: a write under the inner lock checks our contender. Off: it does not.
	ContenderChecked
	// RecordByZxid, of lease: a record is known by its zxids. Off: by its version.
	RecordByZxid
	// RecordWatched, of lease: a hold ends when the record is another's. Off: the record is not looked at.
	RecordWatched
	// RecordSet, of lease: a record is set, and made with a version above 0, in one request. Off: it is deleted and made.
	RecordSet
	// TryRemoved, of lease: the record of a try that was given up is removed. Off: it stays.
	TryRemoved
	// TryByBytes, of lease: only the record that the try has written is removed. Off: whatever is there.
	TryByBytes
	// EndAsWritten, of lease: a hold ends by the skew before the written end. Off: when its duration has passed.
	EndAsWritten
	// EndMonotonic, of lease: a hold ends by the monotonic clock, too. Off: by the wall clock alone.
	EndMonotonic
	// ClocksCompared, of lease: nobody obtains whose clock differs from the servers'. Off: clocks are not compared.
	ClocksCompared
	// LeaseOutlivesTrust, of lease: a hold does not end with trust. Off: it does.
	LeaseOutlivesTrust
	// IdentifierGiven, of lease: New wants an identifier. Off: without one it is the host's name, as in kazoo.
	IdentifierGiven
	// DurationBeyondSkew, of lease: New wants a duration that the skew leaves something of. Off: it takes any.
	DurationBeyondSkew
	// EndKept, of lease: who takes over from another with its identifier keeps that one's end. Off: it writes its own.
	EndKept
	// InnerLockKept, of lease: a call that is given up keeps the inner lock until it is known what became of its write.
	// Off: it releases it.
	InnerLockKept
	// RecordByContender, of lease: a record is ours if nobody else had the inner lock since. Off: if it has our bytes.
	RecordByContender
	// OutcomeByZxid, of lease: a write was done if record and contender have one zxid. Off: if there is a record.
	OutcomeByZxid

	// IdentifierText, of lease: New wants an identifier that is UTF-8. Off: it takes any bytes.
	IdentifierText
)

type key struct{}

// wordSize is how many rules a word of Rules has.
const wordSize = 64

// Rules is a set of rules that are off. The zero value is none.
type Rules [2]uint64

// Off returns a context with which what is run breaks rules, besides those that ctx has off already.
func Off(ctx context.Context, rules ...Rule) context.Context {
	off := Of(ctx)
	for _, r := range rules {
		off[r/wordSize] |= 1 << (r % wordSize)
	}
	return context.WithValue(ctx, key{}, off)
}

// Of returns the rules that are off in ctx.
func Of(ctx context.Context) Rules {
	off, _ := ctx.Value(key{}).(Rules)
	return off
}

// Off reports whether a rule is off.
func (s Rules) Off(r Rule) bool { return s[r/wordSize]&(1<<(r%wordSize)) != 0 }
