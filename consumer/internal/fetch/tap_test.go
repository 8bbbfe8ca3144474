package fetch

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// bytesConn is a connection whose other side has sent some bytes.
type bytesConn struct {
	net.Conn
	in *bytes.Reader
}

func (c bytesConn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c bytesConn) Write(b []byte) (int, error) { return len(b), nil }

// frame returns a request's or an answer's bytes behind its length.
func frame(parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func requestHeader(api, version uint16, correlation uint32) []byte {
	out := binary.BigEndian.AppendUint16(nil, api)
	out = binary.BigEndian.AppendUint16(out, version)
	return binary.BigEndian.AppendUint32(out, correlation)
}

func correlated(correlation uint32) []byte { return binary.BigEndian.AppendUint32(nil, correlation) }

// An answer to a fetch request is kept, and sarama reads an empty one in its place. All else passes through.
func TestTap(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 100)
	other := frame(correlated(8), []byte("not of a fetch"))
	for name, c := range map[string]struct {
		request []byte
		twice   bool // the request is written with two calls
		keeps   bool
		kept    bool
	}{
		"kept":            {request: frame(requestHeader(apiFetch, 11, 7)), keeps: true, kept: true},
		"another request": {request: frame(requestHeader(18, 3, 7)), keeps: true},
		"another id":      {request: frame(requestHeader(apiFetch, 11, 6)), keeps: true},
		"in two writes":   {request: frame(requestHeader(apiFetch, 11, 7)), keeps: true, twice: true},
		"no request":      {request: frame([]byte("\x00\x01\x00\x0bpassword")), keeps: false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := frame(correlated(7), body)
			tap := newTap(bytesConn{in: bytes.NewReader(append(append([]byte{}, answer...), other...))})
			if c.keeps {
				tap.begin()
			}
			if c.twice {
				tap.Write(c.request[:8])
				tap.Write(c.request[8:])
			} else {
				tap.Write(c.request)
			}
			want := append(append([]byte{}, answer...), other...)
			if c.kept {
				want = append(emptyAnswer(append(make([]byte, 4, 32), answer[4:8]...), 11), other...)
			}
			if got, err := io.ReadAll(tap); err != nil || !bytes.Equal(got, want) {
				t.Errorf("sarama reads %d bytes, want %d: %v", len(got), len(want), err)
			}
			kept := tap.take()
			if (kept != nil) != c.kept || c.kept && (!bytes.Equal(kept.body, body) || kept.version != 11) {
				t.Errorf("kept %v", kept)
			}
			if tap.take() != nil {
				t.Error("taken twice")
			}
		})
	}
}

// The answers that sarama reads in place of others are answers of their versions, without a partition.
func TestEmptyAnswers(t *testing.T) {
	for version := int16(5); version <= 12; version++ {
		out := emptyAnswer(append(make([]byte, 4, 32), correlated(7)...), version)
		assert.Equal(t, int(binary.BigEndian.Uint32(out)), len(out)-4, "version %d: length of %d bytes", version, len(out))
		a, err := readAnswer(&keptAnswer{version: version, body: out[8:]})
		if err != nil || a.throttle != 0 || a.code != 0 || len(a.parts) > 0 {
			t.Errorf("version %d: %+v, %v", version, a, err)
		}
	}
}

// The memory for answers is used again, but that of one large answer is not kept for small ones.
func TestMemoryForAnswers(t *testing.T) {
	tap := newTap(nil)
	first := tap.room(1000)
	if again := tap.room(900); &again[0] != &first[0] {
		t.Error("not used again")
	}
	tap.room(1 << 20)
	for range rarelyFull {
		tap.room(1000)
	}
	if n := cap(tap.memory); n > 1000 {
		t.Errorf("%d bytes are kept for answers of 1,000", n)
	}
}

// An answer that the connection has not kept is an error, and so is one that another connection has kept: it reaches no
// partition.
func TestAnswerThatWasNotKept(t *testing.T) {
	another := answerWith((&batch{base: 1, values: []string{"another's"}}).encode())
	for name, stale := range map[string]*keptAnswer{"none": nil, "of another connection": {version: 11, body: another}} {
		t.Run(name, func(t *testing.T) {
			var failures tally
			inBubble(t, func(o *Options) { o.OnFailure = failures.add; o.Config.Consumer.MaxWaitTime = time.Second }, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				k.add(3, batch{values: vals(1)})
				p := open(t, x, 3, 0, -1)
				same(t, offsets(t, p, 1), []int64{0})
				p.Pause()
				time.Sleep(2 * time.Second) // no request is in flight
				l := p.node.links[0]
				x.mu.Lock()
				l.tap = newTap(nil)
				l.tap.kept = stale
				x.mu.Unlock()
				k.add(3, batch{values: vals(1)})
				p.Resume()
				if b, err := next(t, p, time.Minute); err != nil || len(b.Messages) != 1 || string(b.Messages[0].Value) != "v" {
					t.Errorf("%+v, %v", b.Messages, err)
				}
				failures.only(t, Undecodable, 1, 1)
				synctest.Wait()
			})
		})
	}
}

// An answer that is too large is sarama's to refuse.
func TestTapPassesWhatIsTooLarge(t *testing.T) {
	limit := sarama.MaxResponseSize
	defer func() { sarama.MaxResponseSize = limit }()
	sarama.MaxResponseSize = 50
	answer := frame(correlated(7), make([]byte, 100))
	tap := newTap(bytesConn{in: bytes.NewReader(answer)})
	tap.begin()
	tap.Write(frame(requestHeader(apiFetch, 11, 7)))
	if got, err := io.ReadAll(tap); err != nil || !bytes.Equal(got, answer) || tap.take() != nil {
		t.Errorf("%d bytes of %d passed: %v", len(got), len(answer), err)
	}
}
