package offsets

import "slices"

// maxLeaderEpochs bounds how many changes of leader are kept between the position and the last delivered message.
const maxLeaderEpochs = 64

// leaderEpochs are the leader epochs of record batches, by offset: one entry for each change.
type leaderEpochs []leaderEpochStart

// leaderEpochStart is the leader epoch of the record batches from an offset on.
type leaderEpochStart struct {
	from        int64
	leaderEpoch int32 // -1 when it is not known
}

// add sets the leader epoch of the record batches from offset from on. It drops the entries that are not needed for positions at
// or above position.
func (e *leaderEpochs) add(from int64, leaderEpoch int32, position int64) {
	if n := len(*e); n > 0 && (*e)[n-1].leaderEpoch == leaderEpoch {
		return
	}
	old := len(*e) - maxLeaderEpochs + 1
	for i := range *e {
		if (*e)[i].from < position {
			old = max(old, i)
		}
	}
	*e = append(slices.Delete(*e, 0, max(old, 0)), leaderEpochStart{from: from, leaderEpoch: leaderEpoch})
}

// before returns the leader epoch of the record batch before position, -1 when it is not known.
func (e *leaderEpochs) before(position int64) int32 {
	for _, s := range slices.Backward(*e) {
		if s.from < position {
			return s.leaderEpoch
		}
	}
	return -1
}
