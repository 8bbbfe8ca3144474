package seqnode

import "errors"

var (
	// ErrGone says that somebody else removed a node while its session goes on: the node has lost its place. Create a new one.
	ErrGone = errors.New("contender was removed by somebody else")

	// ErrSequenceExhausted says that the directory has seen nearly 2^31 creates, after which sequence numbers give no order. The
	// directory must be emptied, deleted and created again.
	ErrSequenceExhausted = errors.New("sequence numbers of the directory are used up")
)
