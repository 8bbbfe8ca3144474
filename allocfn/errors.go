package allocfn

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Errors of this package. Those of [Call] name the function, and the member or
// the partition it is about. On any of them keep the mapping that is in force.
var (
	// ErrItem says that an item of a set is not "topic:id". Such an item is
	// allocated to nobody; whoever wrote it has to repair it.
	ErrItem = errors.New("not topic:id")

	// ErrInput says that an Input is not as documented (not sorted, a member
	// or partition twice, a negative weight). It is the caller's mistake.
	ErrInput = errors.New("bad input")

	// ErrFunc says that a Func can't be used: its name is not allowed or it
	// has no Assign.
	ErrFunc = errors.New("bad allocation function")

	// ErrForgotten says that an allocation function gave a partition to
	// nobody.
	ErrForgotten = errors.New("partition forgotten")

	// ErrDoubled says that an allocation function gave a partition away twice.
	ErrDoubled = errors.New("partition allocated twice")

	// ErrStranger says that an allocation function named a member or a
	// partition that it was not given.
	ErrStranger = errors.New("stranger")

	// ErrPanic says that an allocation function panicked. The error is a
	// [*PanicError].
	ErrPanic = errors.New("allocation function panicked")
)

// PanicError is the error of an allocation function that panicked. It wraps
// [ErrPanic].
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // where, as debug.Stack formats it; not in the error's text
}

// Error holds the value, escaped and cut.
func (e *PanicError) Error() string { return ErrPanic.Error() + ": " + quote(fmt.Sprint(e.Value)) }

// Unwrap returns ErrPanic, and the value if it is an error.
func (e *PanicError) Unwrap() []error {
	if err, ok := e.Value.(error); ok {
		return []error{ErrPanic, err}
	}
	return []error{ErrPanic}
}

// maxQuoted is how many bytes of a foreign text an error repeats.
const maxQuoted = 120

// quote returns s escaped for an error text, cut when it is long.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	cut := maxQuoted
	for cut > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}
