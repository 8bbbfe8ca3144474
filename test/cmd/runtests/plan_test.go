package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// tree are the packages of all modules, as they stand.
func tree(t *testing.T) map[string]kind {
	t.Helper()
	root, err := workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := packages(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for pkg, want := range map[string]kind{
		"": units, "/session": units, "/cmd/demo-consumer": units, "/test/cmd/runtests": units,
		"/test/servers": servers, "/test/chaos": servers, "/test/interop/recipes": servers,
	} {
		if got := all[project+pkg]; got != want {
			t.Errorf("%s%s is of kind %q, want %q", project, pkg, got, want)
		}
	}
	return all
}

func TestPlansFitTheTree(t *testing.T) {
	all := tree(t)
	stages, err := testPlan(time.Minute).resolve(all, true)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]int{}
	for _, lanes := range stages {
		for _, jobs := range lanes {
			for _, j := range jobs {
				for _, pkg := range j.targets {
					if !j.more {
						in[pkg]++
					}
				}
			}
		}
	}
	for pkg := range all {
		if in[pkg] != 1 {
			t.Errorf("%s is in %d parts", pkg, in[pkg])
		}
	}
	if !slices.ContainsFunc(slices.Collect(soakPlan(1, 1).parts()), func(p part) bool { return p.name == "mutants" }) {
		t.Error("the soak tries no mutants")
	}
	for name, p := range map[string]plan{"unit": {{{unit(0, false)}}}, "soak": soakPlan(1, 1), "sim": {{{days(1, 1)}}}, "chaos": chaosPlan(1, 0)} {
		if _, err := p.resolve(all, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPackagesOfNoPartOrTwo(t *testing.T) {
	all := map[string]kind{path("a"): units, path("b"): units, path("test/c"): servers}
	for name, c := range map[string]struct {
		p    plan
		want string
	}{
		"fits":                   {plan{{{{name: "x", packages: []string{"a"}}, {name: "y", rest: units}}, {{name: "z", rest: servers}}}}, ""},
		"a package of no part":   {plan{{{{name: "x", rest: units}}}}, path("test/c") + " is in no part"},
		"only parts that add":    {plan{{{{name: "x", rest: units}, {name: "y", packages: []string{"test/c"}, more: true}}}}, path("test/c") + " is in no part"},
		"a package of two parts": {plan{{{{name: "x", packages: []string{"a"}}}}, {{{name: "y", packages: []string{"a"}}, {name: "z", rest: units}}}}, path("a") + " is in two parts: x and y"},
		"twice in one part":      {plan{{{{name: "x", packages: []string{"a", "a"}, rest: units}}}}, path("a") + " is in two parts: x and x"},
		"the rest twice":         {plan{{{{name: "x", rest: units}, {name: "y", rest: units}}}}, path("a") + " is in two parts: x and y"},
		"no such package":        {plan{{{{name: "x", packages: []string{"gone"}, more: true}}}}, "part x names " + path("gone") + ", which is no package"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.p.resolve(all, true)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("resolve() = %v, want %q", err, c.want)
			}
		})
	}
}

// A test that one part leaves out by name runs in another part, or in the soak.
func TestNothingIsLeftOut(t *testing.T) {
	all := tree(t)
	p := testPlan(time.Minute)
	everywhere := slices.Concat(p, soakPlan(1, 1))
	stages, err := p.resolve(all, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range slices.Concat(slices.Concat(stages...)...) {
		for _, flag := range one.flags {
			names, ok := strings.CutPrefix(flag, "-skip=")
			if !ok || names == soaked {
				continue
			}
			var runs []string
			for other := range everywhere.parts() {
				if slices.Contains(other.flags, "-run="+names) && slices.Equal(one.env, other.env) {
					runs = append(runs, paths(other.packages)...)
				}
			}
			for _, pkg := range matching(t, names) {
				if slices.Contains(one.targets, pkg) && !slices.Contains(runs, pkg) {
					t.Errorf("%s leaves tests of %s out, which no other part runs: %s", one.name, pkg, names)
				}
			}
		}
	}
}

// matching returns the packages with tests of these names.
func matching(t *testing.T, names string) (pkgs []string) {
	t.Helper()
	root, err := workspace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var tops []string
	for name := range strings.SplitSeq(names, "|") { // what a bracket holds is joined again below
		top, _, _ := strings.Cut(name, "/")
		tops = append(tops, top)
	}
	match := regexp.MustCompile(strings.Join(tops, "|"))
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		for _, found := range test.FindAllSubmatch(text, -1) {
			if match.Match(found[1]) {
				pkgs = append(pkgs, path(filepath.ToSlash(filepath.Dir(name))))
			}
		}
		return err
	})
	if err != nil || len(pkgs) == 0 {
		t.Fatalf("found %v, %v", pkgs, err)
	}
	return pkgs
}

func TestOnly(t *testing.T) {
	stages := [][][]job{{{{part: part{name: "a"}}, {part: part{name: "b"}}}}, {{{part: part{name: "c"}}}}}
	got, err := only(stages, []string{"b"})
	if err != nil || len(got[0][0]) != 1 || got[0][0][0].name != "b" || len(got[1][0]) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := only(stages, []string{"d"}); err == nil {
		t.Error("a part that is not there is taken")
	}
}
