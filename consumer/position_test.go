package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/testonly/logtest"
)

// A partition starts at the committed offset, or where the policy says, which is a warning once.
func TestStartPositions(t *testing.T) {
	p := tp("t", 0)
	id, other := sarama.Uuid{1}, sarama.Uuid{2}
	for name, c := range map[string]struct {
		stored      *offsets.Stored
		from        StartAt
		newest      bool // Config's Initial
		first, last int64
		want        int64
		reports     error
		warns       string // the reason why it starts where the policy says
	}{
		"committed":                       {stored: &offsets.Stored{Offset: 7}, last: 100, want: 7},
		"committed by us":                 {stored: &offsets.Stored{Offset: 7, TopicID: id, Token: 3}, last: 100, want: 7},
		"nothing, earliest":               {first: 5, last: 100, want: 5, warns: reasonNone},
		"nothing, latest":                 {from: Latest, first: 5, last: 100, want: 100, warns: reasonNone},
		"of another topic":                {stored: &offsets.Stored{Offset: 7, TopicID: other}, first: 1, last: 100, want: 1, reports: ErrRecreated, warns: reasonRecreated},
		"of another topic, latest":        {stored: &offsets.Stored{Offset: 7, TopicID: other}, from: Latest, first: 1, last: 100, want: 1, reports: ErrRecreated, warns: reasonRecreated},
		"deleted by retention":            {stored: &offsets.Stored{Offset: 7}, first: 20, last: 100, want: 20, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"deleted by retention, latest":    {stored: &offsets.Stored{Offset: 7}, from: Latest, first: 20, last: 100, want: 20, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"beyond the end":                  {stored: &offsets.Stored{Offset: 500}, first: 20, last: 100, want: 20, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"beyond the end, latest":          {stored: &offsets.Stored{Offset: 500}, from: Latest, first: 20, last: 100, want: 100, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"beyond the end, newest":          {stored: &offsets.Stored{Offset: 500}, newest: true, first: 20, last: 100, want: 20, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"at the end":                      {stored: &offsets.Stored{Offset: 100}, first: 20, last: 100, want: 100},
		"no offset of Kafka's, -3":        {stored: &offsets.Stored{Offset: -3}, first: 5, last: 100, want: 5, warns: reasonNone},
		"no offset of Kafka's, least":     {stored: &offsets.Stored{Offset: math.MinInt64}, from: Latest, first: 5, last: 100, want: 100, warns: reasonNone},
		"beyond all":                      {stored: &offsets.Stored{Offset: math.MaxInt64}, first: 5, last: 100, want: 5, reports: ErrOffsetReset, warns: reasonOutOfRange},
		"with another client's metadata":  {stored: &offsets.Stored{Offset: 7, Text: "whatever"}, last: 100, want: 7},
		"committed before ids were known": {stored: &offsets.Stored{Offset: 7, Token: 3}, last: 100, want: 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMarkRig(t, func(o *Options) {
					if o.StartAt = c.from; c.newest {
						o.Config.Consumer.Offsets.Initial = sarama.OffsetNewest
					}
				})
				said := &logtest.Log{}
				r.logTo(slog.NewTextHandler(said, nil))
				r.fetch.first, r.fetch.last = c.first, c.last
				no := errors.New("no coordinator")
				r.refuse.Store(&no)
				time.AfterFunc(time.Second, func() { r.refuse.Store(nil) }) // the start takes more than one try
				if c.stored != nil {
					r.store.Set(map[kiel.Partition]offsets.Stored{p: *c.stored})
				}
				h := newHolder(t, p)
				h.previous = "m2" // as the line "claimed" has it
				done := r.owned(h)
				<-r.fetch.streams
				synctest.Wait()
				if got := r.store.Get(p).Offset; got != c.want {
					t.Errorf("committed %d before the first message, want %d", got, c.want)
				}
				log := r.log.all()
				if log[len(log)-1] != line("open", p, c.want) || log[len(log)-2] != line("commit", p, c.want) {
					t.Errorf("%v does not end with the commit and the opening of %d", log, c.want)
				}
				if n := r.store.Get(p); n.TopicID != id || n.Token != h.token {
					t.Errorf("metadata says %+v", n)
				}
				warned := 0
				if c.warns != "" {
					warned = 1
				}
				time.Sleep(reporting.StartsWithin)
				synctest.Wait()
				first, why := fmt.Sprintf("\"t:0 at %d\"\n", c.want), "cause="+c.warns
				switch {
				case c.warns == reasonNone && c.from == Latest:
					why = "new group starts behind messages that it skips"
				case c.warns == reasonNone:
					if warned = 0; said.Count("level=INFO", `msg="new group starts" policy=earliest option=Config.Consumer.Offsets.Initial`, first) != 1 {
						t.Errorf("the start is not logged:\n%s", said)
					}
				}
				if all, n := said.Count("level=WARN"), said.Count("level=WARN", why, first); all != warned || n != warned {
					t.Errorf("%d warnings, %d of them of the start, want %d with reason %q:\n%s", all, n, warned, c.warns, said)
				}
				from := "committed"
				switch c.warns {
				case reasonNone, reasonRecreated:
					from = "policy"
				case reasonOutOfRange, reasonTruncated:
					from = "reset"
				}
				if n := said.Count("level=INFO", "msg=opened", "partition=t:0", fmt.Sprintf("offset=%d origin=%s reason=session-lost previous=m2\n", c.want, from)); n != 1 {
					t.Errorf("the opening was logged %d times:\n%s", n, said)
				}
				errs := slices.DeleteFunc(r.errors(), func(err error) bool { return errors.Is(err, no) })
				if c.reports == nil && len(errs) > 0 || c.reports != nil && (len(errs) != 1 || !errors.Is(errs[0], c.reports)) {
					t.Errorf("reported %v, want %v", errs, c.reports)
				}
				h.release(t, done)
			})
		})
	}
}
