package offsets

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

// commitMetadata is the metadata of a commit in Kafka:
// "kiel1;<topic id>;<token>/<partitions>;<text>". The id is in base64, and empty when unknown. The partitions and their slash are
// left out when unknown. Metadata of another form is all text.
type commitMetadata struct {
	topicID    sarama.Uuid // the topic's id; zero when unknown
	token      int64       // the token of the claim that stored the offset
	partitions int32       // how many partitions the topic had when the group first started on it; 0 when unknown
	text       string      // the user's own metadata
}

func metadataOf(c OffsetCommit) commitMetadata {
	return commitMetadata{topicID: c.TopicID, token: c.Token, partitions: c.FirstPartitions, text: c.Text}
}

const metadataPrefix = "kiel1;"

func (m commitMetadata) String() string {
	id := ""
	if m.topicID != (sarama.Uuid{}) {
		id = base64.RawURLEncoding.EncodeToString(m.topicID[:])
	}
	partitions := ""
	if m.partitions > 0 {
		partitions = "/" + strconv.Itoa(int(m.partitions))
	}
	return metadataPrefix + id + ";" + strconv.FormatInt(m.token, 10) + partitions + ";" + m.text
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
	id, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil || len(id) != 0 && copy(m.topicID[:], id) != len(m.topicID) {
		return foreign, false
	}
	return m, true
}
