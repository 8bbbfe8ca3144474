// Package stack_test runs whole members, from the session to ownership, against the in-memory server: what one sick member
// does to the others, stopping at any moment, storms, and bad input.
package stack_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
