package claims

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// Paths are those of a group's claims.
type Paths struct{ Owners, Epochs string }

// NewPaths returns the paths in the group whose znode is group.
func NewPaths(group string) Paths {
	return Paths{Owners: group + "/owners", Epochs: group + "/epochs"}
}

// Owner returns the path of the znode that exists while a partition is claimed.
func (p Paths) Owner(id kiel.Partition) string { return p.Owners + "/" + id.String() }

// Epoch returns the path of the znode that each claim of a partition writes.
func (p Paths) Epoch(id kiel.Partition) string { return p.Epochs + "/" + id.String() }

// Check returns why a partition's name can't name a znode, or nil.
func (p Paths) Check(id kiel.Partition) error {
	name := id.String()
	if strings.Contains(name, "/") {
		return fmt.Errorf("%q has a slash, no znode can have that name", name)
	}
	if err := session.CheckPath(p.Owners + "/" + name); err != nil {
		return operr.New("", "", strconv.Quote(name), err)
	}
	return nil
}

// partition returns the partition of an owner's or an epoch's path.
func partition(path string) (kiel.Partition, error) {
	return kiel.ParsePartition(path[strings.LastIndexByte(path, '/')+1:])
}
