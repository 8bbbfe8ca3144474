package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/zktest"
)

// loseData has the servers start with other data than they had.
func (w *world) loseData(start func()) {
	w.mon.dataGoes(func() (before, after serverData) {
		before = w.serverData()
		start()
		return before, w.serverData()
	})
}

// serverData is what the servers hold, as far as the monitor has to know.
type serverData struct {
	zxid     int64
	sessions map[int64]bool
	claims   map[claimID]bool
}

func (w *world) serverData() serverData {
	d := serverData{zxid: w.srv.Stats().Zxid, sessions: map[int64]bool{}, claims: map[claimID]bool{}}
	for _, info := range w.srv.Sessions() {
		d.sessions[info.ID] = true
	}
	for part, c := range w.claims() {
		d.claims[claimID{part, c.token, c.session}] = true
	}
	return d
}

// backup stops the servers and starts them from a backup: the first one, which lacks a partition, or that of this phase or of the
// one before, or one made when the fault begins. In the last case a member has just joined, so that claims of the backup stand in
// the sessions of members that have given them up since. The sessions of the backup live again, or they have expired in the
// meantime; and zxids go on from the backup, or beyond all that clients have seen. Meanwhile nobody else writes the set: what a
// set from a backup lacks after more writes than were lost counts as removed.
func backup(w *world, s step) (func(), bool) {
	freeSet, ok := w.hold("set")
	if !ok {
		return nil, false
	}
	freeServer, ok := w.hold("server")
	if !ok {
		freeSet()
		return nil, false
	}
	from := w.backups[s.N%backupForgets%len(w.backups)]
	opts := zktest.RestoreOptions{ForgetSessions: s.N&backupForgets != 0, Elect: s.N&backupElects != 0}
	made := make(chan *zktest.Backup, 1)
	if s.N&backupNow != 0 {
		before := w.members()
		join(w, s)
		w.later(func() { made <- w.backUpAtJoin(before) })
	} else {
		w.srv.Down()
	}
	return func() {
		select {
		case from = <-made:
		default:
		}
		w.loseData(func() { w.srv.Restore(from, opts) })
		// The sessions of processes that have ended may live again, and the names of their members are taken.
		w.delivers(time.Time{}, func(*life) bool { return true })
		w.cov.hit(fmt.Sprintf("backup: sessions forgotten %t", opts.ForgetSessions))
		w.cov.hit(fmt.Sprintf("backup: elected %t", opts.Elect))
		freeServer()
		w.later(func() {
			defer freeSet()
			time.Sleep(3 * w.plan.Timeout)
		})
	}, true
}

// backUpAtJoin makes a backup when the next member has joined, and others have not released their claims yet.
func (w *world) backUpAtJoin(before int) *zktest.Backup {
	for tries := 0; w.members() <= before && tries < 100; tries++ {
		time.Sleep(time.Millisecond)
	}
	return w.srv.Backup()
}

// members counts the members as the servers see them.
func (w *world) members() int { return len(w.srv.Children(groupPath + "/members")) }

// backUp makes a backup. The first one and the newest two are kept.
func (w *world) backUp() {
	w.backups = append(w.backups, w.srv.Backup())
	if len(w.backups) > 3 {
		w.backups = slices.Delete(w.backups, 1, 2)
	}
}

// A step's N tells which backup, and how the servers start from it.
const (
	backupForgets = 1 << (4 + iota) // the sessions of the backup have expired
	backupElects                    // zxids go on beyond what clients have seen
	backupNow                       // it is made when the fault begins
)

// Groups get well by themselves after the servers have gone back to a backup, whichever it is and however they start.
func TestBackups(t *testing.T) {
	for i := range 16 {
		seed := uint64(i % 4)
		p := newDrills(seed, 3)
		p.Phases = slices.DeleteFunc(p.Phases, func(ph phase) bool { return ph.Steps[0].Kind != "backup" })
		s := &p.Phases[0].Steps[0]
		s.N, s.For = i%3+i/2*backupForgets, p.Timeout*time.Duration(1+2*seed)/3
		res := simulate(t, p, manners{})
		for _, v := range res.violations {
			t.Errorf("seed %d: %v: %v", seed, s, v)
		}
		if res.cov.of("drill: backup") == 0 {
			t.Errorf("seed %d: %v: the drill has not ended well", seed, s)
		}
	}
}
