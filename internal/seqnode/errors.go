package seqnode

import "errors"

var (
	// ErrGone says that a node was removed by somebody else, while its session goes
	// on: it has lost its place. Make a new one.
	ErrGone = errors.New("seqnode: node was removed by somebody else")

	// ErrSequenceExhausted says that the directory has seen nearly 2^31 creates, after
	// which sequence numbers order nothing. It must be emptied, deleted and made anew.
	ErrSequenceExhausted = errors.New("seqnode: sequence numbers of the directory are used up")
)
