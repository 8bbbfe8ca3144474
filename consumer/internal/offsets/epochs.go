package offsets

import "slices"

// maxEpochs bounds how many changes of leader are kept between the position and the last delivered message.
const maxEpochs = 64

// epochs are the leader epochs of record batches, by offset: one entry for each change.
type epochs []epochStart

// epochStart is the leader epoch of the record batches from an offset on.
type epochStart struct {
	from  int64
	epoch int32 // -1 when it is not known
}

// add sets the epoch of the record batches from offset from on. It drops the entries that are not needed for positions at or
// above position.
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
