package operr

import (
	"cmp"
	"errors"
	"reflect"
	"strings"
)

// Error is the error of an operation on an object. Its text is "package: operation object: error", without what is empty.
type Error struct {
	Package string // the package that the user called; "" within the package
	Op      string // the operation, such as "add to"; may be empty
	Object  string // the path of a znode, a partition, a name; may be empty
	Err     error  // why the operation failed
}

// New returns the error of an operation that failed with err. Of pkg, op and object any may be empty; err must not be nil.
func New(pkg, op, object string, err error) error {
	return &Error{Package: pkg, Op: op, Object: object, Err: err}
}

// Text returns the text of err without the name of a package, to be a part of a text that is no error.
func Text(err error) string { return text(err, "") }

// Error names package, operation and object, and says why the operation failed.
func (e *Error) Error() string {
	name := e.name()
	if e.Package != "" {
		name = e.Package + ": " + name
	}
	return name + text(e.Err, e.Object)
}

// Unwrap returns why the operation failed.
func (e *Error) Unwrap() error { return e.Err }

// Operation returns e. An error of another type that holds an Error has this method, too, so that it is left out of texts
// likewise.
func (e *Error) Operation() *Error { return e }

// name returns operation and object with a colon and a space behind, "" if both are empty.
func (e *Error) name() string {
	switch {
	case e.Op == "" && e.Object == "":
		return ""
	case e.Op == "":
		return e.Object + ": "
	case e.Object == "":
		return e.Op + ": "
	default:
		return e.Op + " " + e.Object + ": "
	}
}

// causeError is a kind of error and its cause.
type causeError struct{ kind, cause error }

// Because returns an error that wraps kind, which is mostly a sentinel, and then cause. Its text is "kind: cause".
func Because(kind, cause error) error { return &causeError{kind, cause} }

func (e *causeError) Error() string { return e.kind.Error() + ": " + text(e.cause, "") }

// Unwrap returns both errors.
func (e *causeError) Unwrap() []error { return []error{e.kind, e.cause} }

// markedError is an error that is also of other kinds.
type markedError struct {
	error
	kinds []error
}

// Mark returns an error that has the text of err, and wraps err and then kinds.
func Mark(err error, kinds ...error) error { return &markedError{err, kinds} }

// Unwrap returns all that e wraps.
func (e *markedError) Unwrap() []error { return append([]error{e.error}, e.kinds...) }

// text returns the text of err as a part of the text of an operation on the object outer: without the name of a package, and
// without an operation on the same object.
func text(err error, outer string) string {
	switch e := err.(type) { //nolint:errorlint // not what err wraps: the text of another error in between has all names
	case nil: // a mistake of this library's, which must not cost the user more than a text
		return "no reason is known"
	case interface{ Operation() *Error }:
		inner := e.Operation()
		if outer != "" && inner.Object == outer {
			return text(inner.Err, outer)
		}
		return inner.name() + text(inner.Err, cmp.Or(inner.Object, outer))
	case *markedError:
		return text(e.error, outer)
	case *causeError:
		return text(e.kind, outer) + ": " + text(e.cause, outer)
	case interface{ Text() string }: // recipe.BlockedError
		return e.Text()
	case interface{ Unwrap() []error }:
		if reflect.TypeOf(err) != reflect.TypeOf(errors.Join(err)) {
			break
		}
		lines := make([]string, 0, 2)
		for _, part := range e.Unwrap() {
			lines = append(lines, text(part, outer))
		}
		return strings.Join(lines, "\n")
	}
	return err.Error()
}
