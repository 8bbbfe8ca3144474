package allocator

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/party"
)

// member is a member of the group with what its record says.
type member struct {
	allocfn.Member
	record *record  // nil if it is bad or there is none; members may share it, and nobody changes it
	runs   []string // IDs of the functions that the member can run, the preferred first
	fault  error    // why the record is bad, nil if it is good or there is none
}

// recorded reports whether the member has a good record.
func (m *member) recorded() bool { return m.record != nil }

// cluster returns what the record names, "" if there is none.
func (m *member) cluster() cluster {
	if m.record == nil {
		return ""
	}
	return m.record.Cluster
}

// patterns returns the record's list of topics if it has patterns, and nil otherwise. Then Topics are those that the patterns
// find.
func (m *member) patterns() *topiclist.List {
	if m.record == nil || !m.record.asks.HasPatterns() {
		return nil
	}
	return m.record.asks
}

// asksFor returns the topics in the member's record.
func (m *member) asksFor() []string {
	if list := m.patterns(); list != nil {
		return list.Entries
	}
	return m.Topics
}

// readMembers parses the records of the members. Records that are the same in known are taken from there. same reports whether
// all are, and known has no other members. Neighbours with equal records share their lists.
func readMembers(ms []party.Member, pythonFunc string, known *inputs) (members []member, same bool) {
	members, same = make([]member, len(ms)), len(ms) == len(known.members)
	lists := &listCache{known: known.found}
	k := 0
	for i, m := range ms {
		for k < len(known.members) && known.members[k].Name < m.Name {
			k++
		}
		switch {
		case k < len(known.members) && sameRecord(known.members[k], m):
			members[i] = known.read[k]
			continue
		case i > 0 && members[i-1].recorded() && m.Err == nil && bytes.Equal(ms[i-1].Data, m.Data):
			members[i] = members[i-1]
			members[i].Name = m.Name
		default:
			members[i] = readMember(m, pythonFunc, lists)
		}
		same = false
	}
	return members, same
}

// readMember parses the record of one member. A member without a record, or with a bad one, runs pythonFunc.
func readMember(m party.Member, pythonFunc string, lists *listCache) member {
	r, ok, err := parseRecord(m.Data, lists.parse)
	if m.Err != nil {
		err = operr.Because(ErrBadRecord, m.Err)
	}
	switch {
	case err != nil:
		err = operr.New("", "member", strconv.Quote(m.Name), err)
		fallthrough
	case !ok:
		return member{Member: allocfn.Member{Name: m.Name}, runs: []string{pythonFunc}, fault: err}
	default:
		read := member{Member: allocfn.Member{Name: m.Name, Weight: r.Weight, Zone: r.Zone}, record: &r, runs: r.Functions}
		if read.patterns() == nil {
			read.Topics = r.asks.Names // otherwise inputs.findTopics finds the topics
		}
		return read
	}
}

// sameRecord reports whether two members have the same name and the same readable record.
func sameRecord(a, b party.Member) bool {
	return a.Name == b.Name && a.Err == nil && b.Err == nil && bytes.Equal(a.Data, b.Data)
}

// chooseFunc returns the function that the group runs: the first function in the list of the first member that all members can
// run. have are the functions of this member. Without members it returns the first of have.
func chooseFunc(members []member, have []allocfn.Func) (allocfn.Func, error) {
	if len(members) == 0 {
		return have[0], nil
	}
	id, ok := commonFunc(members)
	if !ok {
		return allocfn.Func{}, fmt.Errorf("%w: %s", ErrFuncMismatch, whoRunsWhat(members))
	}
	i := slices.IndexFunc(have, func(f allocfn.Func) bool { return f.ID() == id })
	if i < 0 { // possible only while this member has not joined
		return allocfn.Func{}, fmt.Errorf("%w: the group runs %s, which this member does not have", ErrFuncMismatch, id)
	}
	return have[i], nil
}

// commonFunc returns the ID of the first function in the list of the first member that all members can run.
func commonFunc(members []member) (id string, ok bool) {
	for _, id := range members[0].runs {
		if !slices.ContainsFunc(members, func(m member) bool { return !slices.Contains(m.runs, id) }) {
			return id, true
		}
	}
	return "", false
}

// whoRunsWhat returns a text that names, for each different list of functions, the members that have it, in the order of the
// first of them.
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
	if more := len(all) - statuswrite.MaxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:statuswrite.MaxNames], ", "), more)
	}
	return strings.Join(all, ", ")
}
