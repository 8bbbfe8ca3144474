package allocator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
)

func TestNewNamesAllFaults(t *testing.T) {
	s, err := session.New([]string{"zk"}, session.Options{})
	noerr.Must(t, err)
	many := func(n int) (fs []allocfn.Func) {
		for i := range n {
			fs = append(fs, allocfn.Func{Name: fmt.Sprintf("f%d", i), Assign: allocfn.Range().Assign})
		}
		return fs
	}
	for name, test := range map[string]struct {
		group, member string
		opts          allocator.Options
		want          []string // nil when it is right
	}{
		"nothing set":      {"g", "host:1", allocator.Options{}, nil},
		"all set":          {"g", "m", allocator.Options{Seed: map[string][]int32{"t": {0, 0}}, AlsoFuncs: many(31), Weight: 1, Zone: "a", Topics: []string{"t"}}, nil},
		"names":            {strings.Repeat("/", 84), "..", allocator.Options{}, []string{`group "////`, "has 252 bytes as a znode's name", "member", `".."`, "allocator: "}},
		"empty":            {"", "", allocator.Options{}, []string{`group ""`, `member ""`}},
		"control":          {"g\xff\n", "m\x00", allocator.Options{}, []string{`"g\xff\n"`, `"m\x00"`}},
		"name for Kafka":   {"team/my größe\n@..%2F", "m", allocator.Options{}, nil},
		"seed":             {"g", "m", allocator.Options{Seed: map[string][]int32{"a b": {0}, "t": {-2}}}, []string{"option Seed", `"a b"`, "partition -2 of topic t is less than 0"}},
		"function":         {"g", "m", allocator.Options{Func: allocfn.Func{Name: "Bad Name"}}, []string{`"Bad Name"`}},
		"no Assign":        {"g", "m", allocator.Options{Func: allocfn.Func{Name: "x"}}, []string{"x has no Assign"}},
		"function twice":   {"g", "m", allocator.Options{AlsoFuncs: []allocfn.Func{allocfn.RoundRobin()}}, []string{"option AlsoFuncs[0]: roundrobin/1 is given twice"}},
		"many functions":   {"g", "m", allocator.Options{AlsoFuncs: many(32)}, []string{"option AlsoFuncs: 33, with Func, is more than 32"}},
		"Python function":  {"g", "m", allocator.Options{PythonFunc: "no good"}, []string{"option PythonFunc"}},
		"weight":           {"g", "m", allocator.Options{Weight: -1}, []string{"option Weight: -1 is less than 0"}},
		"large weight":     {"g", "m", allocator.Options{Weight: 1e6 + 1}, []string{"option Weight: 1000001 is more than 1000000"}},
		"zone":             {"g", "m", allocator.Options{Zone: "a\x1bb"}, []string{"option Zone"}},
		"topics":           {"g", "m", allocator.Options{Topics: []string{"a/b"}}, []string{"option Topics", `"a/b"`}},
		"durations":        {"g", "m", allocator.Options{StopTimeout: -1, MaxDelay: -1}, []string{"option StopTimeout: -1ns is less than 0", "option MaxDelay"}},
		"too large record": {"g", "m", allocator.Options{Topics: strings.Fields(strings.Repeat(strings.Repeat("t", 240)+" ", 300))}, []string{"more than 65536"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := allocator.New(s, test.group, test.member, test.opts)
			if (err == nil) != (test.want == nil) {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %s", err, want)
				}
			}
		})
	}
	if _, err := allocator.New(nil, "g", "m", allocator.Options{}); err == nil {
		t.Error("no session, no error")
	}
	if _, err := allocator.New(s, "", "m", allocator.Options{}); !errors.Is(err, kiel.ErrInvalidName) {
		t.Error(err)
	}
}

func TestPaths(t *testing.T) {
	s, err := session.New([]string{"zk"}, session.Options{})
	noerr.Must(t, err)
	a, err := allocator.New(s, "g", "m:1", allocator.Options{})
	noerr.Must(t, err)
	got := []string{a.GroupPath(), a.MembersPath(), a.PartitionsPath(), a.Group(), a.Member()}
	if want := "[/kiel/groups/g /kiel/groups/g/members /kiel/groups/g/partitions g m:1]"; fmt.Sprint(got) != want || a.Session() != s {
		t.Error(got)
	}
}

// A znode's name holds what it can of a group's name. So does Python kiel's, which escapes nothing.
func TestPathsOfNamesForKafka(t *testing.T) {
	s, err := session.New([]string{"zk"}, session.Options{})
	noerr.Must(t, err)
	for name, want := range map[string]string{"my größe@b": "/kiel/groups/my größe@b", "team/app": "/kiel/groups/team%2Fapp", "..": "/kiel/groups/%2E%2E"} {
		a, err := allocator.New(s, name, "m", allocator.Options{})
		noerr.Must(t, err)
		for path, below := range map[string]string{a.GroupPath(): "", a.MembersPath(): "/members", a.PartitionsPath(): "/partitions", a.ZonesPath(): "/zones"} {
			if path != want+below {
				t.Errorf("%q has %q, want %q", name, path, want+below)
			}
			noerr.Want(t, session.CheckPath(path))
		}
		if a.Group() != name {
			t.Errorf("%q is called %q", name, a.Group())
		}
	}
}

func TestBeforeRun(t *testing.T) {
	s, err := session.New([]string{"zk"}, session.Options{})
	noerr.Must(t, err)
	a, err := allocator.New(s, "g", "m", allocator.Options{})
	noerr.Must(t, err)
	if got := a.Snapshot(); got != nil {
		t.Error(got)
	}
	if got := a.Allocation(); got == nil || len(got) != 0 {
		t.Error(got)
	}
	noerr.Want(t, a.Leave(t.Context()))
	noerr.Want(t, a.Stop(t.Context()))
	noerr.Want(t, a.Run(t.Context()))
	if err := a.Run(t.Context()); !errors.Is(err, kiel.ErrRunTwice) || err.Error() != "allocator: run was called before" {
		t.Error(err)
	}
	if err := a.Ready(t.Context()); !errors.Is(err, allocator.ErrStopped) || err.Error() != "allocator: wait until ready: stopped" {
		t.Error(err)
	}
	for range a.Updates(t.Context()) {
		t.Error("an update")
	}
}
