package zones

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// View is what the znode held when it was read. It never changes, and you must not change its Zones.
type View struct {
	// Version grows by one when Zones or Err changed. Views with the same version differ only in their time and incarnation.
	Version uint64

	Zones map[kiel.Partition]string // the zones; none if Err is set
	Err   error                     // ErrUnreadable, or a read that was refused

	Incarnation *session.Incarnation // the incarnation under which it was read
	At          time.Time            // when it was read

	mzxid int64 // the mzxid of the data that Zones and Err are made of, 0 if there were none
}

func newer(before, v *View) bool {
	return v.Version != before.Version || v.Incarnation != before.Incarnation
}

// look reads the znode and watches it, or its absence. It does not read the same data again, nor data above the limit.
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
		return &View{}, watch, nil // deleted since; the watch reports it
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

// Read returns the zones of the znode at path, as they are now or later; none if there is no znode. It creates nothing and
// watches nothing. Its errors wrap ErrUnreadable, the session's errors or the cause of ctx's end.
func Read(ctx context.Context, inc *session.Incarnation, path string) (map[kiel.Partition]string, error) {
	err := inc.Sync(ctx, path)
	var data []byte
	if err == nil {
		data, _, err = inc.Get(ctx, path)
	}
	switch {
	case errors.Is(err, session.ErrNoNode):
		return nil, nil
	case err != nil:
		return nil, operr.New("zones", "read", path, err)
	}
	zones, err := decode(data)
	if err != nil {
		return nil, operr.New("zones", "read", path, operr.Because(ErrUnreadable, err))
	}
	return zones, nil
}

func (z *Zones) unreadable(err error, mzxid int64) *View {
	return &View{Err: operr.New("zones", "read", z.path, operr.Because(ErrUnreadable, err)), mzxid: mzxid}
}

// complete fills in the fields of v that depend on the view before it.
func (z *Zones) complete(_ context.Context, inc *session.Incarnation, before, v *View) {
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
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
