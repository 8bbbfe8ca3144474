package session

import (
	"context"
	"errors"
)

// Mode is the kind of znode to create.
type Mode int32

// The modes, by ZooKeeper's numbers.
const (
	Persistent           Mode = 0
	Ephemeral            Mode = 1
	PersistentSequential Mode = 2
	EphemeralSequential  Mode = 3
)

// Op is one operation of a Multi.
type Op struct {
	kind    int32
	path    string
	data    []byte
	mode    Mode
	version int32
}

// CreateOp creates a znode with the options' ACL.
func CreateOp(path string, data []byte, mode Mode) Op { return Op{kind: 1, path: path, data: data, mode: mode} }

// SetOp writes a znode's data if it has the version; -1 is any.
func SetOp(path string, data []byte, version int32) Op {
	return Op{kind: 5, path: path, data: data, version: version}
}

// DeleteOp deletes a znode if it has the version; -1 is any.
func DeleteOp(path string, version int32) Op { return Op{kind: 2, path: path, version: version} }

// CheckOp refuses the Multi unless the znode has the version; -1 is any.
func CheckOp(path string, version int32) Op { return Op{kind: 13, path: path, version: version} }

// OpSize is how many bytes op adds to a packet.
func OpSize(op Op) int { return 256 + len(op.path) + len(op.data) }

// OpResult is the result of one operation of a Multi.
type OpResult struct {
	Path string // of what CreateOp created
	Stat Stat   // of what SetOp wrote
}

var errTODO = errors.New("session: not written yet")

func (i *Incarnation) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	return nil, Stat{}, errTODO
}
func (i *Incarnation) GetW(ctx context.Context, path string) ([]byte, Stat, *Watch, error) {
	return nil, Stat{}, nil, errTODO
}
func (i *Incarnation) Children(ctx context.Context, path string) ([]string, Stat, error) {
	return nil, Stat{}, errTODO
}
func (i *Incarnation) ChildrenW(ctx context.Context, path string) ([]string, Stat, *Watch, error) {
	return nil, Stat{}, nil, errTODO
}
func (i *Incarnation) Exists(ctx context.Context, path string) (bool, Stat, error) {
	return false, Stat{}, errTODO
}
func (i *Incarnation) ExistsW(ctx context.Context, path string) (bool, Stat, *Watch, error) {
	return false, Stat{}, nil, errTODO
}
func (i *Incarnation) GetACL(ctx context.Context, path string) ([]ACL, Stat, error) {
	return nil, Stat{}, errTODO
}
func (i *Incarnation) Create(ctx context.Context, path string, data []byte, mode Mode) (string, error) {
	return "", errTODO
}
func (i *Incarnation) EnsurePath(ctx context.Context, path string) error { return errTODO }
func (i *Incarnation) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	return Stat{}, errTODO
}
func (i *Incarnation) Delete(ctx context.Context, path string, version int32) error { return errTODO }
func (i *Incarnation) Multi(ctx context.Context, ops ...Op) ([]OpResult, error) {
	return nil, errTODO
}
func (i *Incarnation) Sync(ctx context.Context, path string) error { return errTODO }
func (i *Incarnation) EphemeralBytes() (used, budget int)          { return 0, 0 }
func (i *Incarnation) MaxPacket() int                              { return defaultMaxPacket }
