package ownership

import (
	"slices"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
)

// The claims of this member are watched, and read when somebody may have changed one. A watch costs no request while nothing changes.

// watchClaims watches the claims that were opened.
func (l *loop) watchClaims() {
	if len(l.toWatch) > 0 {
		l.watch.Add(l.toWatch...)
		l.toWatch = nil
	}
}

// onChanged: somebody has changed znodes of claims.
func (l *loop) onChanged(inc *session.Incarnation, changed []kiel.Partition) {
	if l.inc == inc {
		l.check(changed)
	}
}

// check reads the claims of these partitions, as far as they are this member's. One that is not what it was has vanished; the others
// are watched on.
func (l *loop) check(ids []kiel.Partition) {
	inc, watch := l.inc, l.watch
	var open []*Claim
	var znodes []claims.Finding
	for _, id := range ids {
		if p := l.parts[id]; p != nil && p.claim != nil {
			open, znodes = append(open, p.claim), append(znodes, p.znode)
		}
	}
	if len(open) == 0 {
		return
	}
	l.wg.Go(func() {
		found := l.wire.Check(l.io, inc, znodes)
		l.post(func() {
			for i, f := range found {
				p := l.parts[f.ID]
				switch {
				case p == nil || p.claim != open[i]: // ended meanwhile
				case f.Fate == claims.Ours:
					watch.Add(f)
				case f.Fate == claims.Gone:
					l.onVanished(p, p.claim, f.Err)
				}
			}
		})
	})
}

// sampled is how many claims are read when the names of all have changed: a name does not say whose the claim is.
const sampled = 16

// checkSome reads some claims of this member, in turn.
func (l *loop) checkSome() {
	var open []kiel.Partition
	for id, p := range l.parts {
		if p.claim != nil && p.opened {
			open = append(open, id)
		}
	}
	kiel.SortPartitions(open)
	next, _ := slices.BinarySearchFunc(open, l.checked, kiel.Partition.Compare)
	if next < len(open) && open[next] == l.checked {
		next++
	}
	turn := slices.Concat(open[next:], open[:next])
	turn = turn[:min(len(turn), sampled)]
	if len(turn) > 0 {
		l.checked = turn[len(turn)-1]
		l.check(turn)
	}
}
