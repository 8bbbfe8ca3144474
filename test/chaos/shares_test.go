package chaos_test

import (
	"slices"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// shares is what the function gives to members: the owner of each partition.
func (f *fleet) shares(names ...string) map[int32]string {
	f.t.Helper()
	var in allocfn.Input
	for _, name := range slices.Sorted(slices.Values(names)) {
		in.Members = append(in.Members, allocfn.Member{Name: name})
	}
	var items []string
	for _, id := range f.ids() {
		items = append(items, f.partition(id))
	}
	in.Partitions, in.Places, _ = kiel.ParsePartitions(items)
	owners, err := allocfn.Call(allocfn.Balanced(), in)
	if err != nil {
		f.t.Fatal(err)
	}
	shares := map[int32]string{}
	for i, owner := range owners {
		shares[in.Partitions[i].ID] = in.Members[owner].Name
	}
	return shares
}

// moved lists the partitions that have another owner when one of some members is away.
func (f *fleet) moved(away string, names ...string) (list []int32) {
	f.t.Helper()
	with := f.shares(names...)
	without := f.shares(slices.DeleteFunc(names, func(name string) bool { return name == away })...)
	for _, id := range f.ids() {
		if with[id] != without[id] {
			list = append(list, id)
		}
	}
	return list
}

// owned says whether the working processes own everything, each what the function gives it, and have processed a message on each
// partition. (Shares that are even are not enough: they are for a moment while views differ.)
func (f *fleet) owned() bool {
	names, members, total := []string{}, map[string]*member{}, 0
	for _, m := range f.working() {
		names = append(names, m.Name)
		members[m.Name] = m
		total += len(m.held)
	}
	if len(names) == 0 || total != f.opts.partitions {
		return false
	}
	for id, owner := range f.shares(names...) {
		if own := members[owner].held[id]; own == nil || own.first == 0 {
			return false
		}
	}
	return true
}
