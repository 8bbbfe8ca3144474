package claims

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// maxRecord is how many bytes a record may have that is read. Those of members have less than half.
const maxRecord = 8 << 10

// Record is the data of a claim's owner znode, and of its epoch znode, where it says who claimed last.
type Record struct {
	Owner    string        `json:"owner"`              // member's name
	Version  uint64        `json:"version"`            // of the snapshot that it acts on
	ID       string        `json:"id"`                 // of the Owner value: two in one session are told apart
	Previous string        `json:"previous,omitempty"` // the owner before, as the member knew it, cut to statuswrite.MaxShortName bytes
	Reason   status.Reason `json:"reason,omitzero"`    // why the partition came to the member
}

// Encode returns the data as they are written.
func (r Record) Encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers can always be written
	}
	return data
}

var errNoOwner = errors.New("it names no owner")

// Decode reads the data of a claim's znode. A reason that is missing or not valid is status.Unknown: members of earlier versions
// write none.
func Decode(data []byte) (Record, error) {
	if len(data) > maxRecord {
		return Record{}, fmt.Errorf("it has %d bytes, at most %d", len(data), maxRecord)
	}
	var read struct {
		Record
		Reason json.RawMessage `json:"reason"` // hides Record's
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return Record{}, err
	}
	if read.Owner == "" {
		return Record{}, errNoOwner
	}
	r := read.Record
	r.Previous = statuswrite.ShortName(r.Previous)
	if json.Unmarshal(read.Reason, &r.Reason) != nil || r.Reason.IsZero() || statuswrite.Check(r.Reason) != nil {
		r.Reason = statuswrite.Reason(status.Unknown)
	}
	return r, nil
}
