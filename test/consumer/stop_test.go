package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// deafDialer makes connections that lose what comes, from some moment on. Those that carry no fetches end instead, and there are
// no new ones: sarama holds a mutex while it opens a connection, and while it waits for an answer, and virtual time stands still
// for who waits for that. Nobody does on those that carry fetches.
type deafDialer struct {
	dialer
	deaf *atomic.Bool
}

func (d deafDialer) Dial(network, address string) (net.Conn, error) {
	if d.deaf.Load() {
		return nil, errDeaf
	}
	c, err := d.dialer.Dial(network, address)
	return &deafConn{Conn: c, deaf: d.deaf}, err
}

var errDeaf = errors.New("deaf")

type deafConn struct {
	net.Conn
	deaf    *atomic.Bool
	fetches atomic.Bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	const fetch = 1 // the key of the request, after its length
	if len(b) >= 6 && b[4] == 0 && b[5] == fetch {
		c.fetches.Store(true)
	}
	if c.deaf.Load() && !c.fetches.Load() {
		return 0, errDeaf
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
		if !c.fetches.Load() {
			return 0, errDeaf
		}
	}
}

// stopper is a member that may go deaf to Kafka.
type stopper struct {
	*member
	deaf *atomic.Bool
}

// troubles are what may be wrong when a group is closed; each ends what it began.
func troubles() map[string]func(r *rig, m stopper) (heal func()) {
	return map[string]func(r *rig, m stopper) func(){
		"none":           func(*rig, stopper) func() { return func() {} },
		"no ZooKeeper":   func(_ *rig, m stopper) func() { m.net.Refuse(); m.net.Cut(); return m.net.Heal },
		"black hole":     func(_ *rig, m stopper) func() { m.net.BlackHole(zktest.Both); return m.net.Heal },
		"slow ZooKeeper": func(_ *rig, m stopper) func() { m.net.Delay(300 * time.Millisecond); return m.net.Heal },
		"silent handshakes": func(r *rig, _ stopper) func() {
			r.zk.SilentHandshakes(true)
			r.zk.CutAll()
			return func() { r.zk.SilentHandshakes(false) }
		},
		"frozen ZooKeeper": func(r *rig, _ stopper) func() { r.zk.Freeze(); return r.zk.Thaw },
		"ZooKeeper down":   func(r *rig, _ stopper) func() { r.zk.Down(); return func() { r.zk.Restart(false) } },
		"session killed": func(r *rig, m stopper) func() {
			for _, s := range r.zk.Sessions() {
				if s.Client == m.name {
					r.zk.KillSession(s.ID)
				}
			}
			return func() {}
		},
		"failing Kafka": func(r *rig, _ stopper) func() { return r.kafka.Fault(kfake.Fault{Count: -1}).Remove },
		"silent Kafka":  func(_ *rig, m stopper) func() { m.deaf.Store(true); return func() {} },
		"no Kafka":      func(r *rig, _ stopper) func() { r.kafka.Close(); return func() {} },
		"everything down": func(r *rig, _ stopper) func() {
			r.kafka.Close()
			r.zk.Down()
			return func() { r.zk.Restart(false) }
		},
	}
}

// Close returns within StopTimeout, whatever is under way and whatever is wrong, and so does Consume. When the session is the
// group's own, a few seconds come on top for its end.
func TestCloseInEveryPhase(t *testing.T) {
	const schedules = 100
	first := rand.Uint64()
	t.Attr("seeds_from", strconv.FormatUint(first, 10))
	var slowest time.Duration
	hit := map[string]int{}
	for i := range schedules {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 0))
				moment := func(longest time.Duration) time.Duration {
					if rnd.IntN(2) == 0 {
						longest = 50 * time.Millisecond
					}
					return time.Duration(rnd.Int64N(int64(longest)))
				}
				names := slices.Sorted(maps.Keys(troubles()))
				trouble := names[rnd.IntN(len(names))]
				limit := time.Duration(5+rnd.IntN(11)) * time.Second
				slow := []time.Duration{0, 0, 10 * time.Millisecond, time.Second}[rnd.IntN(4)]

				r := newRig(t, 6)
				r.produce(20, 0, 1, 2, 3, 4, 5)
				b := r.member("b", nil).start()
				time.Sleep(moment(10 * time.Second))
				deaf := &atomic.Bool{}
				construct, onTop := r.member, 100*time.Millisecond
				if rnd.IntN(3) == 0 {
					construct, onTop = r.owning, 6*time.Second
				}
				a := stopper{construct("a", func(o *consumer.Options) {
					o.StopTimeout = limit
					o.Config.Net.Proxy.Dialer = deafDialer{dialer{r.knet}, deaf}
				}), deaf}
				a.h.delay = slow
				heal := func() {}
				for _, what := range rnd.Perm(3) {
					switch what {
					case 0:
						if rnd.IntN(2) == 0 {
							a.start()
						} else {
							a.run()
						}
					case 1:
						heal = troubles()[trouble](r, a)
					case 2:
						if rnd.IntN(2) == 0 {
							b.stop()
						}
					}
					time.Sleep(moment(15 * time.Second))
				}
				switch calls := a.h.called(); {
				case len(a.owns()) > 0:
					hit["consuming"]++
				case len(calls) > 0:
					hit["set up"]++
				default:
					hit["joining"]++
				}
				began := time.Now()
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					if err := a.group.Close(); err != nil && trouble == "none" && slow < time.Second {
						t.Errorf("Close: %v", err)
					}
				}()
				err := <-a.done
				<-closed
				took := time.Since(began)
				if slowest = max(slowest, took); took > limit+onTop {
					t.Errorf("%s: Close took %v, allowed are %v: %v", trouble, took, limit+onTop, err)
				}
				if err != nil && trouble == "none" && slow < time.Second {
					t.Errorf("Consume: %v", err)
				}
				_, runs := errors.AsType[*ownership.StuckError](err)
				if calls := a.h.called(); !runs && slices.Contains(calls, "setup") && calls[len(calls)-1] != "cleanup" {
					t.Errorf("%s: %v without Cleanup: %v", trouble, calls, err)
				}
				n := len(a.log.events())
				began = time.Now()
				a.kill()
				<-a.ran
				allowed := 6 * time.Second
				if errors.Is(err, ownership.ErrStuck) {
					allowed = 11 * time.Second // the allocator tries for a session timeout to remove the member
				}
				if took := time.Since(began); took > allowed {
					t.Errorf("%s: the session's Run returned after %v", trouble, took)
				}
				heal()
				b.stop()
				<-b.done
				time.Sleep(20 * time.Second)
				if more := len(a.log.events()) - n; more > 0 && !errors.Is(err, ownership.ErrStuck) {
					t.Errorf("%s: %d events after Consume had returned %v", trouble, more, err)
				}
				if err := a.group.Consume(context.Background(), []string{topic}, a.h); err == nil {
					t.Error("Consume after Close")
				}
			})
		})
	}
	t.Attr("slowest_close", slowest.String())
	for _, phase := range []string{"joining", "set up", "consuming"} {
		t.Logf("%d of %d closed while %s", hit[phase], schedules, phase)
	}
	if hit["joining"] == 0 || hit["consuming"] == 0 {
		t.Errorf("phases hit: %v", hit)
	}
}
