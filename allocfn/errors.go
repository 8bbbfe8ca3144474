package allocfn

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/operr"
)

// Errors of this package. An error of [Call] names the function, and the member or the partition that is at fault. On any error
// keep the mapping in force.
var (
	// ErrInput says that an Input is not as documented: it is not sorted, has a member or a partition twice, or a negative
	// weight. The caller is at fault.
	ErrInput = errors.New("bad input")

	// ErrFunc says that a Func can't be used: its name is not allowed or it has no Assign.
	ErrFunc = errors.New("bad allocation function")

	// ErrUnassigned says that an allocation function assigned a partition to no member.
	ErrUnassigned = errors.New("partition unassigned")

	// ErrAssignedTwice says that an allocation function assigned a partition twice.
	ErrAssignedTwice = errors.New("partition assigned twice")

	// ErrUnknownTarget says that an allocation function named a member or a partition that is not in its input.
	ErrUnknownTarget = errors.New("unknown member or partition")

	// ErrPanic says that an allocation function panicked. The error is a [*PanicError].
	ErrPanic = errors.New("allocation function panicked")
)

// PanicError is the error of an allocation function that panicked. It wraps [ErrPanic].
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the stack as debug.Stack formats it; the error's text leaves it out
	name  string // the function's, "" if it is not known
}

// Error returns a text with the function's name and the value, escaped and cut.
func (e *PanicError) Error() string {
	what := ErrPanic.Error()
	if e.name != "" {
		what = "allocation function " + e.name + " panicked"
	}
	return what + ": " + quote(fmt.Sprint(e.Value))
}

// Unwrap returns ErrPanic, and the value if it is an error.
func (e *PanicError) Unwrap() []error {
	if err, ok := e.Value.(error); ok {
		return []error{ErrPanic, err}
	}
	return []error{ErrPanic}
}

// maxQuoted is how many bytes of a name or a value an error's text repeats.
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

// named puts the package's name in front of an error.
func named(err error) error {
	if err == nil {
		return nil
	}
	return operr.New("allocfn", "", "", err)
}
