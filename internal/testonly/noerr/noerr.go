// Package noerr fails tests at errors.
package noerr

// TB is what it needs of a test.
type TB interface {
	Helper()
	Error(args ...any)
	Fatal(args ...any)
}

// Must ends the test if err is not nil.
func Must(tb TB, err error) {
	if err != nil {
		tb.Helper()
		tb.Fatal(err)
	}
}

// Want fails the test if err is not nil, and lets it go on.
func Want(tb TB, err error) {
	if err != nil {
		tb.Helper()
		tb.Error(err)
	}
}

// Last returns what ends the test if the last of the results of a call is an error.
func Last(tb TB) func(results ...any) {
	tb.Helper()
	return func(results ...any) {
		tb.Helper()
		if err, _ := results[len(results)-1].(error); err != nil {
			tb.Fatal(err)
		}
	}
}
