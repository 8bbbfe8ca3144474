package allocator

import (
	"context"
	"maps"

	"github.com/kielgo/kiel"
)

// zonesName is the name of the zones' znode below that of the group.
const zonesName = "zones"

// ZonesPath returns the path of the znode that holds the zones of partitions.
func (a *PartitionAllocator) ZonesPath() string { return pathsOf(a.group).zones }

// Zones returns the zones of partitions, as read last. The map is empty before Run has read them and while they can't be read,
// which Err of the snapshot says. Zones does not block. The map is the caller's.
func (a *PartitionAllocator) Zones() map[kiel.Partition]string {
	v := a.zones.View()
	if v == nil || len(v.Zones) == 0 {
		return map[kiel.Partition]string{}
	}
	return maps.Clone(v.Zones)
}

// SetZones sets, for the whole group, the zones in which partitions are best consumed, for allocation functions that use them,
// such as [allocfn.Balanced]. It replaces all zones that were set before; with nil no partition has a zone. Zones of partitions
// that the set lacks, and zones in which no member is, have no effect. A zone is at most 249 bytes of text, "" is none. Python
// members know no zones.
//
// SetZones writes only if something changes. It reads the znode right before, and of two writers the second replaces the first.
// It needs the session to run, not the allocator, and blocks until it is done or ctx ends. Errors are [ErrZonesInvalid],
// [ErrZonesTooLarge], [ErrZonesUnreadable] (zones that can't be read are not written), the cause of ctx's end, and the session's;
// with session.ErrUncertain the zones may have been written.
func (a *PartitionAllocator) SetZones(ctx context.Context, zones map[kiel.Partition]string) error {
	return a.zones.Update(ctx, func(map[kiel.Partition]string) map[kiel.Partition]string { return zones })
}

// UpdateZones is [PartitionAllocator.SetZones] for the given partitions alone; the zones of others stay. "" removes a partition's
// zone. Concurrent calls do not undo each other's changes, unless they are about the same partition. UpdateZones sends nothing if
// the zones, as read last, are so already.
func (a *PartitionAllocator) UpdateZones(ctx context.Context, zones map[kiel.Partition]string) error {
	if v := a.zones.View(); v != nil && v.Err == nil && v.Incarnation.Trusted() && maps.Equal(v.Zones, merge(v.Zones, zones)) {
		return nil
	}
	return a.zones.Update(ctx, func(now map[kiel.Partition]string) map[kiel.Partition]string { return merge(now, zones) })
}

// merge returns a copy of old with the changes; "" removes a zone.
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
