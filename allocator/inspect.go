package allocator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// Inspect describes a group by its znodes, for a program that is no member: the members with their records, the partitions of the
// set with their zones, and what the members disagree about. All partitions are Free, because Inspect does not read claims;
// package ownership's Inspect does. It assumes that Options.PythonFunc of the members is "roundrobin/1", as in the zero
// [Options]. Inspect computes from what it has read which member each partition is planned for, as the members do, if the group's
// function is one of package allocfn. A custom function is not known here: then Planned is empty.
//
// Inspect reads after a Sync, creates nothing and watches nothing. It needs the session to run, and blocks until everything is
// read or ctx ends; 16 members are read at a time. Changes meanwhile may be in the description or not. Errors are [ErrNoGroup],
// [kiel.ErrInvalidName], the cause of ctx's end, and the session's. A znode of a member, of the set or of the zones that can't be
// read or parsed is no error but a disagreement.
func Inspect(ctx context.Context, s *session.Session, group string) (*status.Group, error) {
	if err := kiel.CheckGroup(group); err != nil {
		return nil, failed("inspect", "", err)
	}
	g, err := inspect(ctx, s, group)
	if err != nil {
		return nil, failed("inspect group", strconv.Quote(group), err)
	}
	return g, nil
}

func inspect(ctx context.Context, s *session.Session, group string) (*status.Group, error) {
	if s == nil {
		return nil, errors.New("session is nil")
	}
	for {
		inc, err := s.Incarnation(ctx)
		if err != nil {
			return nil, err
		}
		g, err := inspectIn(ctx, inc, group)
		if !session.Retryable(err) || ctx.Err() != nil {
			return g, err
		}
	}
}

// inspectIn is inspect in one incarnation.
func inspectIn(ctx context.Context, inc *session.Incarnation, group string) (*status.Group, error) {
	paths := pathsOf(group)
	members, err := party.Read(ctx, inc, paths.members)
	if errors.Is(err, session.ErrNoNode) {
		err = checkExists(ctx, inc, paths.group)
	}
	if err != nil {
		return nil, err
	}
	items, setErr := sharedset.Read(ctx, inc, paths.set)
	if setErr != nil && !aboutZnode(ctx, setErr) {
		return nil, setErr
	}
	zoned, zonesErr := zones.Read(ctx, inc, paths.zones)
	if zonesErr != nil && !aboutZnode(ctx, zonesErr) {
		return nil, zonesErr
	}
	g := statuswrite.Group(group, status.SourceZooKeeper, time.Now().UTC())
	in := readInputs(members, items, defaultPythonFunc, &inputs{})
	m := planOf(in, zoned)
	g.Members = describeMembers(in, m)
	if err := readInfos(ctx, inc, paths.records, members, g.Members); err != nil {
		return nil, err
	}
	g.Partitions = describePartitions(in, newMapping(allocfn.Input{Zones: zoned}, "", nil), "", "")
	for i := range g.Partitions {
		p := &g.Partitions[i]
		if k, ok := m.index(kiel.Partition{Topic: p.Topic, ID: p.Partition}); ok {
			p.Planned = statuswrite.Name(m.members[m.owner[k]])
		}
	}
	g.Disagreements = disagreements(in)
	if setErr != nil && !errors.Is(setErr, session.ErrNoNode) {
		g.Disagreements = append(g.Disagreements, unreadableSet(setErr))
	}
	if zonesErr != nil {
		g.Disagreements = append(g.Disagreements, unreadableZones(zonesErr))
	}
	return g, nil
}

// planOf returns the mapping that members compute from these inputs. It has no partitions if they run a function that is not of
// package allocfn, or have none in common.
func planOf(in *inputs, zoned map[kiel.Partition]string) *mapping {
	if len(in.read) > 0 {
		input := in.allocation(zoned)
		var known []allocfn.Func
		for _, f := range allocfn.All() {
			known = append(known, f.Func)
		}
		fn, err := chooseFunc(in.read, known)
		if err == nil {
			if owner, err := allocfn.Call(fn, input); err == nil {
				return newMapping(input, fn.ID(), owner)
			}
		}
	}
	return newMapping(allocfn.Input{}, "", nil)
}

// checkExists returns ErrNoGroup unless the group's znode exists.
func checkExists(ctx context.Context, inc *session.Incarnation, path string) error {
	exists, _, err := inc.Exists(ctx, path)
	if err == nil && !exists {
		return fmt.Errorf("%w: no znode %s", ErrNoGroup, path)
	}
	return err
}

// aboutZnode reports whether an error is about the znode that was read, and not about the connection or ctx.
func aboutZnode(ctx context.Context, err error) bool {
	return ctx.Err() == nil && session.Classify(err) == session.ClassFatal && !errors.Is(err, session.ErrClosed)
}
