package watched

import "github.com/kielgo/kiel/session"

// SameChildren reports whether a znode has the same children in two of its metadata, read under incarnations with the same
// History: none of them was created or deleted in between, nor the znode itself. Pzxid and Cversion alone do not show that: both
// no longer change after 2^31-1 creations.
func SameChildren(a, b session.Stat) bool {
	return a.Czxid == b.Czxid && a.Ctime == b.Ctime &&
		a.Pzxid == b.Pzxid && a.Cversion == b.Cversion && a.NumChildren == b.NumChildren
}
