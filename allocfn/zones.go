package allocfn

// nowhere is the zone of members and partitions that have none.
const nowhere = 0

// zones holds the zones of partitions and members. Zones are numbered from 1.
type zones struct {
	home  []int32 // the zone of each partition; nil if none is in a zone with members
	place []int32 // the zone of each member; nil if home is
	count int     // the number of zones, with nowhere
}

// newZones reads the zones of in.
func newZones(in Input) zones {
	z := zones{count: 1}
	if len(in.Zones) == 0 {
		return z
	}
	numbers := map[string]int32{"": nowhere}
	place := make([]int32, len(in.Members))
	for i, m := range in.Members {
		n, known := numbers[m.Zone]
		if !known {
			n = int32(len(numbers))
			numbers[m.Zone] = n
		}
		place[i] = n
	}
	home := make([]int32, len(in.Partitions))
	some := false
	for i, p := range in.Partitions {
		home[i] = numbers[in.Zones[p]]
		some = some || home[i] != nowhere
	}
	if some {
		z = zones{home, place, len(numbers)}
	}
	return z
}
