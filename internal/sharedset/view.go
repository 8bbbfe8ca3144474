package sharedset

import (
	"slices"
	"time"

	"github.com/kielgo/kiel/session"
)

// View is what the set held when it was read. It never changes, and you must not change its Items.
type View struct {
	// Version grows by one when Exists, Items, Czxid, Ctime or Err changed. Views with the same version differ only in their
	// time, DataVersion, Mzxid and Incarnation.
	Version uint64

	Items  []string // the items, sorted bytewise, unique; the last good ones if Err is set
	Exists bool     // whether the znode existed; an empty set may exist
	Czxid  int64    // the zxid of the znode's creation; 0 if it does not exist
	Ctime  int64    // the time of the znode's creation, by the servers' clock, in ms since 1970; 0 if it does not exist
	Mzxid  int64    // the zxid of the znode's last change; 0 if it does not exist

	// DataVersion is how often the znode's data was written since its creation. It never falls while the znode lives, unless the
	// servers were restored from a backup.
	DataVersion int32

	Err error // why Items may be outdated: ErrUnreadable, or a read that was refused

	Incarnation *session.Incarnation // the incarnation under which it was read
	At          time.Time            // when it was read, or found to be unchanged

	stamp stamp // the data that were read for this view; zero if there were none
}

// stamp identifies the data of a znode among those before and after, as long as servers lose none of it.
type stamp struct{ czxid, mzxid, ctime, mtime int64 }

func stampOf(stat session.Stat) stamp {
	return stamp{stat.Czxid, stat.Mzxid, stat.Ctime, stat.Mtime}
}

// viewOf returns the view of a znode that exists, without its items.
func viewOf(stat session.Stat) *View {
	return &View{
		Exists: true, Czxid: stat.Czxid, Ctime: stat.Ctime, Mzxid: stat.Mzxid, DataVersion: stat.Version, stamp: stampOf(stat),
	}
}

// again returns a view of the same data, without what Set.complete fills in.
func (v *View) again() *View {
	return &View{
		Items: v.Items, Exists: v.Exists, Czxid: v.Czxid, Ctime: v.Ctime, Mzxid: v.Mzxid, DataVersion: v.DataVersion,
		Err: v.Err, stamp: v.stamp,
	}
}

// SameZnode reports whether two views are of the same znode, which was not deleted in between. Czxid alone does not show that:
// servers that lost their data count from the beginning again.
func (v *View) SameZnode(o *View) bool {
	return v.Exists == o.Exists && v.Czxid == o.Czxid && v.Ctime == o.Ctime
}

// sameContent reports whether two views say the same about the set.
func (v *View) sameContent(o *View) bool {
	return v.SameZnode(o) && errText(v.Err) == errText(o.Err) && slices.Equal(v.Items, o.Items)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// newer reports whether v differs from the view before in content, in how often the znode was written, or in incarnation.
func newer(before, v *View) bool {
	return v.Version != before.Version || v.DataVersion != before.DataVersion || v.Incarnation != before.Incarnation
}
