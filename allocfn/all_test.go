package allocfn_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// TestAllHasEachFunction fails when a function of the package that returns a Func, and takes nothing, is missing from All.
func TestAllHasEachFunction(t *testing.T) {
	var want []string
	files, err := os.ReadDir(".")
	noerr.Must(t, err)
	for _, file := range files {
		if name := file.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			want = append(want, constructors(t, name)...)
		}
	}
	var got []string
	for _, f := range allocfn.All() {
		got = append(got, f.Title)
		if f.Name != strings.ToLower(f.Title) {
			t.Errorf("%s has the name %s", f.Title, f.Name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("All has %q, want %q", got, want)
	}
}

// constructors returns the exported functions of a file that take nothing and return a Func.
func constructors(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	noerr.Must(t, err)
	var names []string
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Params.NumFields() > 0 || f.Type.Results.NumFields() != 1 {
			continue
		}
		if result, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && result.Name == "Func" {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

// TestAllSaysWhatFunctionsDo compares the properties with what the functions make of groups that tell them apart.
func TestAllSaysWhatFunctionsDo(t *testing.T) {
	for _, f := range allocfn.All() {
		got := allocfn.Builtin{Func: f.Func, Title: f.Title}
		in := groupOf(numberedNames("host", 7), topicsOf(70, 10)...)
		plain := mustCall(t, f.Func, in)
		got.Weights = !slices.Equal(plain, mustCall(t, f.Func, weighted(in)))
		got.Zones = !slices.Equal(plain, mustCall(t, f.Func, inZones(groupOf(numberedNames("host", 7), topicsOf(70, 10)...), 3, 4)))
		got.Topics = goesByTopics(t, f.Func)
		_, err := allocfn.Call(f.Func, groupOf([]string{"a", "b"}, in.Partitions...))
		got.Numbered = err != nil
		got.Even, got.EvenInTopics = evenOf(t, f.Func, in)
		got.CoPartitions = coPartitions(in, plain)
		got.Stable = movesFew(t, f.Func)
		got.Func, f.Func = allocfn.Func{}, allocfn.Func{} // which can't be compared
		if !reflect.DeepEqual(got, f) {
			t.Errorf("%s: All says %+v, the function does %+v", f.Title, f, got)
		}
	}
}

func weighted(in allocfn.Input) allocfn.Input {
	in.Members = slices.Clone(in.Members)
	for m := range in.Members {
		in.Members[m].Weight = 1 + m
	}
	return in
}

// goesByTopics reports whether members have only partitions of topics that they ask for, where they ask for different ones.
func goesByTopics(t *testing.T, f allocfn.Func) bool {
	t.Helper()
	in := groupOf(numberedNames("host", 4), append(topicOf("t", 20), topicOf("u", 20)...)...)
	for m := range in.Members {
		in.Members[m].Topics = [][]string{{"t"}, {"u"}, {"t", "u"}, {"t"}}[m]
	}
	for i, m := range mustCall(t, f, in) {
		if !slices.Contains(in.Members[m].Topics, in.Partitions[i].Topic) {
			return false
		}
	}
	return true
}

// evenOf reports whether the numbers of two members differ by at most one, in total and in each topic.
func evenOf(t *testing.T, f allocfn.Func, in allocfn.Input) (total, topics bool) {
	t.Helper()
	m := mustMeasure(t, f, in, in)
	topics = true
	for _, topic := range m.Topics {
		topics = topics && topic.After.Spread() <= 1
	}
	return m.Total.After.Spread() <= 1, topics
}

// coPartitions reports whether partitions of one id are at one member.
func coPartitions(in allocfn.Input, a allocfn.Assignment) bool {
	at := make(map[int32]int32)
	for i, p := range in.Partitions {
		if m, ok := at[p.ID]; ok && m != a[i] {
			return false
		}
		at[p.ID] = a[i]
	}
	return true
}

// movesFew reports whether a tenth of the partitions at most moves when one more than a hundred members joins.
func movesFew(t *testing.T, f allocfn.Func) bool {
	t.Helper()
	var ps []kiel.Partition
	for i := range 10 {
		ps = append(ps, topicOf(fmt.Sprintf("t%d", i), 100)...)
	}
	m := mustMeasure(t, f, groupOf(numberedNames("host", 100), ps...), groupOf(numberedNames("host", 101), ps...))
	return m.Total.Moved <= m.Total.Kept/10
}

// tableRow is a row of the page's first table: the function, even in total, even in each topic, weights, zones.
var tableRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (yes|no)[^|]*\\| (yes|no)[^|]*\\| (yes|no) \\| (yes|no) \\|")

// TestPageAgreesWithAll compares the page's table, and the package's page, with All.
func TestPageAgreesWithAll(t *testing.T) {
	page, err := os.ReadFile("../docs/choosing-a-function.md")
	noerr.Must(t, err)
	var got, want []string
	for _, row := range tableRow.FindAllStringSubmatch(string(page), -1) {
		got = append(got, strings.Join(row[1:], " "))
	}
	yes := map[bool]string{true: "yes", false: "no"}
	for _, f := range allocfn.All() {
		want = append(want, strings.Join([]string{f.Title, yes[f.Even], yes[f.EvenInTopics], yes[f.Weights], yes[f.Zones]}, " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page's table has\n%s\nAll has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDocAgreesWithAll compares what the package's page says of several functions at once with All.
func TestDocAgreesWithAll(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	noerr.Must(t, err)
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(source), "\n//", "\n")), " ")
	list := `((?:\w+, )*\w+ and \w+)`
	for pattern, has := range map[string]func(allocfn.Builtin) bool{
		list + ` give a partition only to members that ask for its topic`: func(f allocfn.Builtin) bool { return f.Topics },
		list + ` ignore what members ask for`:                             func(f allocfn.Builtin) bool { return !f.Topics },
		`Weights and zones: only ` + list + ` look at them`:               func(f allocfn.Builtin) bool { return f.Weights && f.Zones },
		list + ` move most partitions when a member joins or leaves`:      func(f allocfn.Builtin) bool { return !f.Stable },
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Errorf("doc.go has no sentence %q", pattern)
			continue
		}
		got := strings.Split(strings.ReplaceAll(found[1], " and ", ", "), ", ")
		var want []string
		for _, f := range allocfn.All() {
			if has(f) {
				want = append(want, f.Title)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("doc.go has %q, All has %q, in %q", got, want, pattern)
		}
	}
	for _, f := range allocfn.All() {
		if !strings.Contains(text, "- ["+f.Title+"] ") {
			t.Errorf("doc.go's list lacks %s", f.Title)
		}
	}
}
