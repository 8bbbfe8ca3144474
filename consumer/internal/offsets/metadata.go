package offsets

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

// commitMetadata is the metadata of a commit in Kafka:
// "kiel1;<ids>;<token>/<partitions>;<text>". The ids are in base64: the topic's id, 16 bytes, and behind it the two ids of the
// Place, 8 bytes each. An id that is unknown is zero bytes; without a Place its ids are left out, and without any id the field is
// empty. Earlier versions wrote the topic's id alone, and ignore what is behind it. The partitions and their slash are left out
// when unknown. Metadata of another form is all text.
type commitMetadata struct {
	topicID    sarama.Uuid // the topic's id; zero when unknown
	place      Place       // where the commit was made
	token      int64       // the token of the claim that stored the offset
	partitions int32       // how many partitions the topic had when the group first started on it; 0 when unknown
	text       string      // the user's own metadata
}

func metadataOf(c OffsetCommit) commitMetadata {
	return commitMetadata{topicID: c.TopicID, place: c.Place, token: c.Token, partitions: c.FirstPartitions, text: c.Text}
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

// ids returns the ids, without those at the end that are unknown.
func (m commitMetadata) ids() []byte {
	if m.place == (Place{}) {
		if m.topicID == (sarama.Uuid{}) {
			return nil
		}
		return m.topicID[:]
	}
	ids := append(make([]byte, 0, len(m.topicID)+2*len(ID{})), m.topicID[:]...)
	return append(append(ids, m.place.Tree[:]...), m.place.Cluster[:]...)
}

// parseIDs is the reverse of ids. It returns false if b is not empty and has no room for the topic's id. Bytes behind the ids are a
// later version's.
func parseIDs(b []byte) (topicID sarama.Uuid, place Place, ok bool) {
	if len(b) == 0 {
		return topicID, place, true
	}
	if copy(topicID[:], b) != len(topicID) {
		return topicID, place, false
	}
	if rest := b[len(topicID):]; len(rest) >= 2*len(ID{}) {
		copy(place.Tree[:], rest)
		copy(place.Cluster[:], rest[len(ID{}):])
	}
	return topicID, place, true
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
	if m.topicID, m.place, ours = parseIDs(ids); !ours {
		return foreign, false
	}
	return m, true
}
