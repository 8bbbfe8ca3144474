package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// newGroup makes a Group that has a session of its own.
func (r *rig) newGroup(name string, change func(*consumer.Options)) (*consumer.Group, error) {
	opts := consumer.Options{Name: name, Config: r.config(), Session: session.Options{Dial: r.zknet.Client(name).Dial}}
	if change != nil {
		change(&opts)
	}
	return consumer.NewGroup([]string{zktest.VirtualAddress}, r.kafka.ListenAddrs(), group, opts)
}

// mustGroup is newGroup that succeeds.
func (r *rig) mustGroup(name string, change func(*consumer.Options)) *consumer.Group {
	r.t.Helper()
	g, err := r.newGroup(name, change)
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

// closeOwn closes g, which must not take longer than limit.
func closeOwn(t *testing.T, g *consumer.Group, limit time.Duration, want error) {
	t.Helper()
	began := time.Now()
	if err := g.Close(); !errors.Is(err, want) {
		t.Errorf("Close: %v, want %v", err, want)
	}
	if took := time.Since(began); took > limit {
		t.Errorf("Close took %v, more than %v", took, limit)
	}
}

// Two groups register their sessions' metrics in one Registerer: the second is refused at once and registers nothing. Once the
// first is closed, the second is accepted.
func TestNewGroupWithATakenRegisterer(t *testing.T) {
	for name, set := range map[string]func(*consumer.Options, prometheus.Registerer){
		"of the group":   func(o *consumer.Options, reg prometheus.Registerer) { o.Registerer = reg },
		"of the session": func(o *consumer.Options, reg prometheus.Registerer) { o.Session.Registerer = reg },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, reg := newRig(t, 1), prometheus.NewRegistry()
				taken := func(o *consumer.Options) { set(o, reg) }
				shown := func() int {
					families, err := reg.Gather()
					if err != nil {
						t.Error(err)
					}
					return len(families)
				}
				g := r.mustGroup("a", taken)
				n := shown()
				if _, err := r.newGroup("b", taken); !isTaken(err) {
					t.Errorf("the second one: %v", err)
				}
				if now := shown(); n == 0 || now != n {
					t.Errorf("%d families are shown, then %d", n, now)
				}
				closeOwn(t, g, time.Second, nil)
				if n := shown(); n > 0 {
					t.Errorf("%d families are shown after Close", n)
				}
				if _, err := r.newGroup("c", func(o *consumer.Options) { taken(o); o.Name = "/" }); err == nil || shown() > 0 {
					t.Errorf("NewGroup: %v; %d families are shown", err, shown())
				}
				closeOwn(t, r.mustGroup("d", taken), time.Second, nil)
			})
		})
	}
}

func isTaken(err error) bool {
	_, taken := errors.AsType[prometheus.AlreadyRegisteredError](err)
	return taken
}

// NewGroup makes a member that consumes, and whose session ends with it. What it leaves running the bubble would wait for.
func TestNewGroup(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.produce(5, 0, 1)
		var log bytes.Buffer
		g := r.mustGroup("a", func(o *consumer.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		h := &recorder{done: func(*sarama.ConsumerMessage) {}}
		done := make(chan error, 1)
		go func() { done <- g.Consume(t.Context(), []string{topic}, h) }()
		until(t, "10 messages", func() bool { return h.count() == 10 })
		if n := r.zk.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
		closeOwn(t, g, time.Second, nil)
		if err := <-done; err != nil {
			t.Errorf("Consume: %v", err)
		}
		for err := range g.Errors() { // Close has closed it
			t.Errorf("Errors: %v", err)
		}
		if n := r.zk.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions left after Close", n)
		}
		if r.committed(topic, 0) != 5 || r.committed(topic, 1) != 5 {
			t.Errorf("committed %d and %d of 5", r.committed(topic, 0), r.committed(topic, 1))
		}
		if !strings.Contains(log.String(), "component=session") {
			t.Errorf("the session did not log to the Logger of the group:\n%s", &log)
		}
	})
}

// NewGroup that fails leaves nothing behind: the bubble would not end.
func TestNewGroupFails(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		for name, change := range map[string]func(*consumer.Options){
			"an option":                func(o *consumer.Options) { o.MaxUnmarked = -1 },
			"an option of the session": func(o *consumer.Options) { o.Session.Timeout = -1 },
		} {
			if _, err := r.newGroup("a", change); err == nil {
				t.Errorf("%s is wrong, and no error", name)
			}
		}
		if n := r.zk.Stats().SessionsCreated; n != 0 {
			t.Errorf("%d sessions created", n)
		}
		nobody := []string{"127.0.0.1:1", "127.0.0.1:2"}
		for name, full := range map[string]bool{"": true, ", Metadata.Full is false": false} {
			began := time.Now()
			config := r.config()
			config.Metadata.Full = full
			config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 2, time.Second
			_, err := consumer.NewGroup([]string{zktest.VirtualAddress}, nobody, group, consumer.Options{Config: config})
			if took := time.Since(began); !errors.Is(err, sarama.ErrOutOfBrokers) || took != 2*time.Second {
				t.Errorf("without Kafka%s: %v after %v, want ErrOutOfBrokers after 2 s", name, err, took)
			}
		}
		if n := r.zk.Stats().SessionsCreated; n != 0 {
			t.Errorf("%d sessions created", n)
		}
	})
}

// A broker that answers is enough for NewGroup, whatever it says about topics.
func TestNewGroupOnEmptyKafka(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		if err := r.kafka.DeleteTopic(topic); err != nil {
			t.Fatal(err)
		}
		for _, full := range []bool{true, false} {
			g := r.mustGroup("a", func(o *consumer.Options) { o.Config.Metadata.Full = full })
			closeOwn(t, g, time.Second, nil)
		}
	})
}

// Close ends a session in whatever state the Group is, within StopTimeout and the few seconds that a session takes.
func TestCloseOwnSession(t *testing.T) {
	const limit = 10 * time.Second
	consuming := func(t *testing.T, _ *rig, g *consumer.Group) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- g.Consume(t.Context(), []string{topic}, &recorder{}) }()
		t.Cleanup(func() { <-done })
		time.Sleep(20 * time.Second)
	}
	states := map[string]func(t *testing.T, r *rig, g *consumer.Group){
		"just made":      func(*testing.T, *rig, *consumer.Group) {},
		"never consumed": func(*testing.T, *rig, *consumer.Group) { time.Sleep(20 * time.Second) },
		"between calls": func(t *testing.T, _ *rig, g *consumer.Group) {
			t.Helper()
			if err := g.Consume(t.Context(), []string{topic}, &recorder{setupErr: errDeaf}); !errors.Is(err, errDeaf) {
				t.Errorf("Consume: %v", err)
			}
		},
		"consuming": consuming,
		"ZooKeeper goes while consuming": func(t *testing.T, r *rig, g *consumer.Group) {
			t.Helper()
			consuming(t, r, g)
			r.zk.Freeze()
			time.Sleep(time.Second)
		},
		"twice": func(t *testing.T, _ *rig, g *consumer.Group) { t.Helper(); closeOwn(t, g, time.Second, nil) },
		"at the same time": func(t *testing.T, r *rig, g *consumer.Group) {
			t.Helper()
			consuming(t, r, g)
			var others sync.WaitGroup
			for range 3 {
				others.Go(func() {
					closeOwn(t, g, time.Second, nil)
					if n := r.zk.Stats().Sessions; n != 0 {
						t.Errorf("%d sessions left when Close had returned", n)
					}
				})
			}
			t.Cleanup(others.Wait)
		},
	}
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				g := r.mustGroup("a", func(o *consumer.Options) { o.StopTimeout = limit })
				state(t, r, g)
				closeOwn(t, g, limit+5*time.Second, nil)
			})
		})
	}
}

// NewGroup does not wait for ZooKeeper. Consume does, and Close ends that, too.
func TestNewGroupWithoutZooKeeper(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.zk.Down()
		began := time.Now()
		g := r.mustGroup("a", nil)
		if took := time.Since(began); took > time.Second {
			t.Errorf("NewGroup took %v", took)
		}
		done := make(chan error, 1)
		h := &recorder{done: func(*sarama.ConsumerMessage) {}}
		go func() { done <- g.Consume(t.Context(), []string{topic}, h) }()
		time.Sleep(time.Minute)
		if len(h.called()) > 0 || len(done) > 0 {
			t.Errorf("without ZooKeeper: %v", h.called())
		}
		closeOwn(t, g, 35*time.Second, nil)
		if err := <-done; err != nil {
			t.Errorf("Consume: %v", err)
		}

		g = r.mustGroup("b", nil)
		go func() { done <- g.Consume(t.Context(), []string{topic}, h) }()
		time.Sleep(time.Minute)
		r.zk.Restart(false)
		until(t, "the partition is open", func() bool { return len(h.called()) == 2 })
		closeOwn(t, g, time.Second, nil)
		if err := <-done; err != nil {
			t.Errorf("Consume: %v", err)
		}
	})
}

// A session that ends by itself for good is what Consume returns, and Close.
func TestOwnSessionEnds(t *testing.T) {
	who := func(name string) []session.Auth {
		return []session.Auth{{Scheme: "digest", Credential: []byte(name + ":geheim")}}
	}
	for name, c := range map[string]struct {
		options session.Options
		want    error
	}{
		"credentials that open nothing":     {session.Options{Auth: who("bob"), Chroot: "/theirs"}, session.ErrAuthFailed},
		"a chroot that must not be created": {session.Options{Auth: who("bob"), Chroot: "/theirs/kiel"}, session.ErrNoAuth},
	} {
		for late, wait := range map[string]time.Duration{", at once": 0, ", before Consume": time.Minute} {
			t.Run(name+late, func(t *testing.T) {
				inRig(t, 1, func(t *testing.T, r *rig) {
					ann, err := session.Start(t.Context(), []string{zktest.VirtualAddress},
						session.Options{Auth: who("ann"), Chroot: "/theirs", Dial: r.zknet.Client("ann").Dial})
					if err != nil {
						t.Fatal(err)
					}
					defer ann.Close(context.WithoutCancel(t.Context()))
					g := r.mustGroup("a", func(o *consumer.Options) {
						c.options.Dial = o.Session.Dial
						o.Session = c.options
					})
					time.Sleep(wait)
					for range 2 {
						err := g.Consume(t.Context(), []string{topic}, &recorder{})
						if !errors.Is(err, c.want) {
							t.Errorf("Consume: %v, want %v", err, c.want)
						}
						if err != nil && strings.Contains(err.Error(), "geheim") {
							t.Errorf("the error shows the password: %v", err)
						}
					}
					closeOwn(t, g, time.Second, c.want)
					synctest.Wait()
				})
			})
		}
	}
}

// NewFromClient takes the configuration and the brokers of a client, and leaves the client alone.
func TestNewFromClient(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(5, 0)
		for name, full := range map[string]bool{"that knows its brokers": true, "that has asked for nothing": false} {
			config := r.config()
			config.Metadata.Full = full
			client, err := sarama.NewClient(r.kafka.ListenAddrs(), config)
			if err != nil {
				t.Fatal(err)
			}
			zk, err := session.Start(t.Context(), []string{zktest.VirtualAddress}, session.Options{Dial: r.zknet.Client(name).Dial})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := consumer.NewFromClient(zk, client, group, consumer.Options{Config: config}); err == nil {
				t.Error("a configuration beside the client's was taken")
			}
			g, err := consumer.NewFromClient(zk, client, "of-"+strings.ReplaceAll(name, " ", "-"), consumer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			h := &recorder{done: func(*sarama.ConsumerMessage) {}}
			done := make(chan error, 1)
			go func() { done <- g.Consume(t.Context(), []string{topic}, h) }()
			until(t, "5 messages with a client "+name, func() bool { return h.count() == 5 })
			if err := errors.Join(g.Close(), <-done, zk.Close(t.Context())); err != nil {
				t.Error(err)
			}
			if _, err := client.Partitions(topic); err != nil || client.Closed() {
				t.Errorf("the client is of no use any more: %v", err)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			if _, err := consumer.NewFromClient(zk, client, group, consumer.Options{}); !errors.Is(err, sarama.ErrClosedClient) {
				t.Errorf("with a closed client: %v", err)
			}
		}
		if _, err := consumer.NewFromClient(nil, nil, group, consumer.Options{}); err == nil {
			t.Error("made a group without a client")
		}
	})
}
