package noerr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// calls notes what is called of a test.
type calls []string

func (*calls) Helper()             {}
func (c *calls) Error(args ...any) { *c = append(*c, "Error "+fmt.Sprint(args...)) }
func (c *calls) Fatal(args ...any) { *c = append(*c, "Fatal "+fmt.Sprint(args...)) }

func TestErrors(t *testing.T) {
	var c calls
	for _, err := range []error{nil, errors.New("ouch")} {
		noerr.Must(&c, err)
		noerr.Want(&c, err)
		noerr.Last(&c)(7, err)
	}
	if got := fmt.Sprintf("%q", c); got != `["Fatal ouch" "Error ouch" "Fatal ouch"]` {
		t.Error(got)
	}
}
