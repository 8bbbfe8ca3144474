package scenarios

import (
	"flag"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

var (
	update = flag.Bool("update", false, "write the findings anew")
	only   = flag.String("case", "", "a regular expression: the cases to run; all when empty")
	times  = flag.Int("times", 1, "how often to run the cases, one after the other on the same servers")
)

// Run runs all cases on all variants, at the same time, and compares the findings with the rows and with the file. Without
// process, which observes a case in a process of its own, cases that need one are left out, and so are those that need a fake
// ZooKeeper when b can't expire sessions, and those that -run does not choose on all variants; their lines of the file are not
// looked at.
func Run(t *testing.T, b *Backend, file string, process func(*testing.T, Case, Variant) Observations) {
	t.Helper()
	chosen, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	runs := func(c Case) bool {
		return (process != nil || !c.Process) && (b.Expire != nil || !c.Kfake) && (b.Real || !c.Real) && chosen.MatchString(c.Name)
	}
	b.warmUp(t)
	for i := range *times {
		again := *b
		again.Suffix += "-" + strconv.Itoa(i)
		t.Run("run", func(t *testing.T) { runAll(t, &again, file, runs, process) })
	}
}

// runAll runs the cases once, all at the same time.
func runAll(t *testing.T, b *Backend, file string, runs func(Case) bool, process func(*testing.T, Case, Variant) Observations) {
	t.Helper()
	var mu sync.Mutex
	all := map[string]map[Variant]Observations{}
	t.Run("observe", func(t *testing.T) {
		for _, c := range Cases() {
			if !runs(c) {
				continue
			}
			all[c.Name] = map[Variant]Observations{}
			for _, v := range Variants() {
				t.Run(c.Name+"/"+v.String(), func(t *testing.T) {
					t.Parallel()
					seen := observe(t, b, c, v, process)
					mu.Lock()
					defer mu.Unlock()
					all[c.Name][v] = seen
				})
			}
		}
	})
	if t.Failed() {
		return
	}
	ran := func(c Case) bool { return runs(c) && len(all[c.Name]) == len(Variants()) } // -run may have chosen some subtests
	var found []Finding
	whole := *only == ""
	for _, c := range Cases() {
		whole = whole && runs(c) == ran(c)
		switch {
		case ran(c):
			found = append(found, Compare(c, all[c.Name])...)
		case len(all[c.Name]) > 0:
			t.Logf("%q ran on %d of %d groups: nothing is compared", c.Name, len(all[c.Name]), len(Variants()))
		}
	}
	judge(t, found, file, ran, whole)
}

// observe observes a case here, or in a process of its own if it needs one.
func observe(t *testing.T, b *Backend, c Case, v Variant, process func(*testing.T, Case, Variant) Observations) Observations {
	t.Helper()
	if c.Process {
		return process(t, c, v)
	}
	return Observe(t, b, c, v, nil)
}

// judge compares findings with the rows and with the file.
func judge(t *testing.T, found []Finding, file string, runs func(Case) bool, whole bool) {
	t.Helper()
	got := Report(found)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		want = []byte(merge(string(want), got, runs))
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range Check(found, runs, whole) {
		t.Error(wrong)
	}
	for _, wrong := range diff(string(want), got, runs) {
		t.Error(wrong)
	}
}
