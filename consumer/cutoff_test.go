package consumer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// errTLSInTest is what sarama returns when no handshake succeeds.
var errTLSInTest = sarama.Wrap(sarama.ErrOutOfBrokers, errors.New("tls: expired certificate in a test"))

// rejoining is a member that was cut off, and whose attempts to join again a test makes fail.
type rejoining struct {
	*rig
	log    bytes.Buffer
	dialer *kafkaconn.Dialer
	down   bool
	joins  int
}

// answering is a connection on which each Read brings a byte.
type answering struct{ net.Conn }

func (answering) Read(b []byte) (int, error) { b[0] = 0; return 1, nil }
func (answering) Close() error               { return nil }

func newRejoining(t *testing.T) *rejoining {
	r := &rejoining{rig: newRig(t, nil, nil), down: true}
	r.logTo(slog.NewTextHandler(&r.log, nil))
	r.group.settings.log = r.membership.log
	r.dialer = kafkaconn.NewDialer(t.Context(), conntest.ConfigOn(func(string, string) (net.Conn, error) {
		if r.down {
			return nil, errors.New("refused in a test")
		}
		return answering{}, nil
	}), 0)
	r.dialer.Reach = &r.group.reach
	r.dial()
	time.Sleep(time.Minute)
	r.group.cutOff.left(time.Now())
	return r
}

// dial has the group's reach learn whether a broker answers.
func (r *rejoining) dial() {
	if c, err := r.dialer.Dial("tcp", "kafka:9092"); err == nil {
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
	}
}

// rejoin joins again; each attempt first calls join.
func (r *rejoining) rejoin(ctx context.Context, join func() error) error {
	_, err := r.group.rejoin(ctx, func() (*membership, error) {
		r.joins++
		if err := join(); err != nil {
			return nil, err
		}
		return r.membership, nil
	})
	return err
}

// lines returns how many lines of the log have a text.
func (r *rejoining) lines(text string) int { return strings.Count(r.log.String(), text) }

// While no broker answers, the log, the status and Errors have the failed attempts, and the call goes on. So it is when the link
// comes back for a moment.
func TestRejoinTellsWhyItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejoining(t)
		began := time.Now()
		err := r.rejoin(t.Context(), func() error {
			r.down = r.joins%7 != 0
			r.dial()
			r.down = true
			r.dial()
			if r.joins == 10 {
				if all := r.group.log.Troubles(); len(all) != 1 || all[0].Kind != reporting.KindKafka {
					t.Errorf("the troubles are %v", all)
				}
			}
			if time.Since(began) < 10*time.Minute {
				return errTLSInTest
			}
			return nil
		})
		noerr.Must(t, err)
		if n := r.lines("kind=kafka error=") + r.lines("kind=kafka about"); n < 50 || n > 61 || r.lines("level=ERROR") != 0 {
			t.Errorf("%d lines in 10 minutes: %.1000s", n, r.log.String())
		}
		if r.lines("msg=recovered kind=kafka") != 1 || r.lines("joining again") != 1 || r.group.log.Failing() {
			t.Errorf("no end in the log: %s", r.log.String()[max(0, r.log.Len()-1000):])
		}
		if n := len(r.group.report.Errors()); n == 0 {
			t.Error("nothing was sent to Errors")
		}
	})
}

// When brokers answer, and the member can't connect to them all the same, the call returns the error, as a first join does.
func TestRejoinReturnsWhatBrokersSay(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		within time.Duration
	}{
		"a fault of TLS": {errTLSInTest, 40 * time.Second},
		"a refusal":      {sarama.ErrGroupAuthorizationFailed, 6 * time.Second},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := newRejoining(t)
			r.down = false
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := r.rejoin(ctx, func() error { r.dial(); return c.err })
			if took := time.Since(began); !errors.Is(err, c.err) || took > c.within {
				t.Errorf("%v after %v and %d attempts", err, took, r.joins)
			}
			if all := r.group.log.Troubles(); len(all) == 0 || !r.group.log.Failing() {
				t.Errorf("why the member is left out is not noted: %+v", all)
			}
			for _, trouble := range r.group.log.Troubles() {
				// The trouble "member" goes on until a call has joined.
				if goesOn := trouble.Until == nil; goesOn != (trouble.Kind == reporting.KindMember) {
					t.Errorf("trouble %+v", trouble)
				}
			}
		})
	}
}
