package consumer

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

// note is what a commit says beside its offset: which topic it was, which claim
// stored it, and the user's own text. It travels in the commit's metadata as
// "kiel1;<topic id>;<token>;<text>", the id in base64 and empty when unknown.
// Metadata of another form is all text.
type note struct {
	topic sarama.Uuid
	token int64
	text  string
}

const notePrefix = "kiel1;"

func (n note) String() string {
	id := ""
	if n.topic != (sarama.Uuid{}) {
		id = base64.RawURLEncoding.EncodeToString(n.topic[:])
	}
	return notePrefix + id + ";" + strconv.FormatInt(n.token, 10) + ";" + n.text
}

func parseNote(s string) note {
	foreign := note{text: s}
	rest, ok := strings.CutPrefix(s, notePrefix)
	if !ok {
		return foreign
	}
	parts := strings.SplitN(rest, ";", 3)
	if len(parts) != 3 {
		return foreign
	}
	token, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return foreign
	}
	n := note{token: token, text: parts[2]}
	id, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil || len(id) != 0 && copy(n.topic[:], id) != len(n.topic) {
		return foreign
	}
	return n
}

// sameTopic says whether two ids can be of one topic; an unknown id can be any.
func sameTopic(a, b sarama.Uuid) bool {
	return a == b || a == (sarama.Uuid{}) || b == (sarama.Uuid{})
}

// recreated is the error for a topic that has another id than it had.
func recreated(topic string) error { return fmt.Errorf("%w: %s", ErrRecreated, topic) }
