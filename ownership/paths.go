package ownership

import (
	"fmt"
	"strings"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/session"
)

// paths of a group's claims.
type paths struct{ owners, epochs string }

func newPaths(group string) paths {
	return paths{owners: group + "/owners", epochs: group + "/epochs"}
}

func (p paths) owner(id kiel.Partition) string { return p.owners + "/" + id.String() }
func (p paths) epoch(id kiel.Partition) string { return p.epochs + "/" + id.String() }

// check says whether a partition's name can name a znode.
func (p paths) check(id kiel.Partition) error {
	name := id.String()
	if strings.Contains(name, "/") {
		return fmt.Errorf("%w: %q has a slash, no znode can have that name", ErrUnclaimed, name)
	}
	if err := session.CheckPath(p.owners + "/" + name); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrUnclaimed, name, err)
	}
	return nil
}
