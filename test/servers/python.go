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

// KazooTests returns the path of a Python that can run kazoo's own tests.
func KazooTests(tb testing.TB) string {
	tb.Helper()
	python, err := software.KazooTests()
	if err != nil {
		tb.Fatal(err)
	}
	return python
}
