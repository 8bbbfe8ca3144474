package allocfn

import (
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
)

// Member is a member of the group as an allocation function sees it.
type Member struct {
	Name   string
	Weight int      // its share in proportion to the other weights; 0 counts as 1
	Zone   string   // the zone it runs in; "" is unknown
	Topics []string // the topics it asks for, in any order; an empty list asks for all
}

// Input is all that an allocation function may decide on. All members of a group must come to equal inputs.
type Input struct {
	// Members are sorted by name, byte by byte; no name is there twice.
	Members []Member
	// Partitions are in kiel's order, that of [kiel.SortPartitions], or with Places in the order of [kiel.ParsePartitions]; none
	// is there twice.
	Partitions []kiel.Partition
	// Places holds for each partition its place among the items that a Python member counts, in growing order; see
	// [kiel.ParsePartitions]. With nil, partition k is at place k. RoundRobin goes by places, others need not.
	Places []int32
	// Zones holds the zone, Kafka's rack (KIP-881), in which a partition is best consumed. A partition without an entry has no
	// zone.
	Zones map[kiel.Partition]string
}

// Assignment says who owns what: Assignment[i] is the index in Input.Members of the owner of Input.Partitions[i].
type Assignment []int32

// Func is an allocation function.
type Func struct {
	// Name is 1 to 64 of a-z, 0-9 and -. Members of a group agree on Name and Version, see [Func.ID].
	Name string
	// Version is a number from 1 on; 0 counts as 1. A change of the code that changes any result needs a new version: members of
	// two versions that publish the same one would own partitions twice or not at all.
	Version int

	// Assign assigns each partition to one member. It must be total and pure (the result depends on the input alone, in every
	// process), and must neither change its input nor block. It is called with at least one member and one partition, from any
	// goroutine.
	Assign func(Input) (Assignment, error)

	// readOnly is a function of this package that does not change its input. If it is Assign, too, Call passes the input without
	// a copy.
	readOnly func(Input) (Assignment, error)
}

// copies reports whether Call passes a copy of the input to f.Assign. It compares the functions by their code, since readOnly
// captures no variables.
func (f Func) copies() bool {
	return reflect.ValueOf(f.Assign).Pointer() != reflect.ValueOf(f.readOnly).Pointer()
}

// ID returns name and version in one text, as in "balanced/1". A member publishes the ids of all functions that it can run.
func (f Func) ID() string { return f.Name + "/" + strconv.Itoa(max(f.Version, 1)) }

// maxVersion is the highest version of a function.
const maxVersion = 1_000_000

// ParseID reads the id of a function, as [Func.ID] writes it, and returns it. A name alone is the id of version 1. The error
// wraps [ErrFunc].
func ParseID(s string) (id string, err error) {
	f := Func{Version: 1}
	name, version, given := strings.Cut(s, "/")
	f.Name = name
	if given {
		f.Version, err = strconv.Atoi(version)
		if err != nil || f.Version < 1 || version != strconv.Itoa(f.Version) {
			return "", named(fmt.Errorf("%w: version %s must be a number from 1 on", ErrFunc, quote(version)))
		}
	}
	if err := f.validateID(); err != nil {
		return "", named(err)
	}
	return f.ID(), nil
}

func (f Func) validateID() error {
	if f.Name == "" || len(f.Name) > 64 || strings.Trim(f.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("%w: name %s must be 1 to 64 of a-z, 0-9 and -", ErrFunc, quote(f.Name))
	}
	if f.Version < 0 {
		return fmt.Errorf("%w: version %d of %s is less than 0", ErrFunc, f.Version, f.Name)
	}
	if f.Version > maxVersion {
		return fmt.Errorf("%w: version %d of %s is more than %d", ErrFunc, f.Version, f.Name, maxVersion)
	}
	return nil
}

// Validate returns an error that wraps [ErrFunc] when f can't be used.
func (f Func) Validate() error {
	if err := f.validateID(); err != nil {
		return named(err)
	}
	if f.Assign == nil {
		return named(fmt.Errorf("%w: %s has no Assign", ErrFunc, f.Name))
	}
	return nil
}

// Call runs f on in and checks the result: the assignment that it returns assigns each partition to one member of in. A panic of
// f, an error of f and a result that [Check] refuses become errors that name the function; see the errors of this package. f
// can't change in: a function that is not of this package gets copies of the members, partitions and zones.
//
// Without members or without partitions Call does not call f, and the assignment is empty.
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
	a, err := f.guard(given)
	if err != nil {
		return nil, named(err)
	}
	if err := check(in, a); err != nil {
		return nil, named(f.failed(err))
	}
	return a, nil
}

// failed returns an error of the function with its name.
func (f Func) failed(err error) error { return operr.New("", "allocation function", f.Name, err) }

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

// guard calls a function and turns a panic into an error.
func (f Func) guard(in Input) (a Assignment, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack(), name: f.Name}
		}
	}()
	if a, err = f.Assign(in); err != nil {
		return nil, f.failed(err)
	}
	return a, nil
}

// Check returns an error unless a assigns each partition of in to one member of in: [ErrUnassigned] for a partition without an
// owner (−1, or beyond the end of a), [ErrUnknownTarget] for an owner that is not the index of a member, or for more owners than
// partitions. Without members an empty assignment is right.
func Check(in Input, a Assignment) error { return named(check(in, a)) }

func check(in Input, a Assignment) error {
	if len(in.Members) == 0 && len(a) == 0 {
		return nil
	}
	for i, p := range in.Partitions {
		switch {
		case i >= len(a) || a[i] == -1:
			return fmt.Errorf("%w: %s", ErrUnassigned, quote(p.String()))
		case a[i] < 0 || int(a[i]) >= len(in.Members):
			return fmt.Errorf("%w: %s assigned to member %d of %d", ErrUnknownTarget, quote(p.String()), a[i], len(in.Members))
		}
	}
	if len(a) > len(in.Partitions) {
		return fmt.Errorf("%w: %d owners for %d partitions", ErrUnknownTarget, len(a), len(in.Partitions))
	}
	return nil
}

// Validate returns an error that wraps [ErrInput] and names the first member or partition that is not as Input documents it.
func (in Input) Validate() error { return named(in.validate()) }

func (in Input) validate() error {
	for i := range in.Members {
		m := &in.Members[i]
		if m.Weight < 0 {
			return fmt.Errorf("%w: member %s has weight %d", ErrInput, quote(m.Name), m.Weight)
		}
		if i == 0 {
			continue
		}
		switch strings.Compare(in.Members[i-1].Name, m.Name) {
		case 0:
			return fmt.Errorf("%w: member %s twice", ErrInput, quote(m.Name))
		case 1:
			return fmt.Errorf("%w: member %s is not in order", ErrInput, quote(m.Name))
		}
	}
	if in.Places != nil {
		return in.validatePlaces()
	}
	for i := 1; i < len(in.Partitions); i++ {
		a, b := &in.Partitions[i-1], &in.Partitions[i]
		next := b.ID == a.ID+1 && b.ID%10 > 0 // has as many digits, as most have
		if next && a.Topic == b.Topic {
			continue
		}
		switch a.Compare(*b) {
		case 0:
			return fmt.Errorf("%w: partition %s twice", ErrInput, quote(in.Partitions[i].String()))
		case 1:
			return fmt.Errorf("%w: partition %s is not in order", ErrInput, quote(in.Partitions[i].String()))
		}
	}
	return nil
}

func (in Input) validatePlaces() error {
	if len(in.Places) != len(in.Partitions) {
		return fmt.Errorf("%w: %d places for %d partitions", ErrInput, len(in.Places), len(in.Partitions))
	}
	seen := make(map[kiel.Partition]bool, len(in.Partitions))
	last := int32(-1)
	for i, p := range in.Partitions {
		if seen[p] {
			return fmt.Errorf("%w: partition %s twice", ErrInput, quote(p.String()))
		}
		if in.Places[i] <= last {
			return fmt.Errorf("%w: partition %s is not in order", ErrInput, quote(p.String()))
		}
		seen[p] = true
		last = in.Places[i]
	}
	return nil
}
