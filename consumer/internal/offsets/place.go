package offsets

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// ID is a hash that tells trees or clusters apart. Zero is unknown.
type ID [8]byte

// String returns the ID in hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Place is where a commit was made. Each commit has it in its metadata.
type Place struct {
	Tree    ID // the znode of the group, and so the servers and the chroot
	Cluster ID // the Kafka cluster
}

// sameTree reports whether two Places may be in one tree. An unknown tree may be any.
func (p Place) sameTree(other Place) bool {
	return p.Tree == other.Tree || p.Tree == (ID{}) || other.Tree == (ID{})
}

// TreeID returns the ID of a tree, by the czxid of the group's znode and the time of its creation in milliseconds. Trees that
// were copied from one backup have one ID.
func TreeID(czxid, ctime int64) ID {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(czxid))
	binary.BigEndian.PutUint64(b[8:], uint64(ctime))
	return hashed(b[:])
}

// ClusterID returns the ID of a cluster of Kafka by the text that Kafka has for it; zero if that is empty.
func ClusterID(text string) ID {
	if text == "" {
		return ID{}
	}
	return hashed([]byte(text))
}

func hashed(b []byte) ID {
	sum := sha256.Sum256(b)
	return ID(sum[:len(ID{})])
}
