package fetch

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/IBM/sarama"
)

const (
	saramaPath = "github.com/IBM/sarama"

	// nextOffsetName is the field of an answer's block in which sarama keeps the offset after the block's last record batch.
	nextOffsetName = "recordsNextOffset"
)

// errNoNextOffset says that sarama does not keep the offset after batches without records.
var errNoNextOffset = errors.New("has no field " + nextOffsetName + " of type *int64 any more")

// nextOffset reads the offset after the last record batch of a block. sarama drops record batches that compaction has emptied, and
// keeps the offset after them in a field that it does not export.
type nextOffset struct {
	field []int // the index of the field
	err   error // names sarama's version if it has no such field; then the field is not read
}

// nextOffsetIn finds the field in the type of sarama's blocks.
func nextOffsetIn(block reflect.Type) nextOffset {
	field, found := block.FieldByName(nextOffsetName)
	if !found || field.Type != reflect.TypeFor[*int64]() {
		return nextOffset{err: fmt.Errorf("%v of sarama %s %w", block, saramaVersion(debug.ReadBuildInfo()), errNoNextOffset)}
	}
	return nextOffset{field: field.Index}
}

// of returns the offset after the block's last record batch; 0 if the block came without a record batch.
func (n nextOffset) of(block *sarama.FetchResponseBlock) (int64, error) {
	if n.err != nil {
		return 0, n.err
	}
	offset := reflect.ValueOf(block).Elem().FieldByIndex(n.field)
	if offset.IsNil() {
		return 0, nil
	}
	return offset.Elem().Int(), nil
}

// saramaVersion returns the version of sarama in the running program.
func saramaVersion(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "of unknown version"
	}
	for _, dep := range info.Deps {
		switch {
		case dep.Path != saramaPath:
		case dep.Replace != nil:
			return fmt.Sprintf("%s, replaced by %s %s", dep.Version, dep.Replace.Path, dep.Replace.Version)
		default:
			return dep.Version
		}
	}
	return "of unknown version"
}
