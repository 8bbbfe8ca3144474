package interop_test

import (
	"testing"
	"time"
)

// Members of both languages share a group whose name a znode can hold as it is.
func TestGroupNamesBesidePython(t *testing.T) {
	g := newGroup(t, "", 10*time.Second)
	for _, name := range []string{"my group", "größe", "a@b:c", "100%"} {
		one := &group{t: t, zk: g.zk, name: name, members: map[string]*member{}, items: map[string]bool{}}
		python := one.join("python", "t:0", "t:1", "t:2", "t:3")
		one.join("go", "t:4")
		one.agree()
		one.leave(python)
		one.agree()
		for _, m := range one.members {
			one.leave(m)
		}
	}
}
