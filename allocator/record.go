package allocator

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/internal/zones"
	"github.com/kielgo/kiel/party"
)

// The limits of a member's record. No member writes a record beyond them, and a record beyond them is a bad one. All members must
// agree on which records are bad, so the limits are part of the format.
const (
	recordVersion = 1
	maxFunctions  = 32
)

// record is the data of a member's znode.
type record struct {
	V         int      `json:"v"`         // the version of the format
	Functions []string `json:"functions"` // IDs, the preferred first
	Weight    int      `json:"weight,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	Topics    []string `json:"topics,omitempty"` // names, patterns and exclusions
	Cluster   cluster  `json:"cluster,omitempty"`
	Static    static   `json:"static,omitempty"`

	asks *topiclist.List // Topics, parsed
}

// newRecord returns the record of a member with these options.
func newRecord(o Options) record {
	r := record{V: recordVersion, Weight: o.Weight, Zone: o.Zone, Topics: o.Topics, Cluster: cluster(o.Cluster), Static: static(o.Static)}
	for _, f := range o.funcs() {
		r.Functions = append(r.Functions, f.ID())
	}
	return r
}

func (r record) encode() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if len(data) > party.MaxRecord {
		return nil, fmt.Errorf("record: %d bytes is more than %d: give fewer Topics", len(data), party.MaxRecord)
	}
	return data, nil
}

// parseRecord parses a member's record, and its topics with parseTopics. ok is false if there is no record, which is no error:
// Python members have none.
func parseRecord(data []byte, parseTopics func([]string) (*topiclist.List, error)) (r record, ok bool, err error) {
	if len(data) == 0 {
		return record{}, false, nil
	}
	if len(data) > party.MaxRecord {
		return record{}, false, fmt.Errorf("%w: %d bytes is more than %d", ErrBadRecord, len(data), party.MaxRecord)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, false, operr.Because(ErrBadRecord, err)
	}
	for i, written := range r.Functions {
		id, err := allocfn.ParseID(written)
		if err != nil {
			return record{}, false, operr.Because(ErrBadRecord, err)
		}
		r.Functions[i] = id
	}
	if err := r.check(); err != nil {
		return record{}, false, operr.Because(ErrBadRecord, err)
	}
	if r.asks, err = parseTopics(r.Topics); err != nil {
		return record{}, false, operr.Because(ErrBadRecord, err)
	}
	return r, true, nil
}

// check returns an error if the record is bad.
func (r record) check() error {
	if r.V != recordVersion {
		return fmt.Errorf("version: %d is not %d", r.V, recordVersion)
	}
	switch {
	case len(r.Functions) == 0:
		return errors.New("functions is empty")
	case len(r.Functions) > maxFunctions:
		return fmt.Errorf("functions: %d is more than %d", len(r.Functions), maxFunctions)
	case r.Weight < 0:
		return fmt.Errorf("weight: %d is less than 0", r.Weight)
	case r.Weight > MaxWeight:
		return fmt.Errorf("weight: %d is more than %d", r.Weight, MaxWeight)
	}
	return zones.Check(r.Zone)
}
