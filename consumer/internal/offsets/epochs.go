package offsets

import "slices"

// maxEpochs bounds how many changes of leader are remembered between the position and what was
// delivered last.
const maxEpochs = 64

// epochs are the leader epochs of record batches, by offset: one entry for each change.
type epochs []epochStart

// epochStart says that record batches have a leader epoch from an offset on. The epoch is -1
// when it is not known.
type epochStart struct {
	from  int64
	epoch int32
}

// add notes that what follows from offset from on has an epoch. Entries that say nothing of
// positions at or above position are dropped.
func (e *epochs) add(from int64, epoch int32, position int64) {
	if n := len(*e); n > 0 && (*e)[n-1].epoch == epoch {
		return
	}
	old := len(*e) - maxEpochs + 1
	for i := range *e {
		if (*e)[i].from < position {
			old = max(old, i)
		}
	}
	*e = append(slices.Delete(*e, 0, max(old, 0)), epochStart{from: from, epoch: epoch})
}

// before returns the epoch of the record batch before position, -1 when it is not known.
func (e *epochs) before(position int64) int32 {
	for _, s := range slices.Backward(*e) {
		if s.from < position {
			return s.epoch
		}
	}
	return -1
}
