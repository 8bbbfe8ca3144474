package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func TestHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, fail, asked := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, false, 0
		c := &client{s: &Session{now: newClock()}, opts: &Options{}, log: slog.New(slog.DiscardHandler)}
		h := newHosts(c, []string{"zk:2181", "192.0.2.1:2182"})
		h.resolve = func(_ context.Context, host string) ([]string, error) {
			if asked++; host != "zk" || fail {
				return nil, errors.New("no answer")
			}
			return answers, nil
		}
		take := func(n int) (addresses []string) {
			for range n {
				target, err := h.next(t.Context())
				noerr.Must(t, err)
				if want := "zk"; target.host != want && target.address != "192.0.2.1:2182" {
					t.Errorf("%+v", target)
				}
				addresses = append(addresses, target.address)
			}
			return addresses
		}
		want := []string{"10.0.0.1:2181", "10.0.0.2:2181", "10.0.0.3:2181", "192.0.2.1:2182"}
		orders := make(map[string]bool)
		last, shortest, longest := "", time.Hour, time.Duration(0)
		for round := range 100 {
			start := time.Now()
			got := take(1)
			switch waited := time.Since(start); {
			case round == 0 && waited != 0:
				t.Errorf("%v before the first round", waited)
			case round == 1:
				shortest = waited
			default:
				longest = max(longest, waited)
			}
			start = time.Now()
			got = append(got, take(3)...)
			if time.Since(start) != 0 {
				t.Error("a pause inside of a round")
			}
			if round > 0 && got[0] == last {
				t.Errorf("%s, which failed last, is tried first", last)
			}
			last = got[3]
			orders[got[0]+got[1]] = true
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("round %d: %q", round, got)
			}
		}
		if asked != 100 || len(orders) < 6 {
			t.Errorf("resolved %d times, %d orders", asked, len(orders))
		}
		if shortest < 25*time.Millisecond || shortest > 50*time.Millisecond || longest < 600*time.Millisecond || longest > time.Second {
			t.Errorf("pauses from %v to %v", shortest, longest)
		}

		if h.addresses != len(want) {
			t.Errorf("%d addresses", h.addresses)
		}

		// New answers count; without any, the old ones do.
		answers, want = []string{"10.0.0.9"}, []string{"10.0.0.9:2181", "192.0.2.1:2182"}
		for range 2 {
			got := take(2)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			fail = true
		}

		// A connection that lived for a while makes the next attempt immediate; a short one does not.
		for lived, immediate := range map[time.Duration]bool{time.Minute: true, time.Millisecond: false} {
			take(1)
			h.Connected()
			time.Sleep(lived)
			start := time.Now()
			take(1)
			if got := time.Since(start) == 0; got != immediate {
				t.Errorf("after a connection of %v: immediate %v", lived, got)
			}
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		take(1)
		if _, err := h.next(ctx); err == nil {
			t.Error("went on after the end")
		}
	})
}

// A resolver that does not answer holds up a round for a second, however many names there are; and a client that waits for one
// does not hang.
func TestResolverThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []string
		for i := range 20 {
			servers = append(servers, fmt.Sprintf("zk%d:2181", i))
		}
		c := &client{s: &Session{now: newClock()}, opts: &Options{}, log: slog.New(slog.DiscardHandler)}
		h := newHosts(c, servers)
		silent := false
		h.resolve = func(ctx context.Context, host string) ([]string, error) {
			if silent {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []string{"10.0.0." + strings.TrimPrefix(host, "zk")}, nil
		}
		round := func() {
			for range servers {
				noerr.Last(t)(h.next(t.Context()))
			}
		}
		round()
		silent = true
		start := c.s.now()
		round()
		now := c.s.now()
		if took := now.mono - start.mono; took < resolveLimit || took > resolveLimit+firstPause {
			t.Errorf("the round began after %v", took)
		}
		if c.tried != now {
			t.Errorf("it seems to hang since %v", now.mono-c.tried.mono)
		}
	})
}

func TestPatience(t *testing.T) {
	c := &client{opts: &Options{}, trust: trust{timeout: 20 * time.Second}}
	c.hosts = &hosts{c: c, servers: []string{"a", "b"}}
	for _, s := range []struct {
		addresses int
		timeouts  int32
		roundTrip time.Duration
		trusted   bool
		want      time.Duration
	}{
		{0, 0, 0, true, time.Second},
		{0, 0, 700 * time.Millisecond, true, 1400 * time.Millisecond},
		{0, 0, time.Minute, true, 5 * time.Second}, // T/4
		{0, 1, 0, true, time.Second},               // one server is slow, not the path
		{0, 2, 0, true, 2 * time.Second},
		{0, 1000, 0, true, 5 * time.Second},
		{0, 0, 0, false, time.Second},
		{0, 0, time.Minute, false, 20 * time.Second * 2 / 3},
		{0, 1000, 0, false, 20 * time.Second * 2 / 3},
		{6, 5, 0, true, time.Second}, // a name stands for several servers
		{6, 6, 0, true, 2 * time.Second},
		{1, 1, 0, true, time.Second}, // one of the names could not be resolved
	} {
		if c.inc = nil; s.trusted {
			c.inc = new(Incarnation)
		}
		c.hosts.addresses = s.addresses
		c.hosts.timeouts.Store(s.timeouts)
		c.rtt = s.roundTrip
		if got := c.handshakeCap(); got != s.want {
			t.Errorf("%+v: %v", s, got)
		}
	}
}

// A name that does not resolve is a warning, at once and then now and then, like a port that refuses.
func TestWarnsOfNames(t *testing.T) {
	known := []string{"10.0.0.1"}
	for _, s := range []struct {
		name    string
		servers []string
		known   map[string][]string // a name without addresses has none; others fail
		want    map[string]int      // warnings of each name within 35 s
	}{
		{"all fail", []string{"zk1:2181", "zk2:2181", "zk2:2182"}, nil, map[string]int{"zk1": 4, "zk2": 4}},
		{"one fails", []string{"zk1:2181", "zk2:2181"}, map[string][]string{"zk2": known}, map[string]int{"zk1": 4}},
		{"one is empty", []string{"zk1:2181", "zk2:2181"}, map[string][]string{"zk1": nil, "zk2": known}, map[string]int{"zk1": 4}},
		{"none fails", []string{"zk1:2181", "192.0.2.1:2181"}, map[string][]string{"zk1": known}, nil},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				c := &client{s: &Session{now: newClock()}, opts: &Options{}, log: slog.New(slog.NewTextHandler(&log, nil))}
				h := newHosts(c, s.servers)
				h.resolve = func(_ context.Context, host string) ([]string, error) {
					addresses, ok := s.known[host]
					if !ok {
						return nil, errors.New("no such host")
					}
					return addresses, nil
				}
				check := func(when string, want func(host string) int) {
					for _, host := range []string{"zk1", "zk2", "192.0.2.1"} {
						if n := strings.Count(log.String(), `level=WARN msg="name not resolved" host=`+host+" "); n != want(host) {
							t.Errorf("%s: %d warnings of %s, want %d:\n%s", when, n, host, want(host), &log)
						}
					}
				}
				_, _ = h.next(t.Context())
				check("at once", func(host string) int { return min(s.want[host], 1) })
				for start := time.Now(); time.Since(start) < 35*time.Second; {
					_, _ = h.next(t.Context())
				}
				check("after 35 s", func(host string) int { return s.want[host] })
				if failed := c.s.lastError.Load(); (failed != nil) != (len(s.want) > 0) {
					t.Errorf("last error: %v", failed)
				}
			})
		})
	}
}
