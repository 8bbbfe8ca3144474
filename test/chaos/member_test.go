package chaos_test

import "testing"

func TestKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, options{})
	m := f.startAll(4)
	f.measure("one", m[0].Kill)
	f.measure("two", func() { m[1].Kill(); m[2].Kill() })
	f.finish()
}
