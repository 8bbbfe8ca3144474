package allocfn

// RoundRobin returns "roundrobin", the default function of kiel: partition k of
// the set goes to member k mod n of the sorted members. With [Input.Places] set,
// k is the partition's place. It takes the time of one pass over the
// partitions.
func RoundRobin() Func {
	return Func{Name: "roundrobin", Assign: roundRobin, harmless: roundRobin}
}

func roundRobin(in Input) (Assignment, error) {
	n := int32(len(in.Members))
	if n == 0 {
		return Assignment{}, nil
	}
	a := make(Assignment, len(in.Partitions))
	if in.Places != nil {
		for i, place := range in.Places {
			a[i] = place % n
		}
		return a, nil
	}
	var m int32
	for i := range a {
		a[i] = m
		if m++; m == n {
			m = 0
		}
	}
	return a, nil
}
