package conformance

import "testing"

type testCase struct {
	name string
	run  func(t *testing.T, target Target, srv *Server)
}

func cases() []testCase { return nil }
