// Package assert fails tests at values that are not what they should be. Its functions end no test.
package assert

import (
	"errors"
	"fmt"
	"slices"
)

// TB is what it needs of a test.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Equal fails the test if got is not want. The format says what got is.
func Equal[T comparable](tb TB, got, want T, format string, args ...any) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: %+v, want %+v", fmt.Sprintf(format, args...), got, want)
	}
}

// Slices is Equal for slices.
func Slices[T comparable](tb TB, got, want []T, format string, args ...any) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf("%s:\ngot  %v\nwant %v", fmt.Sprintf(format, args...), got, want)
	}
}

// Error fails the test if err is not want, as errors.Is sees it. The format says what has returned err.
func Error(tb TB, err, want error, format string, args ...any) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, want)
	}
}
