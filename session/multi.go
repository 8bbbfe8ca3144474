package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// Op is one operation of a Multi; make it with CreateOp, SetOp, DeleteOp or CheckOp.
type Op struct {
	op      int32
	path    string
	data    []byte
	mode    Mode
	version int32
}

// CreateOp creates a znode with Options.ACL. nil data is stored as empty data.
func CreateOp(path string, data []byte, mode Mode) Op {
	return Op{op: opCreate, path: path, data: data, mode: mode}
}

// SetOp writes a znode's data if the znode has that version; -1 means any version. nil data is stored as empty data.
func SetOp(path string, data []byte, version int32) Op {
	return Op{op: opSetData, path: path, data: data, version: version}
}

// stored returns data, and empty data for nil: on the wire the two differ, and Python reads nil as None.
func stored(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// DeleteOp deletes a znode if it has that version; -1 means any version.
func DeleteOp(path string, version int32) Op { return Op{op: opDelete, path: path, version: version} }

// CheckOp makes the servers refuse the Multi unless the znode has that version; -1 means any version.
func CheckOp(path string, version int32) Op { return Op{op: opCheck, path: path, version: version} }

// OpResult is the result of one operation of a Multi.
type OpResult struct {
	Path string // of the znode that a CreateOp created
	Stat Stat   // of the znode that a SetOp wrote
}

const (
	requestHeaderSize = 8
	multiHeaderSize   = 9
)

// multi is the name of a Multi in errors.
const multi = "multi"

// size returns how many bytes o takes without its header, with a chroot of that length.
func (o Op) size(acl []ACL, chroot int) int {
	path := 4 + chroot + len(o.path)
	switch o.op {
	case opCreate:
		size := path + 4 + len(o.data) + 4 + 4
		for _, a := range acl {
			size += 4 + 4 + len(a.Scheme) + 4 + len(a.ID)
		}
		return size
	case opSetData:
		return path + 4 + len(o.data) + 4
	default:
		return path + 4
	}
}

// check returns an error unless ZooKeeper would accept the mode and the path.
func (o Op) check() error {
	path := o.path
	if o.op == opCreate {
		if o.mode < Persistent || o.mode > EphemeralSequential {
			return fmt.Errorf("unknown mode %d", o.mode)
		}
		if o.mode.sequential() && len(path) > 1 && path[len(path)-1] == '/' {
			path += "0" // the name will be the number alone
		}
	}
	return checkPath(path)
}

// request returns the operation as go-zookeeper's request.
func (o Op) request(c *client) any {
	path := c.full(o.path)
	switch o.op {
	case opCreate:
		return &zk.CreateRequest{Path: path, Data: stored(o.data), Acl: c.opts.ACL, Flags: int32(o.mode)}
	case opSetData:
		return &zk.SetDataRequest{Path: path, Data: stored(o.data), Version: o.version}
	case opDelete:
		return &zk.DeleteRequest{Path: path, Version: o.version}
	default:
		return &zk.CheckVersionRequest{Path: path, Version: o.version}
	}
}

// Multi does all of the operations, or none. If one is refused, the error wraps a *MultiError that says which.
func (i *Incarnation) Multi(ctx context.Context, ops ...Op) ([]OpResult, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	requests := make([]any, len(ops))
	for at, o := range ops {
		requests[at] = o.request(i.c)
	}
	return i.write(ctx, multi, ops, func(conn *zk.Conn) ([]OpResult, error) {
		replies, err := conn.Multi(requests...)
		if err != nil {
			for at, r := range replies {
				if r.Error != nil {
					return nil, &MultiError{Index: at, Err: serverError(r.Error)}
				}
			}
			return nil, err
		}
		return multiResults(ops, replies)
	})
}

// multiResults returns a server's results, or an error if they are not results of ops.
func multiResults(ops []Op, replies []zk.MultiResponse) ([]OpResult, error) {
	if len(replies) != len(ops) {
		return nil, fmt.Errorf("%w: %d results for %d operations", errUnclear, len(replies), len(ops))
	}
	results := make([]OpResult, len(ops))
	for at, r := range replies {
		if (ops[at].op == opCreate) != (r.String != "") || (ops[at].op == opSetData) != (r.Stat != nil) {
			return nil, fmt.Errorf("%w: the result of operation %d belongs to another kind of operation", errUnclear, at)
		}
		results[at].Path = r.String
		if r.Stat != nil {
			results[at].Stat = *r.Stat
		}
	}
	return results, nil
}

// write checks operations, sends them, and keeps the count of ephemeral znodes.
func (i *Incarnation) write(ctx context.Context, name string, ops []Op,
	send func(conn *zk.Conn) ([]OpResult, error),
) ([]OpResult, error) {
	c := i.c
	first, most := ops[0].path, 0
	var ephemerals []ephemeral
	w := sending{op: name}
	size := requestHeaderSize + multiHeaderSize
	for _, o := range ops {
		if err := o.check(); err != nil {
			return nil, failure(name, o.path, err)
		}
		part := o.size(c.opts.ACL, len(c.opts.Chroot))
		size += part + multiHeaderSize
		if part > most {
			most, w.path = part, o.path
		}
		if o.op == opCreate && o.mode.ephemeral() {
			ephemerals = append(ephemerals, ephemeral{path: c.full(o.path), sequential: o.mode.sequential()})
		}
	}
	if size > c.opts.MaxPacket {
		return nil, failure(name, first, &TooLargeError{Bytes: size, Operations: len(ops), Limit: c.opts.MaxPacket})
	}
	if w.size = size; name != multi {
		w.size -= 2 * multiHeaderSize // the request of an operation alone
	}
	reserved, err := c.ephemerals.reserve(ephemerals)
	if err != nil {
		return nil, failure(name, first, err)
	}
	results, err := call(ctx, c, &w, send)
	switch {
	case err == nil:
		i.account(reserved, ops, results)
		return results, nil
	case errors.Is(err, ErrUncertain):
		c.ephemerals.unknown(reserved, ephemerals)
		return nil, failure(name, first, err)
	}
	c.ephemerals.refused(reserved)
	if errors.Is(err, ErrCostsConnection) {
		return nil, failure(name, w.path, err)
	}
	if refused, ok := errors.AsType[*MultiError](err); ok {
		first = ops[refused.Index].path
		if ops[refused.Index].op != opCreate {
			i.missing(c.full(first), err)
		}
	} else if ops[0].op != opCreate && len(ops) == 1 {
		i.missing(c.full(first), err)
	}
	return nil, failure(name, first, err)
}

// account counts the ephemeral znodes that ops created and deleted, and takes the chroot off the paths in results.
func (i *Incarnation) account(reserved int, ops []Op, results []OpResult) {
	c := i.c
	var created []string
	for at, o := range ops {
		switch o.op {
		case opCreate:
			if o.mode.ephemeral() {
				created = append(created, results[at].Path)
			}
			results[at].Path = results[at].Path[min(len(c.opts.Chroot), len(results[at].Path)):]
		case opDelete:
			c.ephemerals.gone(c.full(o.path))
		}
	}
	c.ephemerals.created(reserved, created)
}
