package zktest

import (
	"fmt"
	"time"
)

// Op is an operation code of ZooKeeper's wire protocol.
type Op int32

// The operations. OpConnect stands for the connect request, which has no code on the wire.
const (
	OpConnect         Op = -10
	OpCloseSession    Op = -11
	OpError           Op = -1
	OpCreate          Op = 1
	OpDelete          Op = 2
	OpExists          Op = 3
	OpGetData         Op = 4
	OpSetData         Op = 5
	OpGetACL          Op = 6
	OpSetACL          Op = 7
	OpGetChildren     Op = 8
	OpSync            Op = 9
	OpPing            Op = 11
	OpGetChildren2    Op = 12
	OpCheck           Op = 13
	OpMulti           Op = 14
	OpCreate2         Op = 15
	OpReconfig        Op = 16
	OpCheckWatches    Op = 17
	OpRemoveWatches   Op = 18
	OpCreateContainer Op = 19
	OpDeleteContainer Op = 20
	OpCreateTTL       Op = 21
	OpMultiRead       Op = 22
	OpAuth            Op = 100
	OpSetWatches      Op = 101
	OpSASL            Op = 102
	OpGetEphemerals   Op = 103
	OpCountChildren   Op = 104
	OpSetWatches2     Op = 105
	OpAddWatch        Op = 106
	OpWhoAmI          Op = 107
)

// String returns ZooKeeper's name of the operation.
func (o Op) String() string {
	if name, ok := opNames()[o]; ok {
		return name
	}
	return fmt.Sprintf("op(%d)", int32(o))
}

// opNames returns ZooKeeper's names of the operations that a client may send.
func opNames() map[Op]string {
	return map[Op]string{
		OpConnect:         "connect",
		OpCloseSession:    "closeSession",
		OpError:           "error",
		OpCreate:          "create",
		OpDelete:          "delete",
		OpExists:          "exists",
		OpGetData:         "getData",
		OpSetData:         "setData",
		OpGetACL:          "getACL",
		OpSetACL:          "setACL",
		OpGetChildren:     "getChildren",
		OpSync:            "sync",
		OpPing:            "ping",
		OpGetChildren2:    "getChildren2",
		OpCheck:           "check",
		OpMulti:           "multi",
		OpCreate2:         "create2",
		OpReconfig:        "reconfig",
		OpCheckWatches:    "checkWatches",
		OpRemoveWatches:   "removeWatches",
		OpCreateContainer: "createContainer",
		OpDeleteContainer: "deleteContainer",
		OpCreateTTL:       "createTTL",
		OpMultiRead:       "multiRead",
		OpAuth:            "auth",
		OpSetWatches:      "setWatches",
		OpSASL:            "sasl",
		OpGetEphemerals:   "getEphemerals",
		OpCountChildren:   "getAllChildrenNumber",
		OpSetWatches2:     "setWatches2",
		OpAddWatch:        "addWatch",
		OpWhoAmI:          "whoAmI",
	}
}

// served reports whether the server executes the operation as a request of its own, and not only as part of a multi.
func (o Op) served() bool {
	switch o {
	case OpCreate, OpDelete, OpExists, OpGetData, OpSetData, OpGetACL, OpSetACL, OpGetChildren, OpSync, OpGetChildren2,
		OpMulti, OpCreate2, OpCheckWatches, OpRemoveWatches, OpCreateContainer, OpCreateTTL, OpMultiRead, OpSetWatches,
		OpGetEphemerals, OpCountChildren, OpSetWatches2, OpAddWatch, OpWhoAmI:
		return true
	default: // execute answers ping, closeSession, auth and reconfig before it asks
		return false
	}
}

// Writes reports whether the operation changes the tree or the set of sessions, and so takes a zxid of its own. A connect request
// does so if it begins a session.
func (o Op) Writes() bool {
	switch o {
	case OpConnect, OpCloseSession, OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL, OpDelete, OpSetData, OpSetACL, OpMulti:
		return true
	default:
		return false
	}
}

// Request is a client's request, as predicates and hooks of [Server] get it. Fields that an operation does not have are zero. If
// a hook changes a field, the server executes the changed request.
type Request struct {
	Op      Op
	Xid     int32
	Client  string // the client's address, or its name on a virtual network
	Session int64  // the session's id; 0 in a connect request for a new one

	Path    string
	Data    []byte
	Version int32     // the expected version; -1 is any
	Flags   int32     // of create: 1 ephemeral, 2 sequential, 3 both, 4 container, 5 and 6 TTL
	TTL     int64     // of createTTL: ms
	ACL     []ACL     // of create and setACL
	Watch   bool      // whether a read sets a watch
	Ops     []Request // the parts of a multi or multiRead

	Timeout time.Duration // of a connect request: the session timeout asked for
	Zxid    int64         // of a connect request: the highest zxid seen; of setWatches: the zxid of the client's last answer

	mode     int32 // of addWatch, removeWatches, checkWatches
	scheme   string
	password []byte
	watches  watchLists
	hello    bool // whether this is a connection's first packet
	newer    bool // of a connect request: whether it has the read-only byte
	bad      bool // whether the body could not be decoded
}

// watchLists are the five lists of setWatches2. As in ZooKeeper, the lists after one that is null are ignored.
type watchLists struct {
	data, exist, child, persistent, recursive []string

	null bool // whether one of the lists was null
}

// read decodes lists, up to the first that is null.
func (w *watchLists) read(d *decoder, lists ...*[]string) {
	for _, list := range lists {
		paths := d.strings()
		if w.null = w.null || paths == nil; !w.null {
			*list = paths
		}
	}
}

// decodeRequest decodes a packet of an established connection. It returns an error if the packet has no whole header.
func decodeRequest(frame []byte) (*Request, error) {
	d := &decoder{b: frame}
	r := &Request{Xid: d.int32(), Op: Op(d.int32())}
	if d.err != nil {
		return nil, d.err
	}
	r.decodeBody(d, true)
	r.bad = d.err != nil
	return r, nil
}

// decodeBody decodes the operation's own fields. top is false for a part of a multi.
func (r *Request) decodeBody(d *decoder, top bool) {
	switch r.Op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		r.Path, r.Data, r.ACL, r.Flags = d.string(), d.bytes(), d.acls(), d.int32()
		r.TTL = -1
		if r.Op == OpCreateTTL {
			r.TTL = d.int64()
		}
	case OpDelete, OpCheck:
		r.Path, r.Version = d.string(), d.int32()
	case OpSetData:
		r.Path, r.Data, r.Version = d.string(), d.bytes(), d.int32()
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2:
		r.Path, r.Watch = d.string(), d.bool()
	case OpGetACL, OpSync, OpGetEphemerals, OpCountChildren:
		r.Path = d.string()
	case OpSetACL:
		r.Path, r.ACL, r.Version = d.string(), d.acls(), d.int32()
	case OpMulti, OpMultiRead:
		if !top {
			d.fail()
			return
		}
		r.decodeMulti(d)
	case OpAuth:
		_ = d.int32()
		r.scheme, r.Data = d.string(), d.bytes()
	case OpSetWatches, OpSetWatches2:
		r.Zxid = d.int64()
		w := &r.watches
		w.read(d, &w.data, &w.exist, &w.child)
		if r.Op == OpSetWatches2 {
			w.read(d, &w.persistent, &w.recursive)
		}
	case OpAddWatch, OpRemoveWatches, OpCheckWatches:
		r.Path, r.mode = d.string(), d.int32()
	default: // ping, closeSession and whoAmI have no body; that of an unknown operation is ignored
	}
}

// decodeMulti decodes the parts of a multi, each with a header, up to a header that says done.
func (r *Request) decodeMulti(d *decoder) {
	for d.err == nil {
		op, done, _ := Op(d.int32()), d.bool(), d.int32()
		if done || d.err != nil {
			return
		}
		part := Request{Op: op}
		if !allowedIn(r.Op, op) {
			d.fail()
			return
		}
		part.decodeBody(d, false)
		if part.fixMode(); part.bad {
			d.fail()
			return
		}
		r.Ops = append(r.Ops, part)
	}
}

// fixMode sets the operation of a create in a multi by its flags, because there only the flags count.
func (r *Request) fixMode() {
	switch r.Op {
	case OpCreate, OpCreate2, OpCreateContainer:
		r.bad = r.Flags < 0 || r.Flags > 4
	case OpCreateTTL:
		if r.Flags == 5 || r.Flags == 6 {
			return
		}
		r.Op = OpCreate
	default:
		return
	}
	if r.Flags == 4 {
		r.Op = OpCreateContainer
	}
}

// allowedIn reports whether a multi or a multiRead may have the operation as a part.
func allowedIn(multi, op Op) bool {
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL, OpDelete, OpSetData, OpCheck:
		return multi == OpMulti
	case OpGetData, OpGetChildren:
		return multi == OpMultiRead
	default:
		return false
	}
}

// decodeConnect decodes a connection's first packet.
func decodeConnect(frame []byte) (*Request, error) {
	d := &decoder{b: frame}
	_ = d.int32() // protocol version
	r := &Request{Op: OpConnect, hello: true, Zxid: d.int64()}
	r.Timeout = time.Duration(d.int32()) * time.Millisecond
	r.Session, r.password = d.int64(), d.bytes()
	if d.err != nil {
		return nil, d.err
	}
	if len(d.b) > 0 { // the read-only byte; clients older than 3.4 don't send it
		_, r.newer = d.bool(), true
	}
	return r, nil
}
