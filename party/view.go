package party

import (
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/session"
)

// Member is one child of the directory.
type Member struct {
	Name string
	// Czxid says which znode of that name it is: a member that went and came
	// back has another. 0 when even that can't be read.
	Czxid int64
	// Mzxid is larger than Czxid if somebody changed the record in place.
	Mzxid int64
	// Ctime is when the znode was created, by the servers' clock, in ms since 1970. 0 when that can't be read.
	Ctime int64
	// Session is the id of the ZooKeeper session that owns the znode; 0 when
	// none does, and it stays until somebody deletes it.
	Session int64
	// Data is the member's record; nil when Err is set.
	Data []byte
	// Err says why the record can't be had: ErrRecordTooLarge, or an error of
	// package session. The member counts all the same.
	Err error
}

// View is who is in the directory. It never changes; don't change it either.
type View struct {
	// Version grows by one with each change: of the members, of Joined, of
	// NameHeld, of the Incarnation, or of a record that somebody changed in place.
	Version uint64
	// Members, sorted by name byte by byte.
	Members []Member
	// Joined says whether our own znode is among them.
	Joined bool
	// NameHeld wraps ErrNameHeld while another session holds our name and we wait
	// for it to go; otherwise it is nil.
	NameHeld error
	// Incarnation is the one under which the members were read.
	Incarnation *session.Incarnation
	// At is when the members were last read from ZooKeeper. [Party.View] may
	// return a view of the same version with a later time.
	At time.Time
}

// Member returns the member of that name.
func (v *View) Member(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(v.Members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return Member{}, false
	}
	return v.Members[i], true
}

// same says whether v tells nothing new after old. Mzxids differ when czxids
// do, and who has joined when the members differ.
func (v *View) same(old *View) bool {
	return old != nil && v.Incarnation == old.Incarnation && v.NameHeld == old.NameHeld && //nolint:errorlint // the same value
		slices.EqualFunc(v.Members, old.Members, func(a, b Member) bool {
			return a.Name == b.Name && a.Mzxid == b.Mzxid && (a.Err == nil) == (b.Err == nil)
		})
}
