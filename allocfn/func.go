package allocfn

import (
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Member is a member of the group as an allocation function sees it.
type Member struct {
	Name   string
	Weight int      // its share compared with others'; 0 is 1
	Zone   string   // where it runs; "" is unknown
	Topics []string // the topics it asks for, in any order; none is all
}

// Input is what an allocation function decides on. All members of a group must
// come to equal inputs, so nothing else may be put in.
type Input struct {
	// Members, sorted by name byte by byte, no name twice.
	Members []Member
	// Partitions in kiel's order, that of [Sort], none twice; with Places in
	// the order in which [ParseAll] returns them.
	Partitions []Partition
	// Places, when not nil, holds for each partition its place among the items
	// that a Python member counts, growing; see [ParseAll]. nil says that
	// partition k is at place k. RoundRobin goes by places, others need not.
	Places []int32
	// Zones says in which zone a partition is best consumed. A partition
	// without an entry has none; nil is no zones.
	Zones map[Partition]string
}

// Assignment says who owns what: Assignment[i] is the index in Input.Members
// of the owner of Input.Partitions[i].
type Assignment []int32

// Func is an allocation function.
type Func struct {
	// Name and Version are what the members of a group agree on, see [Func.ID].
	// A name is 1 to 64 of a-z, 0-9 and -. Whatever changes a result needs another
	// version, or members of both will own partitions twice or not at all; 0 is 1.
	Name    string
	Version int

	// Assign gives each partition to one member. It must be pure (the result
	// depends on the input alone, in every process), total and must not change
	// its input. It is called with at least one member and one partition, from
	// any goroutine, and must not block.
	Assign func(Input) (Assignment, error)

	// harmless is a function of this package that is known not to change its
	// input; while it is Assign too, that needs no copy of the input.
	harmless func(Input) (Assignment, error)
}

// copies reports whether f.Assign must be given a copy of its input. Functions
// are compared by their code: harmless has no variables that could differ.
func (f Func) copies() bool {
	return reflect.ValueOf(f.Assign).Pointer() != reflect.ValueOf(f.harmless).Pointer()
}

// ID returns name and version in one, as in "balanced/1". Members publish it of
// each function they can run.
func (f Func) ID() string { return f.Name + "/" + strconv.Itoa(max(f.Version, 1)) }

// maxVersion of a function.
const maxVersion = 1_000_000

// ParseID returns what [Func.ID] returns of a function that is written in this
// way, or as its name alone, which is that of version 1. The error wraps
// [ErrFunc].
func ParseID(s string) (id string, err error) {
	f := Func{Version: 1}
	name, version, given := strings.Cut(s, "/")
	f.Name = name
	if given {
		f.Version, err = strconv.Atoi(version)
		if err != nil || f.Version < 1 || version != strconv.Itoa(f.Version) {
			return "", fmt.Errorf("allocfn: %w: version %s must be a number from 1 on", ErrFunc, quote(version))
		}
	}
	if err := f.validateID(); err != nil {
		return "", err
	}
	return f.ID(), nil
}

func (f Func) validateID() error {
	if f.Name == "" || len(f.Name) > 64 || strings.Trim(f.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("allocfn: %w: name %s must be 1 to 64 of a-z, 0-9 and -", ErrFunc, quote(f.Name))
	}
	if f.Version < 0 || f.Version > maxVersion {
		return fmt.Errorf("allocfn: %w: version %d of %s is not in 0 to %d", ErrFunc, f.Version, f.Name, maxVersion)
	}
	return nil
}

// Validate returns an error that wraps [ErrFunc] when f can't be used.
func (f Func) Validate() error {
	if err := f.validateID(); err != nil {
		return err
	}
	if f.Assign == nil {
		return fmt.Errorf("allocfn: %w: %s has no Assign", ErrFunc, f.Name)
	}
	return nil
}

// Call runs f on in and checks the result, so that the assignment it returns
// gives each partition to one member of in. A panic of f, an error of f, and a
// result that forgets a partition or names a stranger come back as errors that
// name the function; see the errors of this package. f can't harm in: a function
// that is not of this package sees copies of the members, partitions and zones.
//
// Without members or without partitions f is not called and the assignment is
// empty: nobody owns anything.
func Call(f Func, in Input) (Assignment, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if err := in.Validate(); err != nil {
		return nil, err
	}
	if len(in.Members) == 0 || len(in.Partitions) == 0 {
		return Assignment{}, nil
	}
	given := in
	if f.copies() {
		given = in.clone()
	}
	a, err := guard(f.Assign, given)
	if err == nil {
		err = Check(in, a)
	}
	if err != nil {
		return nil, fmt.Errorf("allocfn: function %s: %w", f.Name, err)
	}
	return a, nil
}

func (in Input) clone() Input {
	in.Members = slices.Clone(in.Members)
	for i, m := range in.Members {
		in.Members[i].Topics = slices.Clone(m.Topics)
	}
	in.Partitions = slices.Clone(in.Partitions)
	in.Places = slices.Clone(in.Places)
	in.Zones = maps.Clone(in.Zones)
	return in
}

// guard calls a function and makes an error of a panic.
func guard(f func(Input) (Assignment, error), in Input) (a Assignment, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f(in)
}

// Check returns an error unless a gives each partition of in to one member of
// in: [ErrForgotten] for a partition that has no owner (−1, or beyond the end
// of a), [ErrStranger] for an owner that is no index of a member, or for more
// owners than partitions. Without members an empty assignment is right.
func Check(in Input, a Assignment) error {
	if len(in.Members) == 0 && len(a) == 0 {
		return nil
	}
	for i, p := range in.Partitions {
		switch {
		case i >= len(a) || a[i] == -1:
			return fmt.Errorf("%w: %s", ErrForgotten, quote(p.String()))
		case a[i] < 0 || int(a[i]) >= len(in.Members):
			return fmt.Errorf("%w: %s given to member %d of %d", ErrStranger, quote(p.String()), a[i], len(in.Members))
		}
	}
	if len(a) > len(in.Partitions) {
		return fmt.Errorf("%w: %d owners for %d partitions", ErrStranger, len(a), len(in.Partitions))
	}
	return nil
}

// Validate returns an error that wraps [ErrInput] and names the first member
// or partition that is not as Input documents it.
func (in Input) Validate() error {
	for i := range in.Members {
		m := &in.Members[i]
		if m.Weight < 0 {
			return fmt.Errorf("allocfn: %w: member %s has weight %d", ErrInput, quote(m.Name), m.Weight)
		}
		if i == 0 {
			continue
		}
		switch strings.Compare(in.Members[i-1].Name, m.Name) {
		case 0:
			return fmt.Errorf("allocfn: %w: member %s twice", ErrInput, quote(m.Name))
		case 1:
			return fmt.Errorf("allocfn: %w: member %s is not in order", ErrInput, quote(m.Name))
		}
	}
	if in.Places != nil {
		return in.validatePlaces()
	}
	for i := 1; i < len(in.Partitions); i++ {
		a, b := &in.Partitions[i-1], &in.Partitions[i]
		next := b.ID == a.ID+1 && b.ID%10 > 0 // has as many digits, as most have
		if a.Topic == b.Topic && (next || textKey(a.ID) < textKey(b.ID)) {
			continue
		}
		switch Compare(*a, *b) {
		case 0:
			return fmt.Errorf("allocfn: %w: partition %s twice", ErrInput, quote(in.Partitions[i].String()))
		case 1:
			return fmt.Errorf("allocfn: %w: partition %s is not in order", ErrInput, quote(in.Partitions[i].String()))
		}
	}
	return nil
}

func (in Input) validatePlaces() error {
	if len(in.Places) != len(in.Partitions) {
		return fmt.Errorf("allocfn: %w: %d places for %d partitions", ErrInput, len(in.Places), len(in.Partitions))
	}
	seen := make(map[Partition]bool, len(in.Partitions))
	last := int32(-1)
	for i, p := range in.Partitions {
		if seen[p] {
			return fmt.Errorf("allocfn: %w: partition %s twice", ErrInput, quote(p.String()))
		}
		if in.Places[i] <= last {
			return fmt.Errorf("allocfn: %w: partition %s is not in order", ErrInput, quote(p.String()))
		}
		seen[p] = true
		last = in.Places[i]
	}
	return nil
}
