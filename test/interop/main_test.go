// Package interop_test puts real members of Python's kiel and members of this library into one group.
package interop_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// goMember makes this test binary one member of a group instead of a test: see member.py, which does the same for Python.
const goMember = "KIEL_TEST_MEMBER"

func TestMain(m *testing.M) {
	if os.Getenv(goMember) != "" {
		os.Exit(beMember(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}
