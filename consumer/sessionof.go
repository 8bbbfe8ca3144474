package consumer

import "github.com/IBM/sarama"

// Session is what Setup, ConsumeClaim and Cleanup are given, beside sarama.ConsumerGroupSession. [SessionOf] returns it, also
// when a wrapper is in between.
//
// In an eager session Setup, each ConsumeClaim and Cleanup are given the same session, whose Context ends when the session does.
// In an incremental one Setup and Cleanup are given the session of the call, whose Context ends when the call begins to end, or
// the member to leave. Each ConsumeClaim is given a session of its own, which differs from the call's in its Context alone: that
// also ends when the partition is revoked or lost, or can't be read any more. The cause wraps ownership.ErrRevoked or
// ownership.ErrLost in the first two cases. After a revocation the other methods work on until ConsumeClaim returns, so that the
// handler can finish and mark what it has in hand. Both contexts have the values of the call's context.
//
// MemberID returns "" and GenerationID returns -1 (sarama.GroupGenerationUndefined): Kafka knows no members of this group. With
// these two Kafka stores the offsets of any producer's transaction, also those of a former owner; [Options].Fence prevents that.
type Session interface {
	sarama.ConsumerGroupSession

	// Member returns the name of this member in the group, [Options].Name.
	Member() string

	// Version returns the version of the newest mapping that this member has seen. It grows with every change of the mapping, and
	// means something to this member alone. It is 0 before the first mapping.
	Version() uint64

	// Token returns the fencing token of a partition that is open in this session: the token of its [Claim]. It returns 0 for any
	// other partition, and for every partition in Setup, in Cleanup and after the session's end. A partition that is closed and
	// opened again in the same session may have another token. Call Token when ConsumeClaim begins, and use that token until
	// ConsumeClaim returns.
	Token(topic string, partition int32) int64

	// Trusted reports whether a partition is open in this session and surely this member's at this moment. Token says when a
	// partition counts as open. Trusted takes no lock and allocates nothing, so it can be asked before each effect on the
	// outside.
	Trusted(topic string, partition int32) bool
}

// sessionKey is the key under which the context of a Session has that Session itself.
type sessionKey struct{}

// SessionOf returns the Session behind the session that a handler was given: that of the call in Setup and Cleanup, the
// partition's own in ConsumeClaim. s may be the Session itself or a wrapper around it whose Context descends from the Session's.
// The wrapper may have a MemberID of its own, but no GenerationID. SessionOf returns false for a session of sarama's own group.
//
//	if own, ok := consumer.SessionOf(session); ok {
//		token := own.Token(claim.Topic(), claim.Partition())
//	}
//
// A handler in a wrapper that makes claims of its own can't assert for [Claim]. SessionOf gives it token and trust.
func SessionOf(s sarama.ConsumerGroupSession) (Session, bool) {
	if own, ok := s.(Session); ok {
		return own, true
	}
	if s == nil {
		return nil, false
	}
	// With both, s is of a member of Kafka, although its context may descend from one of this package.
	if s.MemberID() != "" && s.GenerationID() != sarama.GroupGenerationUndefined {
		return nil, false
	}
	ctx := s.Context()
	if ctx == nil { // a test of the user may have made s
		return nil, false
	}
	own, ok := ctx.Value(sessionKey{}).(Session)
	return own, ok
}
