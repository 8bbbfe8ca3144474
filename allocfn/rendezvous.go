package allocfn

// Rendezvous returns "rendezvous", plain rendezvous hashing (highest random
// weight): of all members a partition goes to the one with the highest hash of
// the member's name, the topic's name and the partition's number, among equals
// to the first by name. When a member joins, the partitions that move are those
// it gets; when one leaves, those it had. No function that knows no more moves
// fewer.
//
// The price is balance: a member has about P/n partitions as by chance, so that
// with 10 members and 1,000 partitions some have 85 and others 115, and with
// few partitions some have none.
//
// It ignores the topics that members ask for.
//
// It takes time in proportion to n·P, about 2 ns for each pair: 10 members and
// 10,000 partitions a fifth of a millisecond, but 1,000 and 100,000 a fifth of
// a second.
func Rendezvous() Func { return Func{Name: "rendezvous", Assign: rendezvous, harmless: rendezvous} }

func rendezvous(in Input) (Assignment, error) {
	if len(in.Members) == 0 {
		return Assignment{}, nil
	}
	members := make([]uint64, len(in.Members))
	for m := range members {
		members[m] = hashName(in.Members[m].Name)
	}
	a := make(Assignment, len(in.Partitions))
	for i, key := range hashPartitions(in.Partitions) {
		best, owner := uint64(0), 0
		for m, name := range members {
			if score := fmix(key ^ name); score > best {
				best, owner = score, m
			}
		}
		a[i] = int32(owner)
	}
	return a, nil
}
