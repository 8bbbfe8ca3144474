package allocator

import (
	"context"
	"fmt"
	"maps"

	"github.com/kielgo/kiel"
)

// zonesName is the name of the znode below the group's.
const zonesName = "zones"

// ZonesPath returns the path of the znode that holds the zones of partitions.
func (a *PartitionAllocator) ZonesPath() string { return pathsOf(a.group).zones }

// Zones returns in which zone each partition is that has one, as read last: none
// before Run has read them, and none while they can't be read, which Err of the
// snapshot says. It does not block. The map is the caller's.
func (a *PartitionAllocator) Zones() map[kiel.Partition]string {
	v := a.zones.View()
	if v == nil || len(v.Zones) == 0 {
		return map[kiel.Partition]string{}
	}
	return maps.Clone(v.Zones)
}

// SetZones says for the whole group in which zone each partition is best consumed,
// for allocation functions that look at it, such as [allocfn.Balanced]; nil says
// that none has a zone. What was said before is replaced. Zones need not be those
// of partitions in the set, nor of members: then they mean nothing. A zone is at
// most 249 bytes of text, "" is none. Python members know no zones.
//
// It writes only if something changes, and then what it has read just before, so
// that of two that write at once the second replaces the first. It needs the
// session to run, not the allocator, and blocks until it is done or ctx ends.
// Errors are [ErrZonesInvalid], [ErrZonesTooLarge], [ErrZonesUnreadable] (what
// can't be read is not written over), the cause of ctx's end and the session's;
// with session.ErrUncertain the zones may have been written.
func (a *PartitionAllocator) SetZones(ctx context.Context, zones map[kiel.Partition]string) error {
	err := a.zones.Update(ctx, func(map[kiel.Partition]string) map[kiel.Partition]string { return zones })
	if err != nil {
		return fmt.Errorf("allocator: set zones: %w", err)
	}
	return nil
}

// UpdateZones is [PartitionAllocator.SetZones] for the given partitions alone;
// those of others stay. "" takes a partition's zone away. Several that write at
// once undo nothing of each other's, unless it is of the same partition. It asks
// nobody if the zones as read last are so already.
func (a *PartitionAllocator) UpdateZones(ctx context.Context, zones map[kiel.Partition]string) error {
	if v := a.zones.View(); v != nil && v.Err == nil && v.Incarnation.Trusted() && maps.Equal(v.Zones, merge(v.Zones, zones)) {
		return nil
	}
	err := a.zones.Update(ctx, func(now map[kiel.Partition]string) map[kiel.Partition]string { return merge(now, zones) })
	if err != nil {
		return fmt.Errorf("allocator: update zones: %w", err)
	}
	return nil
}

// merge returns old with what is in changes.
func merge(old, changes map[kiel.Partition]string) map[kiel.Partition]string {
	all := make(map[kiel.Partition]string, len(old)+len(changes))
	maps.Copy(all, old)
	for p, zone := range changes {
		if zone == "" {
			delete(all, p)
		} else {
			all[p] = zone
		}
	}
	return all
}
