package allocfn

// nowhere is the zone of members and partitions that have none.
const nowhere = 0

// zones says who is where. Zones are numbered from 1.
type zones struct {
	home  []int32 // of each partition; nil when none is in a zone that has members
	place []int32 // of each member
	rings []*ring // of the members in each zone
}

// newZones reads the zones of in, whose members have these points.
func newZones(in Input, points []int64) zones {
	var z zones
	if len(in.Zones) == 0 {
		return z
	}
	numbers := make(map[string]int32)
	z.place = make([]int32, len(in.Members))
	counts := []int{0}
	for i, m := range in.Members {
		if m.Zone == "" {
			continue
		}
		n := numbers[m.Zone]
		if n == 0 {
			n = int32(len(counts))
			numbers[m.Zone] = n
			counts = append(counts, 0)
		}
		z.place[i] = n
		counts[n]++
	}
	if len(numbers) == 0 {
		return z
	}
	for i, p := range in.Partitions {
		n := numbers[in.Zones[p]]
		if n != nowhere && z.home == nil {
			z.home = make([]int32, len(in.Partitions))
		}
		if z.home != nil {
			z.home[i] = n
		}
	}
	if z.home == nil {
		return z
	}
	parts := make([][]int64, len(counts))
	for _, p := range points {
		n := z.place[int32(p)]
		parts[n] = append(parts[n], p)
	}
	z.rings = make([]*ring, len(counts))
	for n := range z.rings {
		if n != nowhere {
			z.rings[n] = newRing(parts[n], counts[n])
		}
	}
	return z
}
