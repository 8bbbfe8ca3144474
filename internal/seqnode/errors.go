package seqnode

import (
	"errors"
	"fmt"
)

var (
	// ErrGone says that a node was removed by somebody else, while its session goes
	// on: it has lost its place. Make a new one.
	ErrGone = errors.New("seqnode: node was removed by somebody else")

	// ErrSequenceExhausted says that the directory has seen nearly 2^31 creates, after
	// which sequence numbers order nothing. It must be emptied, deleted and made anew.
	ErrSequenceExhausted = errors.New("seqnode: sequence numbers of the directory are used up")
)

// errUnsure says that a create may have been carried out, or may yet be.
var errUnsure = errors.New("seqnode: created or not")

// BlockedError says what stood in front of a node when its waiting was ended.
type BlockedError struct {
	Path  string // the znode in the way: the first in the line as last seen
	Data  []byte // its data, nil when unknown
	Ahead int    // how many stood in front, this one included
	Err   error  // what ended the waiting
}

// Error names the znode in the way.
func (e *BlockedError) Error() string {
	return fmt.Sprintf("seqnode: behind %s (%d ahead): %v", e.Path, e.Ahead, e.Err)
}

// Unwrap returns what ended the waiting.
func (e *BlockedError) Unwrap() error { return e.Err }
