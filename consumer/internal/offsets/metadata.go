package offsets

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// commitMetadata is the metadata of a commit in Kafka: "kiel1;<ids>;<token>/<partitions>;<text>". The ids are in base64: the
// topic's id, 16 bytes, and behind it the two ids of the Place, 8 bytes each; then, in 6 bytes, the milliseconds from 1970 to
// when the group began on the topic, if it has just done so. An unknown part is zero bytes, and is left out at the end; without
// any id the field is empty. Earlier versions wrote the topic's id alone, or the three ids, and ignore what is behind them. The
// partitions and their slash are left out when unknown. Metadata of another form is all text.
type commitMetadata struct {
	topicID    sarama.Uuid // the topic's id; zero when unknown
	place      Place       // where the commit was made
	token      int64       // the token of the claim that stored the offset
	began      time.Time   // when the group began on the topic; zero when that is not known, or long ago
	partitions int32       // how many partitions the topic had when the group first started on it; 0 when unknown
	text       string      // the user's own metadata
}

func metadataOf(c OffsetCommit) commitMetadata {
	return commitMetadata{topicID: c.TopicID, place: c.Place, token: c.Token, partitions: c.FirstPartitions, began: c.Began, text: c.Text}
}

const metadataPrefix = "kiel1;"

// maxIDs bounds the field of the ids in metadata that are read, in characters. Longer ones are of no version of this package.
const maxIDs = 256

func (m commitMetadata) String() string {
	partitions := ""
	if m.partitions > 0 {
		partitions = "/" + strconv.Itoa(int(m.partitions))
	}
	return metadataPrefix + base64.RawURLEncoding.EncodeToString(m.ids()) + ";" + strconv.FormatInt(m.token, 10) + partitions + ";" + m.text
}

// timeSize is the size of a time in metadata, in bytes.
const timeSize = 6

// ids returns the ids and the time behind them, without those at the end that are unknown.
func (m commitMetadata) ids() []byte {
	switch {
	case m.place != (Place{}), !m.began.IsZero():
	case m.topicID == (sarama.Uuid{}):
		return nil
	default:
		return m.topicID[:]
	}
	ids := append(make([]byte, 0, len(m.topicID)+2*len(ID{})+timeSize), m.topicID[:]...)
	ids = append(append(ids, m.place.Tree[:]...), m.place.Cluster[:]...)
	if m.began.IsZero() {
		return ids
	}
	n := binary.BigEndian.AppendUint64(nil, uint64(m.began.UnixMilli()))
	return append(ids, n[len(n)-timeSize:]...)
}

// withIDs returns m with the ids and the time in b, as ids writes them. It returns false if b is not empty and has no room for
// the topic's id. Bytes behind the time are a later version's.
func (m commitMetadata) withIDs(b []byte) (commitMetadata, bool) {
	if len(b) == 0 {
		return m, true
	}
	if copy(m.topicID[:], b) != len(m.topicID) {
		return m, false
	}
	b = b[len(m.topicID):]
	if len(b) < 2*len(ID{}) {
		return m, true
	}
	copy(m.place.Tree[:], b)
	copy(m.place.Cluster[:], b[len(ID{}):])
	if b = b[2*len(ID{}):]; len(b) >= timeSize {
		n := binary.BigEndian.Uint64(append(make([]byte, 8-timeSize), b[:timeSize]...))
		if n > 0 {
			m.began = time.UnixMilli(int64(n))
		}
	}
	return m, true
}

// TextOf returns the text of a mark from the metadata of a commit: all of it if another program has written them. It takes any
// text.
func TextOf(metadata string) string {
	m, _ := parseMetadata(metadata)
	return m.text
}

// parseMetadata parses the metadata of a commit. ours is false if another program has written them.
func parseMetadata(s string) (m commitMetadata, ours bool) {
	foreign := commitMetadata{text: s}
	rest, ok := strings.CutPrefix(s, metadataPrefix)
	if !ok {
		return foreign, false
	}
	parts := strings.SplitN(rest, ";", 3)
	if len(parts) != 3 {
		return foreign, false
	}
	number, count, counted := strings.Cut(parts[1], "/")
	token, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return foreign, false
	}
	m = commitMetadata{token: token, text: parts[2]}
	if counted {
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil || n <= 0 {
			return foreign, false
		}
		m.partitions = int32(n)
	}
	if len(parts[0]) > maxIDs {
		return foreign, false
	}
	ids, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil {
		return foreign, false
	}
	if m, ours = m.withIDs(ids); !ours {
		return foreign, false
	}
	return m, true
}
