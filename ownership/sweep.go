package ownership

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/ownership/internal/machine"
	"github.com/kielgo/kiel/session"
)

// sweeper is what the loop knows of claims beside the states of their partitions. Claims of this member are watched, and read
// when somebody may have changed one. Once per session timeout the group's claims are compared with what this member thinks it
// holds.
type sweeper struct {
	toWatch []claims.Finding        // claims that are to be watched
	checked kiel.Partition          // whose claim was read last
	sent    map[kiel.Partition]bool // claims were sent for these in zk's session; true until none was seen to exist
	freed   bool                    // something was released: there may be room again
	servers serversAge              // for which sent was looked at as a whole
}

// scheduleSweep has the claims of this session listed in a session timeout.
func (l *loop) scheduleSweep(inc *session.Incarnation) {
	l.after(inc.Timeout(), func() {
		if l.inc != inc {
			return
		}
		began := time.Now()
		l.wg.Go(func() {
			names, anew, err := l.wire.List(l.io, inc)
			l.post(func() {
				switch {
				case l.inc != inc || !inc.Trusted() || errors.Is(err, session.ErrSessionExpired):
					// The next incarnation lists them. The end of this one is no trouble of the list.
				case err != nil:
					l.warn(troubleSweep, "", err)
				default:
					l.recovered(troubleSweep, "")
					l.revisit()
					l.sweep(names, began)
					if anew {
						l.checkSome()
					}
					l.countUnowned(names, began)
				}
				if l.inc == inc {
					l.reportBlocked() // again, as long as there are any
					l.judgeAll()
				}
				l.scheduleSweep(inc)
			})
		})
	})
}

var errUnlisted = errors.New("the claim is not among the group's")

// sweep compares the claims that exist with those that this member believes to hold.
func (l *loop) sweep(names claims.Names, began time.Time) {
	for _, p := range l.parts {
		switch {
		case names.Has(p.id):
		case p.claim != nil && p.claim.isOpen() && p.claim.opened.Before(began):
			l.onVanished(p, p.claim, errUnlisted)
		case p.Claim == machine.Ours:
			l.take(p, machine.Doubted, nil)
		}
	}
	for id, open := range l.sent {
		p := l.parts[id]
		switch {
		case !open:
		case p != nil && p.Claim != machine.Free:
		case names.Has(id):
			l.doubt(id) // another member's claim (one read shows that), or one of ours that this member does not know of
		default:
			l.sent[id] = false
		}
	}
}

// serversAge changes whenever the servers may have gone back to a backup.
type serversAge struct {
	history uint64
	epoch   int64
}

// ageOf returns the age of the servers as an incarnation sees it.
func ageOf(inc *session.Incarnation) serversAge {
	return serversAge{history: inc.History(), epoch: inc.LeaderEpoch()}
}

// revisit looks once at all claims that were sent in this ZooKeeper session, if the servers may have gone back to a backup:
// a claim that was released since exists again, and another member waits for it.
func (l *loop) revisit() {
	now := ageOf(l.inc)
	if l.servers == now {
		return
	}
	l.servers = now
	l.check(slices.Collect(maps.Keys(l.parts))) // watches do not show a claim that has gone back to an older one of ours
	for id := range l.sent {
		if p := l.parts[id]; p == nil || p.Claim == machine.Free {
			l.doubt(id)
		}
	}
}

// doubt has the claim of a partition looked at, of which we hold none as far as we know.
func (l *loop) doubt(id kiel.Partition) {
	l.take(l.part(id), machine.Doubted, nil)
}

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

// check reads the claims of these partitions, as far as they are this member's. One that is not what it was has vanished; the
// others are watched on.
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
				case f.Outcome == claims.Ours:
					watch.Add(f)
				case f.Outcome == claims.Gone:
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
		if p.claim != nil && p.claim.isOpen() {
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
