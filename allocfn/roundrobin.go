package allocfn

// RoundRobin returns "roundrobin", the default function of kiel: partition k of
// the set goes to member k mod n of the sorted members. With [Input.Places] set,
// k is the partition's place. It takes the time of one pass over the
// partitions, Only that of one over the member's own.
func RoundRobin() Func {
	return Func{Name: "roundrobin", Assign: roundRobin, harmless: roundRobin, Only: roundRobinOnly}
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

func roundRobinOnly(in Input, member int) ([]int32, error) {
	n := len(in.Members)
	if n == 0 {
		return nil, nil
	}
	mine := make([]int32, 0, len(in.Partitions)/n+1)
	if in.Places != nil {
		for i, place := range in.Places {
			if int(place)%n == member {
				mine = append(mine, int32(i))
			}
		}
		return mine, nil
	}
	for i := member; i < len(in.Partitions); i += n {
		mine = append(mine, int32(i))
	}
	return mine, nil
}
