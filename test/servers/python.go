package servers

import (
	"testing"

	"github.com/kielgo/kiel/test/servers/software"
)

// Python returns the path of a Python that can import kiel and kazoo.
func Python(tb testing.TB) string {
	tb.Helper()
	python, err := software.Python()
	if err != nil {
		tb.Fatal(err)
	}
	return python
}
