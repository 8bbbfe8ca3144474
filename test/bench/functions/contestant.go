package functions

import (
	"fmt"
	"slices"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// Contestant is somebody's way to a plan, as it is timed.
type Contestant struct {
	Library string // whose it is: kiel, franz-go or sarama
	Name    string
	What    string // what is timed, from what to what
	Limit   int    // the most members times partitions that it is run at; 0 is no limit
	// Prepare makes what can be known before the change.
	Prepare func(g Group) (Run, error)
}

// Run is a contestant that is ready to plan for one group.
type Run struct {
	Plan  func() error // what is timed; may be called any number of times
	Check func() error // says whether the last plan gives each partition to one member
}

// Names of contestants that begin and end alike: one of ours and one of franz-go.
const (
	ListsToMaps = "Balanced, from lists to maps"
	StickyFresh = "sticky, fresh"
)

// Contestants returns all, ours first. Nothing of it is shared between calls.
func Contestants() []Contestant { return append(ours(), peers()...) }

// ours returns the functions of allocfn.
func ours() []Contestant {
	balanced := allocfn.Balanced()
	all := []Contestant{
		{Name: "Balanced", What: "input to checked assignment", Prepare: call(balanced)},
		{Name: "Balanced, and View", What: "input to lists by member and topic", Prepare: callAndView(balanced)},
		{Name: "Balanced, from texts", What: "texts topic:id to assignment, as in the allocator", Prepare: fromTexts(balanced)},
		{Name: "Balanced, from texts to maps", What: "texts topic:id to nested maps", Prepare: textsToMaps(balanced)},
		{Name: ListsToMaps, What: "lists of members and partitions, not sorted, to nested maps", Prepare: listsToMaps(balanced)},
	}
	for _, f := range allocfn.All() {
		if f.ID() != balanced.ID() {
			all = append(all, Contestant{Name: f.Title, What: all[0].What, Prepare: call(f.Func)})
		}
	}
	for i := range all {
		all[i].Library = "kiel"
	}
	return all
}

func call(f allocfn.Func) func(Group) (Run, error) {
	return func(g Group) (Run, error) {
		in := g.Input()
		var a allocfn.Assignment
		return Run{
			Plan:  func() (err error) { a, err = allocfn.Call(f, in); return err },
			Check: func() error { return allocfn.Check(in, a) },
		}, nil
	}
}

func callAndView(f allocfn.Func) func(Group) (Run, error) {
	return func(g Group) (Run, error) {
		in := g.Input()
		var v *allocfn.View
		return Run{
			Plan: func() error {
				a, err := allocfn.Call(f, in)
				if err == nil {
					v, err = allocfn.NewView(in, a)
				}
				return err
			},
			Check: func() error { return checkView(g, v) },
		}, nil
	}
}

func fromTexts(f allocfn.Func) func(Group) (Run, error) {
	return func(g Group) (Run, error) {
		texts := g.Texts()
		var a allocfn.Assignment
		return Run{
			Plan:  func() (err error) { a, err = allocfn.Call(f, read(g.Members, texts)); return err },
			Check: func() error { return allocfn.Check(g.Input(), a) },
		}, nil
	}
}

func textsToMaps(f allocfn.Func) func(Group) (Run, error) {
	return func(g Group) (Run, error) {
		texts := g.Texts()
		var mapping map[string]map[string][]int32
		return Run{
			Plan: func() error {
				in := read(g.Members, texts)
				a, err := allocfn.Call(f, in)
				if err == nil {
					mapping = allocfn.Mapping(in, a)
				}
				return err
			},
			Check: func() error { _, err := assignmentOf(g, mapping); return err },
		}, nil
	}
}

func listsToMaps(f allocfn.Func) func(Group) (Run, error) {
	return func(g Group) (Run, error) {
		names, partitions := g.Lists()
		var mapping map[string]map[string][]int32
		return Run{
			Plan: func() error {
				in := inputOf(slices.Sorted(slices.Values(names)))
				for i := range g.asks {
					in.Members[i].Topics = g.asks[i]
				}
				in.Partitions = slices.Clone(partitions)
				kiel.SortPartitions(in.Partitions)
				a, err := allocfn.Call(f, in)
				if err == nil {
					mapping = allocfn.Mapping(in, a)
				}
				return err
			},
			Check: func() error { _, err := assignmentOf(g, mapping); return err },
		}, nil
	}
}

// read makes an input of texts, as the allocator does.
func read(names, texts []string) allocfn.Input {
	in := inputOf(names)
	in.Partitions, in.Places, _ = kiel.ParsePartitions(texts)
	return in
}

// inputOf returns an input with the members of these names and no partitions.
func inputOf(names []string) allocfn.Input {
	in := allocfn.Input{Members: make([]allocfn.Member, len(names))}
	for i, name := range names {
		in.Members[i].Name = name
	}
	return in
}

func checkView(g Group, v *allocfn.View) error {
	n := 0
	for m := range g.Members {
		n += len(v.Of(m))
	}
	if n != len(g.partitions) {
		return fmt.Errorf("the view has %d partitions of %d", n, len(g.partitions))
	}
	return nil
}

// assignmentOf returns a plan of nested maps as an assignment, and an error when it does not give each partition to exactly one
// member of g.
func assignmentOf(g Group, plan map[string]map[string][]int32) (allocfn.Assignment, error) {
	f := allocfn.FromKiel("plan", func(_, _ []string) map[string]map[string][]int32 { return plan })
	return allocfn.Call(f, g.Input())
}
