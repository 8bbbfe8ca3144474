package allocator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/party"
)

// member is a member as the choice of the function sees it.
type member struct {
	allocfn.Member
	runs []string // IDs of functions, the preferred first
}

// readMembers reads the records of the members. A member without a record, or
// with one that is no good, runs pythonFunc; the second is reported.
func readMembers(ms []party.Member, pythonFunc string) (members []member, faults []error) {
	members = make([]member, len(ms))
	for i, m := range ms {
		members[i] = member{Member: allocfn.Member{Name: m.Name}, runs: []string{pythonFunc}}
		r, ok, err := parseRecord(m.Data)
		if m.Err != nil {
			err = fmt.Errorf("%w: %w", ErrBadRecord, m.Err)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("allocator: member %q: %w", m.Name, err))
		}
		if err == nil && ok {
			members[i] = member{allocfn.Member{Name: m.Name, Weight: r.Weight, Zone: r.Zone, Topics: r.Topics}, r.Functions}
		}
	}
	return members, faults
}

// chooseFunc returns the function that the group runs: the first in the list
// of the first member that all members can run. have are those that this
// member has. Without members any will do.
func chooseFunc(members []member, have []allocfn.Func) (allocfn.Func, error) {
	if len(members) == 0 {
		return have[0], nil
	}
	for _, id := range members[0].runs {
		if slices.ContainsFunc(members, func(m member) bool { return !slices.Contains(m.runs, id) }) {
			continue
		}
		i := slices.IndexFunc(have, func(f allocfn.Func) bool { return f.ID() == id })
		if i < 0 { // possible only while we are no member
			return allocfn.Func{}, fmt.Errorf("%w: the group runs %s, which this member does not have", ErrFuncMismatch, id)
		}
		return have[i], nil
	}
	return allocfn.Func{}, fmt.Errorf("%w: %s", ErrFuncMismatch, whoRunsWhat(members))
}

// maxNamed is how many of a kind an error names.
const maxNamed = 5

// whoRunsWhat tells the lists of functions apart, in the order of the first
// member of each.
func whoRunsWhat(members []member) string {
	var lists []string
	who := make(map[string][]string)
	for _, m := range members {
		list := strings.Join(m.runs, ", ")
		if who[list] == nil {
			lists = append(lists, list)
		}
		who[list] = append(who[list], fmt.Sprintf("%q", m.Name))
	}
	var parts []string
	for _, list := range lists {
		parts = append(parts, fmt.Sprintf("%s can run %s", names(who[list]), list))
	}
	return strings.Join(parts, "; ")
}

// names joins the first names and counts the rest.
func names(all []string) string {
	if more := len(all) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), more)
	}
	return strings.Join(all, ", ")
}
