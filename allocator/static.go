package allocator

import (
	"bytes"
	"encoding/json"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// static is whether a record is that of a static member.
type static bool

// UnmarshalJSON takes what is not true for false. Such a record must not be a bad one, because members of versions that did not
// have the field take it for good, and all must compute the same mapping.
func (s *static) UnmarshalJSON(data []byte) error {
	*s = static(bytes.Equal(data, []byte("true")))
	return nil
}

// isStatic reports whether data is the record of a static member.
func isStatic(data []byte) bool {
	var r struct {
		Static static `json:"static"`
	}
	return json.Unmarshal(data, &r) == nil && bool(r.Static)
}

// staticOf returns party's Options.Static of a member.
func staticOf(opts Options, group, name string) *party.Static {
	if !opts.Static {
		return nil
	}
	return &party.Static{Guard: session.Join(pathsOf(group).static, name), Is: isStatic}
}

// sameMember reports whether two readings show the same member with the same record, as far as they show it: the czxid is not
// known of a member whose record is known by its hash. Another znode of the same name is another member, unless both are of a
// static member whose record is the same: then its process was started again.
func sameMember(a, b party.Member) bool {
	if a.Name != b.Name || !bytes.Equal(a.Data, b.Data) {
		return false
	}
	same := a.Session == b.Session && (a.Czxid == b.Czxid || a.Czxid == 0 || b.Czxid == 0)
	return same || a.Session != 0 && b.Session != 0 && a.Err == nil && b.Err == nil && isStatic(a.Data)
}

// Keep makes the coming end of Run leave this static member's znode in place: it stays until the ZooKeeper session ends, so that
// the next process of this name takes it over. Call it when the member has nothing to do any more, before Stop. Kept tells
// whether it was so. Without Options.Static, and after Leave, Keep has no effect.
func (a *PartitionAllocator) Keep() { a.party.Keep() }

// Kept reports whether Run has ended and left this member's znode in place, because of Keep. Then the program calls
// [session.Session.LetExpire].
func (a *PartitionAllocator) Kept() bool { return a.party.Kept() }
