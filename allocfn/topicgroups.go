package allocfn

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kielgo/kiel"
)

// topicGroup is a group of topics that the same members ask for.
type topicGroup struct {
	first      string  // the first of its topics, byte by byte
	askers     []int32 // the members that ask for its topics, as indices, growing
	partitions []int32 // the partitions of its topics, as indices, growing
}

// groupByAskers returns the groups of the topics of in, in the order in which they are divided: by the number of askers, then by
// the first topic. A topic that no member asks for is divided as if all asked for it.
//
// It returns nil if all members ask for all topics that any member asks for: then topics make no difference.
func groupByAskers(in Input) []topicGroup {
	if haveOneList(in.Members) {
		return nil
	}
	wishes := newWishes(in)
	groupOf, count := wishes.refine()
	groups := wishes.askers(groupOf, count)
	sizes := make([]int32, len(groups))
	for _, t := range wishes.topicOf {
		sizes[groupOf[t]]++
	}
	for g, size := range sizes {
		groups[g].partitions = make([]int32, 0, size)
	}
	for i, t := range wishes.topicOf {
		g := &groups[groupOf[t]]
		g.partitions = append(g.partitions, int32(i))
	}
	if len(groups) == 1 && len(groups[0].askers) == len(in.Members) {
		return nil
	}
	slices.SortFunc(groups, func(a, b topicGroup) int {
		return cmp.Or(cmp.Compare(len(a.askers), len(b.askers)), strings.Compare(a.first, b.first))
	})
	return groups
}

// groupsOf returns the group of each partition of ps, as an index in groups.
func groupsOf(ps []kiel.Partition, groups []topicGroup) []int32 {
	groupOf := make([]int32, len(ps))
	for g := range groups {
		for _, i := range groups[g].partitions {
			groupOf[i] = int32(g)
		}
	}
	return groupOf
}

// haveOneList reports whether all members have the same list of topics.
func haveOneList(members []Member) bool {
	for i := 1; i < len(members); i++ {
		if !sameList(members[i-1].Topics, members[i].Topics) {
			return false
		}
	}
	return true
}

// sameList reports whether two lists of topics are equal. It does not read the lists if they share their memory.
func sameList(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// wishes says who asks for which of the topics that have partitions.
type wishes struct {
	listOf  []int32   // the list of topics of each member, as a number
	asked   [][]int32 // the topics of each list, none twice; nil for all
	names   []string  // of the topics
	topicOf []int32   // the topic of each partition
}

func newWishes(in Input) *wishes {
	w := &wishes{topicOf: make([]int32, 0, len(in.Partitions))}
	numbers := make(map[string]int32)
	for from, to := range topics(in.Partitions) {
		name := in.Partitions[from].Topic
		t, known := numbers[name]
		if !known {
			t = int32(len(w.names))
			numbers[name] = t
			w.names = append(w.names, name)
		}
		for range to - from {
			w.topicOf = append(w.topicOf, t)
		}
	}
	lists, listOf := internLists(in.Members)
	w.listOf = listOf
	last := make([]int, len(w.names)) // the last list in which a topic was found, from 1
	for l, list := range lists {
		var asked []int32
		if len(list) > 0 {
			asked = make([]int32, 0, min(len(list), len(w.names)))
		}
		for _, name := range list {
			if t, ok := numbers[name]; ok && last[t] != l+1 {
				last[t] = l + 1
				asked = append(asked, t)
			}
		}
		w.asked = append(w.asked, asked)
	}
	return w
}

// internLists returns the different lists of topics of the members, and the number of each member's.
func internLists(members []Member) (lists [][]string, listOf []int32) {
	type place struct { // of a list in memory
		first  *string
		length int
	}
	places := make(map[place]int32)
	hashes := make(map[uint64][]int32)
	listOf = make([]int32, len(members))
	for m := range members {
		list := members[m].Topics
		at := place{length: len(list)}
		if len(list) > 0 {
			at.first = &list[0]
		}
		number, known := places[at]
		if !known {
			number = int32(len(lists))
			hash := hashList(list)
			for _, l := range hashes[hash] {
				if sameList(lists[l], list) {
					number = l
				}
			}
			if int(number) == len(lists) {
				lists = append(lists, list)
				hashes[hash] = append(hashes[hash], number)
			}
			places[at] = number
		}
		listOf[m] = number
	}
	return lists, listOf
}

func hashList(list []string) uint64 {
	var h uint64
	for _, topic := range list {
		h = fmix(h + phi ^ hashName(topic))
	}
	return h
}

// refine puts topics that the same lists name into one group, and topics that no list names into the group of those that all
// lists name. It returns the group of each topic, from 0, and the number of groups.
func (w *wishes) refine() (groupOf []int32, count int) {
	groupOf = make([]int32, len(w.names))
	named := make([]int, len(w.names)) // by how many lists
	next := int32(1)
	split := make(map[int32]int32) // by group, the group of those of it that the list names
	for _, asked := range w.asked {
		clear(split)
		if asked == nil {
			for t := range named {
				named[t]++
			}
		}
		for _, t := range asked {
			named[t]++
			group, ok := split[groupOf[t]]
			if !ok {
				group = next
				next++
				split[groupOf[t]] = group
			}
			groupOf[t] = group
		}
	}
	numbers := make(map[int32]int32) // of the groups that are not empty
	for t, group := range groupOf {
		if named[t] == 0 || named[t] == len(w.asked) {
			group = next // that of all lists
		}
		number, ok := numbers[group]
		if !ok {
			number = int32(len(numbers))
			numbers[group] = number
		}
		groupOf[t] = number
	}
	return groupOf, len(numbers)
}

// askers returns the groups of topics with their askers and their first topics; count is the number of groups.
func (w *wishes) askers(groupOf []int32, count int) []topicGroup {
	groups := make([]topicGroup, count)
	one := make([]int32, count) // a topic of each group, from 1
	for t, name := range w.names {
		g := groupOf[t]
		if one[g] == 0 || name < groups[g].first {
			groups[g].first = name
		}
		one[g] = int32(t) + 1
	}
	lists := make([][]int32, count) // those that name the topics of each group
	for l, asked := range w.asked {
		for _, t := range asked {
			if g := groupOf[t]; one[g] == t+1 {
				lists[g] = append(lists[g], int32(l))
			}
		}
	}
	asks := make([]bool, len(w.asked))
	for g := range groups {
		for l, asked := range w.asked {
			asks[l] = asked == nil
		}
		for _, l := range lists[g] {
			asks[l] = true
		}
		nobody := !slices.Contains(asks, true)
		for m, l := range w.listOf {
			if asks[l] || nobody {
				groups[g].askers = append(groups[g].askers, int32(m))
			}
		}
	}
	return groups
}

// fillUp divides topics group by group. divide gets a group's part of in, with only those of its askers that are below the level
// to which the group fills them, and what each of these has of the groups before. divide must keep neither.
func fillUp(in Input, groups []topicGroup, divide func(group Input, have []int32, l level) (Assignment, error)) (Assignment, error) {
	a := make(Assignment, len(in.Partitions))
	total := make([]int32, len(in.Members))
	have := make([]int32, 0, len(in.Members))
	part := Input{Members: make([]Member, 0, len(in.Members)), Zones: in.Zones}
	for _, g := range groups {
		have, part.Members, part.Partitions = have[:0], part.Members[:0], part.Partitions[:0]
		for _, m := range g.askers {
			part.Members = append(part.Members, in.Members[m])
			have = append(have, total[m])
		}
		for _, i := range g.partitions {
			part.Partitions = append(part.Partitions, in.Partitions[i])
		}
		l := levelOf(part.Members, have, len(part.Partitions))
		for k, m := range l.members {
			part.Members[k], have[k] = part.Members[m], have[m]
		}
		part.Members, have = part.Members[:len(l.members)], have[:len(l.members)]
		owners, err := divide(part, have, l)
		if err != nil {
			return nil, err
		}
		for k, i := range g.partitions {
			a[i] = g.askers[l.members[owners[k]]]
			total[a[i]]++
		}
	}
	return a, nil
}
