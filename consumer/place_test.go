package consumer

import (
	"slices"
	"testing"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/session"
)

// The group's znode was created again: a member's own commits, which have the former ID, are of its tree. An offset of a tree
// that it never was in, and a newer token in its own, stay findings. In another session a former ID says nothing.
func TestFormerIDsOfTheTreeAreOwn(t *testing.T) {
	var tr tree
	inc, next := new(session.Incarnation), new(session.Incarnation)
	one, two, three, other := offsets.ID{1}, offsets.ID{2}, offsets.ID{3}, offsets.ID{9}
	for _, id := range []offsets.ID{one, two, two, three} {
		tr.store(inc, id)
	}
	at := func(id offsets.ID, token int64) offsets.Finding {
		return offsets.Finding{
			Discord: offsets.OtherTree, Stored: offsets.Stored{Token: token, Place: offsets.Place{Tree: id}}, Token: 7, Place: offsets.Place{Tree: three},
		}
	}
	judge := func(inc *session.Incarnation) (discords []offsets.Discord) {
		had := func(id offsets.ID) bool { return tr.had(inc, id) }
		for _, f := range inOneTree([]offsets.Finding{at(one, 7), at(two, 6), at(one, 8), at(other, 6)}, had) {
			discords = append(discords, f.Discord)
		}
		return discords
	}
	if got, want := judge(inc), []offsets.Discord{offsets.NewerOwner, offsets.OtherTree}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	tr.store(next, three)
	if got := judge(next); len(got) != 4 || slices.Contains(got, offsets.NewerOwner) {
		t.Errorf("in another session: %q", got)
	}
}
