package allocator

import (
	"encoding/json"
	"fmt"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/internal/zones"
)

// Limits of a member's record. What is beyond them is not written, and makes a
// record that is read a bad one: each member of the group must judge a record
// alike, so the limits are part of the format.
const (
	recordVersion = 1
	maxRecord     = 64 << 10 // bytes; party reads no more
	maxFunctions  = 32
)

// record is what a member publishes as the data of its znode.
type record struct {
	V         int      `json:"v"`
	Functions []string `json:"functions"` // IDs
	Weight    int      `json:"weight,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	Topics    []string `json:"topics,omitempty"`

	asks *topiclist.List // what Topics say
}

func newRecord(o Options) record {
	r := record{V: recordVersion, Weight: o.Weight, Zone: o.Zone, Topics: o.Topics}
	for _, f := range o.funcs() {
		r.Functions = append(r.Functions, f.ID())
	}
	return r
}

func (r record) encode() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("member record: %w", err)
	}
	if len(data) > maxRecord {
		return nil, fmt.Errorf("member record: %d bytes, at most %d: fewer Topics are needed", len(data), maxRecord)
	}
	return data, nil
}

// parseRecord reads a member's record, and its topics with parseTopics. ok is false when there is none, which
// is no error: Python members have none.
func parseRecord(data []byte, parseTopics func([]string) (*topiclist.List, error)) (r record, ok bool, err error) {
	if len(data) == 0 {
		return record{}, false, nil
	}
	if len(data) > maxRecord {
		return record{}, false, fmt.Errorf("%w: %d bytes, at most %d", ErrBadRecord, len(data), maxRecord)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, false, fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	for i, written := range r.Functions {
		id, err := allocfn.ParseID(written)
		if err != nil {
			return record{}, false, fmt.Errorf("%w: %w", ErrBadRecord, err)
		}
		r.Functions[i] = id
	}
	if err := r.check(); err != nil {
		return record{}, false, fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	if r.asks, err = parseTopics(r.Topics); err != nil {
		return record{}, false, fmt.Errorf("%w: %w", ErrBadRecord, err)
	}
	return r, true, nil
}

func (r record) check() error {
	if r.V != recordVersion {
		return fmt.Errorf("version %d, known is %d", r.V, recordVersion)
	}
	if len(r.Functions) == 0 || len(r.Functions) > maxFunctions {
		return fmt.Errorf("%d functions, must be 1 to %d", len(r.Functions), maxFunctions)
	}
	if r.Weight < 0 || r.Weight > MaxWeight {
		return fmt.Errorf("weight %d is not in 0 to %d", r.Weight, MaxWeight)
	}
	return zones.Check(r.Zone)
}
