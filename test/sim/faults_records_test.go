package sim_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/kielgo/kiel/zktest"
)

// recordsPath is the directory in which members say which record they have. Members do without it, and believe nothing that it
// says unseen: whatever becomes of it moves nothing.
const recordsPath = groupPath + "/records"

// refuseRecords has the servers refuse the directory of records to members, or to one, as an ACL does: all of it, its listing, or
// new entries.
func refuseRecords(h *hook, s step) {
	create := func(r *zktest.Request) bool { return r.Op == zktest.OpCreate && strings.HasPrefix(r.Path, recordsPath) }
	h.refused = []func(r *zktest.Request) bool{
		func(r *zktest.Request) bool { return strings.HasPrefix(r.Path, recordsPath) },
		func(r *zktest.Request) bool { return r.Op == zktest.OpGetChildren2 && r.Path == recordsPath },
		create, create,
	}[s.N%4]
}

// isRefused says whether a request, or a part of it, is refused. The hook's mu is held.
func (h *hook) isRefused(r *zktest.Request) bool {
	if h.refused == nil {
		return false
	}
	return h.refused(r) || slices.ContainsFunc(r.Ops, func(op zktest.Request) bool { return h.refused(&op) })
}

// forgeRecords creates entries that members have not made: garbage, of nobody, and one that says that a member has another
// record, beside its own or in place of that. They are deleted in the end.
func forgeRecords(w *world, s step) (func(), bool) {
	p := w.choose(s.Member)
	if p == nil {
		return nil, false
	}
	_, stat, ok := w.srv.Get(groupPath + "/members/" + p.name)
	if !ok {
		return nil, false
	}
	free, ok := w.hold("records")
	if !ok {
		return nil, false
	}
	own := fmt.Sprintf(".%x.%s", uint64(stat.EphemeralOwner), p.name)
	if s.N%2 == 0 {
		for _, entry := range w.srv.Children(recordsPath) {
			if strings.HasSuffix(entry, own) {
				_ = w.srv.Delete(recordsPath + "/" + entry) // it may be gone
			}
		}
	}
	hash := sha256.Sum256([]byte{byte(s.N)})
	forged := []string{"garbage", "..", base64.RawURLEncoding.EncodeToString(hash[:20]) + ".7.nobody", base64.RawURLEncoding.EncodeToString(hash[:20]) + own}
	for _, name := range forged {
		if w.srv.Create(recordsPath+"/"+name, nil) == nil {
			w.cov.hit("operator forged an entry")
		}
	}
	return func() {
		free()
		for _, name := range forged {
			_ = w.srv.Delete(recordsPath + "/" + name) // its member may have deleted it
		}
	}, true
}
