package allocfn

// nowhere is the zone of members and partitions that have none.
const nowhere = 0

// zones says who is where. Zones are numbered from 1.
type zones struct {
	home  []int32 // of each partition; nil when none is in a zone that has members
	place []int32 // of each member; nil as home
	count int     // how many zones there are, nowhere being one
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
