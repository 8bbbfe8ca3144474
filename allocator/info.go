package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// info is the data of a member's znode in the directory of records: what differs from member to member, for [Inspect]. Members
// don't read it.
type info struct {
	Host string `json:"host,omitempty"` // the name of the host on which the member runs
	PID  int    `json:"pid,omitempty"`
	Addr string `json:"addr,omitempty"` // where it answers /status
}

// newInfo returns the info of a member of this process, which answers /status at addr.
func newInfo(addr string) []byte {
	host, _ := os.Hostname() // "" is unknown
	data, err := json.Marshal(info{Host: statuswrite.ShortName(host), PID: os.Getpid(), Addr: addr})
	if err != nil {
		return nil
	}
	return data
}

// readInfos adds to the described members what they say of themselves. Without a directory of records, or the right to read it,
// it adds nothing.
func readInfos(ctx context.Context, inc *session.Incarnation, path string, members []party.Member, described []status.Member) error {
	entries, err := party.ReadEntries(ctx, inc, path, members)
	if err != nil && !errors.Is(err, session.ErrNoNode) && !aboutZnode(ctx, err) {
		return err
	}
	type who struct {
		name    string
		session int64
	}
	infos := make(map[who]info, len(entries))
	for _, e := range entries {
		var i info
		if json.Unmarshal(e.Info, &i) == nil {
			infos[who{e.Member, e.Session}] = i
		}
	}
	for k := range members {
		i := infos[who{members[k].Name, members[k].Session}]
		described[k].Host, described[k].PID = statuswrite.Name(i.Host), i.PID
		if status.CheckAddr(i.Addr) == nil {
			described[k].StatusAddr = i.Addr
		}
	}
	return nil
}
