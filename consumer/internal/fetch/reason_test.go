package fetch

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// tally counts failures by reason.
type tally struct {
	mu sync.Mutex
	n  map[Reason]int
}

func (c *tally) add(r Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[Reason]int{}
	}
	c.n[r]++
}

func (c *tally) only(t *testing.T, want Reason, least, most int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.n[want]; n < least || n > most || len(c.n) > 1 {
		t.Errorf("failures %v, want %d to %d of %q alone", c.n, least, most, want)
	}
}

// Each failure to fetch a partition is counted, with why.
func TestFailuresAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		fail        func(k *fakeCluster) // fetches at 1, of a log of 5
		want        Reason
		least, most int
	}{
		"none":           {func(*fakeCluster) {}, Other, 0, 0},
		"another leader": {func(k *fakeCluster) { k.log(0).leader, k.log(0).epoch = 2, 1 }, NoLeader, 1, 2},
		"broker away": {func(k *fakeCluster) {
			k.down[1] = true
			for _, c := range k.conns {
				c.Close()
			}
		}, Unreachable, 5, 50},
		"broker silent":  {func(k *fakeCluster) { k.silent[1] = true }, Unreachable, 1, 10},
		"not authorized": {func(k *fakeCluster) { k.log(0).err = sarama.ErrTopicAuthorizationFailed }, Refused, 1, 1},
		"no such topic":  {func(k *fakeCluster) { k.log(0).err = sarama.ErrUnknownTopicOrPartition }, Missing, 5, 50},
		"disk":           {func(k *fakeCluster) { k.log(0).err = sarama.ErrKafkaStorageError }, KafkaStorage, 5, 50},
		"out of range":   {func(k *fakeCluster) { k.log(0).err = sarama.ErrOffsetOutOfRange }, OutOfRange, 1, 50},
	} {
		t.Run(name, func(t *testing.T) {
			var failures tally
			inBubble(t, func(o *Options) { o.OnFailure = failures.add }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				begun(t, k, x, 5)
				k.change(func() { c.fail(k) })
				time.Sleep(20 * time.Second)
				failures.only(t, c.want, c.least, c.most)
			})
		})
	}
}

// Each error has a reason of the list.
func TestReasonOf(t *testing.T) {
	for err, want := range map[error]Reason{
		sarama.ErrOutOfBrokers:                                Unreachable,
		errors.New("connection reset"):                        Unreachable,
		&decodingError{sarama.PacketDecodingError{Info: "x"}}: Undecodable,
		sarama.ErrInvalidMessage:                              Undecodable,
		errIncomplete:                                         NothingCame,
		errNoProgress:                                         NothingCame,
		&TruncatedError{}:                                     Truncated,
		&RangeError{}:                                         OutOfRange,
		sarama.ErrSASLAuthenticationFailed:                    Refused,
		sarama.KError(9999):                                   Other,
	} {
		assert.Equal(t, ReasonOf(fmt.Errorf("wrapped: %w", err)), want, "%v", err)
	}
	for code := range sarama.KError(200) {
		if got := ReasonOf(code); !slices.Contains(Reasons(), got) {
			t.Errorf("%v: %q is not in the list", code, got)
		}
	}
}
