package assert_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// failures notes what a test is told.
type failures []string

func (*failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func TestFailures(t *testing.T) {
	var f failures
	for _, n := range []int{1, 2} {
		assert.Equal(&f, n, 1, "number %d", n)
		assert.Slices(&f, []int{n}, []int{1}, "numbers")
	}
	for _, err := range []error{nil, io.EOF, fmt.Errorf("read: %w", io.EOF), errors.New("no")} {
		assert.Error(&f, err, nil, "nothing")
		assert.Error(&f, err, io.EOF, "read")
	}
	want := `["number 2: 2, want 1" "numbers:\ngot  [2]\nwant [1]" "read: <nil>, want EOF" "nothing: EOF, want <nil>" ` +
		`"nothing: read: EOF, want <nil>" "nothing: no, want <nil>" "read: no, want EOF"]`
	if got := fmt.Sprintf("%q", f); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
