package ownership

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/session"
)

// paths of a group's claims.
type paths struct{ owners, epochs string }

func newPaths(group string) paths {
	return paths{owners: group + "/owners", epochs: group + "/epochs"}
}

func (p paths) owner(id allocfn.Partition) string { return p.owners + "/" + id.String() }
func (p paths) epoch(id allocfn.Partition) string { return p.epochs + "/" + id.String() }

// check says whether a partition's name can name a znode.
func (p paths) check(id allocfn.Partition) error {
	name := id.String()
	if strings.Contains(name, "/") {
		return fmt.Errorf("%w: %q has a slash, no znode can have that name", ErrUnclaimed, name)
	}
	if err := session.CheckPath(p.owners + "/" + name); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrUnclaimed, name, err)
	}
	return nil
}

// record is the data of a claim's owner znode, and of its epoch znode, where it
// says who claimed last.
type record struct {
	Owner   string `json:"owner"`   // member's name
	Version uint64 `json:"version"` // of the snapshot that it acts on
	ID      string `json:"id"`      // of the Owner value: two in one session are told apart
}

func (r record) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers can always be written
	}
	return data
}

// decode reads what a claim's znode holds; of what it can't read it returns nothing.
func decode(data []byte) record {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}
	}
	return r
}
