package zones

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/session"
)

// View is what the znode said when it was read. It is never changed; don't change its Zones either.
type View struct {
	// Version grows by one when Zones or Err changed. Views with the same version differ only in when, and under which
	// incarnation, they were read.
	Version uint64

	Zones map[allocfn.Partition]string // none when Err is set
	Err   error                        // ErrUnreadable, or a read that was refused

	Incarnation *session.Incarnation // under which it was read
	At          time.Time            // when it was read

	mzxid int64 // of the data that Zones and Err are made of, 0 if there were none
}

func newer(before, v *View) bool {
	return v.Version != before.Version || v.Incarnation != before.Incarnation
}

// look reads the znode and watches it, or its absence. Data that were read before are not read again, and too much of it is
// not read at all.
func (z *Zones) look(ctx context.Context, inc *session.Incarnation, _ bool) (*View, *session.Watch, error) {
	exists, stat, watch, err := inc.ExistsW(ctx, z.path)
	if err != nil {
		return nil, nil, err
	}
	if !exists {
		return &View{}, watch, nil
	}
	if old := z.View(); old != nil && old.mzxid == stat.Mzxid && old.Incarnation.History() == inc.History() {
		return &View{Zones: old.Zones, Err: old.Err, mzxid: old.mzxid}, watch, nil
	}
	if stat.DataLength > maxData {
		return z.unreadable(tooMuch(int(stat.DataLength)), stat.Mzxid), watch, nil
	}
	data, stat, err := inc.Get(ctx, z.path)
	if errors.Is(err, session.ErrNoNode) {
		return &View{}, watch, nil // deleted since; the watch tells of it, and of what comes then
	}
	if err != nil {
		watch.Stop()
		return nil, nil, err
	}
	zones, err := decode(data)
	if err != nil {
		return z.unreadable(err, stat.Mzxid), watch, nil
	}
	return &View{Zones: zones, mzxid: stat.Mzxid}, watch, nil
}

func (z *Zones) unreadable(err error, mzxid int64) *View {
	return &View{Err: fmt.Errorf("%w: %s: %w", ErrUnreadable, z.path, err), mzxid: mzxid}
}

// complete fills in what a view has from the one before it.
func (z *Zones) complete(ctx context.Context, inc *session.Incarnation, before, v *View) {
	v.Incarnation, v.At = inc, time.Now()
	if before == nil {
		before = &View{}
	}
	switch {
	case before.Version != 0 && text(before.Err) == text(v.Err) && maps.Equal(before.Zones, v.Zones):
		v.Version, v.Zones = before.Version, before.Zones // one copy is enough
	default:
		v.Version = before.Version + 1
	}
	if v.Err != nil && text(before.Err) != text(v.Err) {
		z.log.ErrorContext(ctx, "zones not read, partitions count as without", "error", v.Err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
