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
	// Czxid is the zxid of the znode's creation: a member that left and joined again has another one. 0 if the metadata can't be
	// read, and if the record is known by its hash: then Mzxid and Ctime are 0, too, and Session is not.
	Czxid int64
	// Mzxid is the zxid of the last write of the record: it is larger than Czxid if somebody changed the record in place.
	Mzxid int64
	// Ctime is when the znode was created, by the servers' clock, in ms since 1970. 0 if the metadata can't be read.
	Ctime int64
	// Session is the id of the ZooKeeper session that owns the znode. 0 means that none does: the znode is persistent, and stays
	// until somebody deletes it; or that the metadata can't be read. If the record is known by its hash, Session is what the
	// member says of itself.
	Session int64
	// Data is the member's record; nil if Err is set.
	Data []byte
	// Err is why the record can't be read: ErrRecordTooLarge, or an error of package session. The znode counts as a member all
	// the same.
	Err error

	hash recordHash // by which the record is known; zero if the member's znode was read
}

// View is the members of a directory at one moment. It never changes, and must not be changed.
type View struct {
	// Version grows by one with each change: of the members, of Joined, of NameHeld, of the text of Err, of the Incarnation, or
	// of a record that somebody changed in place.
	Version uint64
	// Members are sorted by name byte by byte.
	Members []Member
	// Joined reports whether the Party's own znode is among Members, and stands as far as is known.
	Joined bool
	// NameHeld wraps ErrNameHeld while another session holds the Party's name and the Party waits for that znode to go; otherwise
	// it is nil.
	NameHeld error
	// Err is why the servers refused the last attempt to create this member's znode, to read the directory or to leave it, such
	// as session.ErrNoAuth and session.ErrQuotaExceeded; nil after an attempt that they did not refuse. The Party tries again.
	// Unless the znode alone is refused, Members are those that were read last.
	Err error
	// Incarnation is the incarnation of the session under which the members were read, or, if Err is set, a later one of the same
	// ZooKeeper session, under which reading them was refused. It is nil if they were never read because that was refused.
	Incarnation *session.Incarnation
	// At is when the members were last read from ZooKeeper. [Party.View] may return a view of the same version with a later time.
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

// same reports whether v differs from old only in Version and At. Equal mzxids mean equal czxids.
func (v *View) same(old *View) bool {
	return old != nil && v.Incarnation == old.Incarnation && v.Joined == old.Joined && text(v.Err) == text(old.Err) &&
		v.NameHeld == old.NameHeld && //nolint:errorlint // the same value
		slices.EqualFunc(v.Members, old.Members, func(a, b Member) bool {
			return a.Name == b.Name && a.Mzxid == b.Mzxid && a.Session == b.Session && a.hash == b.hash && (a.Err == nil) == (b.Err == nil)
		})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
