package chaos_test

import (
	"fmt"
	"slices"
	"strings"
)

// double is two processes with one name, of which one is to give up: the second, unless it found the name free because the first
// had lost its session.
type double struct{ first, second *member }

// duplicate starts a second process of a name that is taken.
func (x *mix) duplicate() (string, func() bool, bool) {
	m := x.pick()
	if m == x.veteran || x.doubled(m) {
		return "", nil, false
	}
	second := x.begin(m.Name)
	second.down = true // it can own nothing
	x.doubles = append(x.doubles, double{m, second})
	return fmt.Sprintf("duplicate %s", m.Name), nil, true
}

// doubled says whether there are two processes with a member's name.
func (x *mix) doubled(m *member) bool {
	return slices.ContainsFunc(x.doubles, func(d double) bool { return d.first == m || d.second == m })
}

// alive says that nobody has ended but who may, since another has his name.
func (x *mix) alive() {
	x.t.Helper()
	for _, m := range x.working() {
		if !x.doubled(m) {
			m.alive()
		}
	}
}

// resolve looks who has given up; the other one must go on.
func (x *mix) resolve() {
	x.t.Helper()
	x.doubles = slices.DeleteFunc(x.doubles, func(d double) bool {
		return x.gaveUp(d.second, d.first) || x.gaveUp(d.first, d.second)
	})
}

// gaveUp says whether a process has ended because of another with its name.
func (x *mix) gaveUp(m, other *member) bool {
	x.t.Helper()
	select {
	case <-m.Done():
	default:
		return false
	}
	if err := m.Wait(); err == nil || !strings.Contains(m.Log(), "name is taken") {
		x.t.Errorf("a process whose name, %s, another has too ended with %v: %s", m.Name, err, m.Log())
	}
	x.struck("duplicate name")
	m.down, m.over = true, true
	other.down = false
	x.say("%02d-%s gave up its name", slices.Index(x.all, m), m.Name)
	return true
}
