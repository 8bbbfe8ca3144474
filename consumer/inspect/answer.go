package inspect

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

// The bounds of an answer, and of what is kept of one.
const (
	maxAnswer  = 4 << 20  // bytes; a member whose own 2,000 partitions have the longest names says 1.7 MB
	maxElement = 64 << 10 // bytes of one value in it, as a partition

	maxTroubles = 50                    // troubles and changes, each
	maxAbout    = statuswrite.MaxListed // names in one of them
	maxTexts    = 64 << 10              // bytes of the troubles and changes together
)

var (
	errTooLarge = errors.New("the answer is too large")
	errNoStatus = errors.New("the answer is no status of kiel")
	errOther    = errors.New("the answer is of another group, member or version")
)

// holders say which member owns each partition, or has it planned.
type holders map[kiel.Partition]string

// kept is what is kept of an answer: whether the member reaches Kafka, its own open partitions, its troubles, and when it has
// missed members. A thousand whole answers have no room.
type kept struct {
	said   *status.Group
	member string
	of     holders // nil keeps all partitions
	has    map[kiel.Partition]bool
	texts  int // bytes
}

func newKept(member string, of holders) *kept {
	return &kept{said: &status.Group{Self: &status.Self{}}, member: member, of: of, has: map[kiel.Partition]bool{}}
}

// partition keeps an open partition of the member, once. All members together have no more of them than the group.
func (k *kept) partition(p *status.Partition) {
	tp := kiel.Partition{Topic: statuswrite.Name(p.Topic), ID: p.Partition}
	if p.Offsets == nil && p.WaitsFor == "" || k.has[tp] || k.of != nil && k.of[tp] != k.member {
		return
	}
	tp.Topic = strings.Clone(tp.Topic)
	k.has[tp] = true
	k.said.Partitions = append(k.said.Partitions, status.Partition{
		Topic: tp.Topic, Partition: tp.ID, Offsets: p.Offsets, WaitsFor: statuswrite.Text(p.WaitsFor),
	})
}

// trouble keeps a trouble if there is room.
func (k *kept) trouble(t *status.Trouble) {
	if len(k.said.Troubles) >= maxTroubles {
		return
	}
	one := *t
	one.Kind, one.Last, one.About = strings.Clone(statuswrite.Name(t.Kind)), statuswrite.Text(t.Last), namesOf(t.About)
	if k.fits(append([]string{one.Kind, one.Last}, one.About...)) {
		k.said.Troubles = append(k.said.Troubles, one)
	}
}

// change keeps a change in which members are gone if there is room.
func (k *kept) change(c *status.Change) {
	if len(c.Gone) == 0 || len(k.said.Changes) >= maxTroubles {
		return
	}
	if gone := namesOf(c.Gone); k.fits(gone) {
		k.said.Changes = append(k.said.Changes, status.Change{At: c.At, Gone: gone})
	}
}

// fits returns whether there is room for texts, which it takes.
func (k *kept) fits(texts []string) bool {
	n := 0
	for _, text := range texts {
		n += len(text)
	}
	if k.texts+n > maxTexts {
		return false
	}
	k.texts += n
	return true
}

// namesOf returns copies of a few names: the rest of the answer is not kept with them.
func namesOf(names []string) []string {
	few := make([]string, min(len(names), maxAbout))
	for i := range few {
		few[i] = strings.Clone(statuswrite.Name(names[i]))
	}
	return few
}

// trimmed returns what is kept of what the member in this process says of itself.
func trimmed(g *status.Group) *status.Group {
	k := newKept(g.Self.Name, nil)
	k.said.Self.Kafka = g.Self.Kafka
	for i := range g.Partitions {
		k.partition(&g.Partitions[i])
	}
	for i := range g.Troubles {
		k.trouble(&g.Troubles[i])
	}
	for i := range g.Changes {
		k.change(&g.Changes[i])
	}
	return k.said
}

// bounded reads as far as it is allowed, so that a decoder has one element in memory at a time.
type bounded struct {
	from        io.Reader
	read, until int64
	err         error // why it ended
}

func (b *bounded) Read(into []byte) (n int, err error) {
	room := min(b.until, maxAnswer) - b.read
	if room <= 0 {
		b.err = errTooLarge
		return 0, b.err
	}
	n, err = b.from.Read(into[:min(int64(len(into)), room)])
	b.read += int64(n)
	b.err = err
	return n, err
}

// answerReader reads a member's answer, one value after the other.
type answerReader struct {
	body    *bounded
	decoder *json.Decoder
}

// readAnswer reads what a member says. Its errors have nothing of what was read; those of the body are returned as they are.
func readAnswer(body io.Reader, group, member string, of holders) (*status.Group, error) {
	b := &bounded{from: body}
	r := &answerReader{body: b, decoder: json.NewDecoder(b)}
	k := newKept(member, of)
	var head status.Group
	err := r.object(func(key string) error {
		switch key {
		case "version":
			return r.value(&head.Version)
		case "group":
			return r.value(&head.Group)
		case "self":
			return r.value(&head.Self)
		case "partitions":
			return list(r, k.partition)
		case "troubles":
			return list(r, k.trouble)
		case "changes":
			return list(r, k.change)
		case "members", "disagreements":
			return list(r, func(*struct{}) {})
		default:
			return r.value(&json.RawMessage{})
		}
	})
	switch {
	case err != nil && b.err != nil && !errors.Is(b.err, io.EOF):
		return nil, b.err
	case err != nil:
		return nil, errNoStatus
	case head.Version != status.Version || head.Group != group || head.Self == nil || head.Self.Name != member:
		return nil, errOther
	}
	k.said.Self.Kafka = head.Self.Kafka
	return k.said, nil
}

// allow lets one more element be read.
func (r *answerReader) allow() { r.body.until = r.decoder.InputOffset() + maxElement }

func (r *answerReader) token() (json.Token, error) {
	r.allow()
	return r.decoder.Token()
}

func (r *answerReader) value(into any) error {
	r.allow()
	return r.decoder.Decode(into)
}

func (r *answerReader) more() bool {
	r.allow()
	return r.decoder.More()
}

// object reads an object; field reads the value of each key.
func (r *answerReader) object(field func(key string) error) error {
	if t, err := r.token(); err != nil || t != json.Delim('{') {
		return errNoStatus
	}
	for r.more() {
		key, err := r.token()
		if err != nil {
			return err
		}
		name, ok := key.(string)
		if !ok {
			return errNoStatus
		}
		if err := field(name); err != nil {
			return err
		}
	}
	_, err := r.token()
	return err
}

// list reads an array, or null, whose elements keep takes one by one.
func list[T any](r *answerReader, keep func(*T)) error {
	t, err := r.token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return errNoStatus
	}
	var element, zero T
	for r.more() {
		element = zero
		if err := r.value(&element); err != nil {
			return err
		}
		keep(&element)
	}
	_, err = r.token()
	return err
}
