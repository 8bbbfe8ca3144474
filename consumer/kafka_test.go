package consumer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/topics"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/conntest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/zktest"
)

// mock is a broker that leads t:0 and coordinates g.
func mock(t *testing.T, more map[string]sarama.MockResponse) *sarama.MockBroker {
	t.Helper()
	b := sarama.NewMockBroker(t, 1)
	t.Cleanup(b.Close)
	handlers := map[string]sarama.MockResponse{
		"MetadataRequest":        sarama.NewMockMetadataResponse(t).SetBroker(b.Addr(), b.BrokerID()).SetLeader("t", 0, b.BrokerID()),
		"FindCoordinatorRequest": sarama.NewMockFindCoordinatorResponse(t).SetCoordinator(sarama.CoordinatorGroup, "g", b),
		"OffsetRequest":          sarama.NewMockOffsetResponse(t).SetOffset("t", 0, sarama.OffsetOldest, 3).SetOffset("t", 0, sarama.OffsetNewest, 9),
	}
	maps.Copy(handlers, more)
	b.SetHandlerByMap(handlers)
	return b
}

func newTestKafka(t *testing.T, addr string) *kafka {
	t.Helper()
	return newTestKafkaOf(t, addr, sarama.V2_0_0_0) // what the mocks speak
}

func newTestKafkaOf(t *testing.T, addr string, version sarama.KafkaVersion) *kafka {
	t.Helper()
	config := testConfig()
	config.Version = version
	config.RackID = "a"
	config.ApiVersionsRequest = false
	config.Metadata.Retry.Max = 0
	life, end := context.WithCancel(t.Context())
	k, err := newKafka(life, &bootstrap{addresses: []string{addr}}, "g", config, 4*time.Second, fetch.Options{}, &kafkaconn.Reach{})
	noerr.Must(t, err)
	t.Cleanup(func() {
		end()
		k.end()
	})
	return k
}

func TestKafkaClients(t *testing.T) {
	b := mock(t, map[string]sarama.MockResponse{
		"OffsetCommitRequest": sarama.NewMockOffsetCommitResponse(t),
		"OffsetFetchRequest":  sarama.NewMockOffsetFetchResponse(t).SetOffset("g", "t", 0, 7, "meta", sarama.ErrNoError).SetError(sarama.ErrNoError),
		"FetchRequest":        sarama.NewMockFetchResponse(t, 1).SetMessage("t", 0, 3, sarama.StringEncoder("v")),
	})
	k := newTestKafka(t, b.Addr())
	p := tp("t", 0)
	infos, err := k.describe([]string{"t"})
	if err != nil || len(infos["t"].Partitions) != 1 || infos["t"].Err != nil {
		t.Fatalf("describe: %v, %v", infos, err)
	}
	for from, want := range map[StartAt]int64{Earliest: 3, Latest: 9} {
		if got, err := k.logOffset(t.Context(), p, from); err != nil || got != want {
			t.Errorf("%v: %d, %v", from, got, err)
		}
	}
	found, err := k.offsets.Fetch(t.Context(), []kiel.Partition{p})
	if f := found[p]; err != nil || f.Offset != 7 || f.Text != "meta" {
		t.Errorf("fetch: %+v, %v", f, err)
	}
	assert.Error(t, k.offsets.Commit(t.Context(), oneCommit())[p], nil, "commit")
	k.abortCommits() // and again on a new connection
	assert.Error(t, k.offsets.Commit(t.Context(), oneCommit())[p], nil, "commit after the connections were thrown away")
	s, err := k.fetcher.open(t.Context(), p, 3, -1)
	noerr.Must(t, err)
	if b, err := s.Next(t.Context()); err != nil || b.Messages[0].Offset != 3 {
		t.Errorf("read %+v, %v", b, err)
	}
	s.Close()
	s, err = k.fetcher.open(t.Context(), p, 3, -1)
	if err != nil {
		t.Fatalf("open again: %v", err)
	}
	s.Close()
	outside := &sarama.FetchResponse{Version: 8}
	outside.AddError("t", 0, sarama.ErrOffsetOutOfRange)
	b.SetHandlerByMap(map[string]sarama.MockResponse{
		"MetadataRequest": sarama.NewMockMetadataResponse(t).SetBroker(b.Addr(), b.BrokerID()).SetLeader("t", 0, b.BrokerID()),
		"OffsetRequest":   sarama.NewMockOffsetResponse(t).SetOffset("t", 0, sarama.OffsetOldest, 3).SetOffset("t", 0, sarama.OffsetNewest, 9),
		"FetchRequest":    sarama.NewMockWrapper(outside),
	})
	if _, err := k.fetcher.open(t.Context(), p, 10, -1); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		t.Errorf("open beyond the end: %v", err)
	}
}

func oneCommit() []offsets.OffsetCommit {
	return []offsets.OffsetCommit{{Partition: tp("t", 0), Offset: 100, Authorize: func() error { return nil }}}
}

func TestUnknownTopicIsAnError(t *testing.T) {
	b := mock(t, map[string]sarama.MockResponse{
		"MetadataRequest": sarama.NewMockMetadataResponse(t).SetBroker("127.0.0.1:1", 1).SetError("t", sarama.ErrUnknownTopicOrPartition),
	})
	k := newTestKafka(t, b.Addr())
	cat := topics.New(topics.Options{Names: []string{"t"}, Load: k.describe, Calls: &k.do})
	if err := cat.Refresh(t.Context(), 0); err == nil {
		t.Error("an unknown topic was described")
	}
}

func TestCallsEndWithTheirContextThoughKafkaIsSilent(t *testing.T) {
	k := newTestKafka(t, conntest.Hole(t))
	start := time.Now()
	for name, call := range map[string]func(context.Context) error{
		"offsets": func(ctx context.Context) error {
			_, err := k.offsets.Fetch(ctx, []kiel.Partition{tp("t", 0)})
			return err
		},
		"commit": func(ctx context.Context) error { return k.offsets.Commit(ctx, oneCommit())[tp("t", 0)] },
		"logOffset": func(ctx context.Context) error {
			_, err := k.logOffset(ctx, tp("t", 0), Earliest)
			return err
		},
		"open": func(ctx context.Context) error {
			_, err := k.fetcher.open(ctx, tp("t", 0), 0, -1)
			return err
		},
		"describe": func(ctx context.Context) error {
			return topics.New(topics.Options{Names: []string{"t"}, Load: k.describe, Calls: &k.do}).Refresh(ctx, 0)
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		assert.Error(t, call(ctx), context.DeadlineExceeded, "%s", name)
		cancel()
	}
	// the Cleanup of newTestKafka ends what is still under way
	t.Cleanup(func() {
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("it took %v until nothing was under way", d)
		}
	})
}

// metadataOf returns the answer of the broker b, which leads t:0, of the cluster of id.
func metadataOf(b *sarama.MockBroker, id *string) *sarama.MetadataResponse {
	r := &sarama.MetadataResponse{Version: 6, ClusterID: id}
	r.AddBroker(b.Addr(), b.BrokerID())
	r.AddTopicPartition("t", 0, b.BrokerID(), []int32{b.BrokerID()}, []int32{b.BrokerID()}, nil, sarama.ErrNoError)
	return r
}

func TestClusterIDComesWithTheTopics(t *testing.T) {
	b := mock(t, nil)
	answer := func(id *string) {
		b.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": sarama.NewMockWrapper(metadataOf(b, id))})
	}
	answer(nil)
	k := newTestKafka(t, b.Addr())
	m := &membership{kafka: k}
	for _, step := range []struct{ answers, want string }{
		{"", ""},
		{"has spaces", ""},
		{"bell\a", ""},
		{"ümlaut", ""},
		{strings.Repeat("x", 129), ""},
		{"MkU3OEVBNTcwNTJENDM2Qg", "MkU3OEVBNTcwNTJENDM2Qg"},
		{"", "MkU3OEVBNTcwNTJENDM2Qg"},
		{"has spaces", "MkU3OEVBNTcwNTJENDM2Qg"},
		{strings.Repeat("x", 128), strings.Repeat("x", 128)},
		{"ns.servicebus.windows.net", "ns.servicebus.windows.net"},
	} {
		answer(&step.answers)
		if _, err := k.describe([]string{"t"}); err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, m.clusterID(), step.want, "after the answer %q the id", step.answers)
	}
	answer(nil)
	if _, err := k.describe([]string{"t"}); err != nil || m.clusterID() != "ns.servicebus.windows.net" {
		t.Errorf("after an answer without an id: %q, %v", m.clusterID(), err)
	}
	assert.Equal(t, (&membership{}).clusterID(), "", "without Kafka the id")
}

// TestClusterIDWithoutTopics is red if a member whose patterns find no topic joins without the id, or if it asks when topics were
// described.
func TestClusterIDWithoutTopics(t *testing.T) {
	b := mock(t, nil)
	id := "MkU3OEVBNTcwNTJENDM2Qg"
	b.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": sarama.NewMockWrapper(metadataOf(b, &id))})
	k := newTestKafka(t, b.Addr())
	list, err := topiclist.Parse([]string{"^nothing"})
	noerr.Must(t, err)
	r := newRig(t, nil, nil)
	m := r.membership
	m.kafka, m.topics = k, list
	m.catalog = m.newCatalog(k)
	if err := m.firstLook(t.Context()); err != nil || m.clusterID() != id {
		t.Errorf("the id is %q: %v", m.clusterID(), err)
	}
	m.kafka = nil // the rig's end knows no Kafka

	b2 := mock(t, nil) // a Kafka without an id
	k2 := newTestKafka(t, b2.Addr())
	m2 := &membership{kafka: k2, catalog: topics.New(topics.Options{Names: []string{"t"}, Load: k2.describe, Calls: &k2.do})}
	noerr.Must(t, m2.catalog.Look(t.Context()))
	before := len(b2.History())
	if err := m2.learnCluster(t.Context()); err != nil || m2.clusterID() != "" || len(b2.History()) != before {
		t.Errorf("id %q, %v, %d requests more", m2.clusterID(), err, len(b2.History())-before)
	}
}

// A leader that names a follower to fetch from (KIP-392) sends no messages itself. So the follower must be found even if it
// started, or moved to another address, after the fetcher had connected. Otherwise the partition is not read any more.
func TestFollowerThatComesLater(t *testing.T) {
	for _, name := range []string{"new", "moved"} {
		t.Run(name, func(t *testing.T) {
			named := &sarama.FetchResponse{Version: 11, Blocks: map[string]map[int32]*sarama.FetchResponseBlock{
				"t": {0: {PreferredReadReplica: 2, HighWaterMarkOffset: 9}},
			}}
			nothing := &sarama.FetchResponse{Version: 11, Blocks: map[string]map[int32]*sarama.FetchResponseBlock{
				"t": {0: {PreferredReadReplica: -1, HighWaterMarkOffset: 9}},
			}}
			metadata := func(leader *sarama.MockBroker) *sarama.MockMetadataResponse {
				return sarama.NewMockMetadataResponse(t).SetBroker(leader.Addr(), 1).SetLeader("t", 0, 1)
			}
			leader := mock(t, nil)
			old := metadata(leader)
			elsewhere := sarama.NewMockBroker(t, 2)
			if name == "moved" {
				old.SetBroker(elsewhere.Addr(), 2)
			}
			elsewhere.SetHandlerByMap(map[string]sarama.MockResponse{"MetadataRequest": old})
			offsets := sarama.NewMockOffsetResponse(t).SetOffset("t", 0, sarama.OffsetOldest, 3).SetOffset("t", 0, sarama.OffsetNewest, 9)
			leader.SetHandlerByMap(map[string]sarama.MockResponse{
				"MetadataRequest": old, "OffsetRequest": offsets, "FetchRequest": sarama.NewMockWrapper(nothing),
			})
			k := newTestKafkaOf(t, leader.Addr(), sarama.V2_3_0_0)
			if _, err := k.describe([]string{"t"}); err != nil {
				t.Fatal(err)
			}
			s, err := k.fetcher.open(t.Context(), tp("t", 0), 3, -1)
			noerr.Must(t, err)
			elsewhere.Close()
			follower := sarama.NewMockBroker(t, 2)
			defer follower.Close()
			now := metadata(leader).SetBroker(follower.Addr(), 2)
			follower.SetHandlerByMap(map[string]sarama.MockResponse{
				"MetadataRequest": now, "OffsetRequest": offsets,
				"FetchRequest": sarama.NewMockFetchResponse(t, 1).SetMessage("t", 0, 3, sarama.StringEncoder("v")),
			})
			leader.SetHandlerByMap(map[string]sarama.MockResponse{
				"MetadataRequest": now, "OffsetRequest": offsets, "FetchRequest": sarama.NewMockWrapper(named),
			})
			ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("the follower is not found"))
			defer cancel()
			if b, err := s.Next(ctx); err != nil || b.Messages[0].Offset != 3 {
				t.Errorf("read %+v, %v", b, err)
			}
			s.Close()
		})
	}
}

// slowClient is a client of the user that looks for the coordinator for a time.
type slowClient struct {
	sarama.Client
	takes time.Duration
}

func (c slowClient) RefreshCoordinator(string) error {
	time.Sleep(c.takes)
	return nil
}

// Close waits for the user's client while it looks for brokers, so that the program may close the client then, but not for long:
// nothing ends that look.
func TestCloseWaitsForTheUsersClient(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{
		closingGrace / 2: closingGrace / 2,
		time.Minute:      closingGrace,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil, nil)
			r.group.brokers = &bootstrap{group: "g", client: slowClient{takes: takes}}
			r.leave(nil)
			close(r.done)
			r.group.brokers.ask()
			began := time.Now()
			noerr.Want(t, r.group.Close())
			assert.Equal(t, time.Since(began), want, "the client takes %v: closed after", takes)
			time.Sleep(takes)
		})
	}
}

// serveBroker accepts connections until the test ends, and gives each to f. Then it closes them.
func serveBroker(t *testing.T, f func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noerr.Must(t, err)
	var handling kafkaconn.Calls
	handling.Start(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handling.Start(func() {
				f(c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); handling.Wait() })
	return l.Addr().String()
}

// answers reads a request and sends the same answer to each. Without an answer it closes the connection.
func answers(said string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.CopyN(io.Discard, c, 4)
		if said != "" {
			_, _ = io.WriteString(c, said)
			_, _ = io.Copy(io.Discard, c)
		}
	}
}

// The pages of Consume and NewGroup promise sarama.ErrOutOfBrokers when there is no broker; the error names the address too.
func TestConsumeWithoutBrokers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noerr.Must(t, err)
	refused := l.Addr().String()
	_ = l.Close()
	_, zookeeper := zktest.Start(t, zktest.Options{})
	alert := "\x15\x03\x03\x00\x02\x02\x0a"
	closed, other := "closed the connection before it answered", "does not answer as a Kafka broker"
	noTLS, withTLS := "does it expect TLS?", "with TLS?"
	for _, s := range []struct {
		name    string
		address string
		tls     bool
		want    []string
	}{
		{"refused", refused, false, []string{"connection refused"}},
		{"refused, with TLS", refused, true, []string{"connection refused"}},
		{"a ZooKeeper port", zookeeper, false, []string{closed, noTLS}},
		{"a ZooKeeper port with TLS", zookeeper, true, []string{closed, withTLS}},
		{"a TLS port that says nothing", serveBroker(t, answers("")), false, []string{closed, noTLS}},
		{"a plaintext port with TLS", serveBroker(t, answers("")), true, []string{closed, withTLS}},
		{"a TLS port without TLS", serveBroker(t, answers(alert)), false, []string{other, noTLS}},
		{"a web server, with TLS", serveBroker(t, answers("HTTP/1.1 400 Bad Request\r\n")), true, []string{other, withTLS}},
	} {
		for versions, ask := range map[string]bool{"": true, ", versions not asked for": false} {
			t.Run(s.name+versions, func(t *testing.T) {
				config := testConfig()
				config.ApiVersionsRequest = ask
				config.Net.TLS.Enable = s.tls
				config.Net.TLS.Config = &tls.Config{MinVersion: tls.VersionTLS12}
				config.Metadata.Retry.Max = 1
				zk := idleSession(t)
				g, err := New(zk, []string{s.address}, "g", Options{Config: config})
				noerr.Must(t, err)
				defer func() { _ = g.Close() }()
				consume := g.Consume(t.Context(), []string{"t"}, handlerFunc(nil))
				_, made := NewGroup([]string{zookeeper}, []string{s.address}, "g", Options{Config: config})
				for call, err := range map[string]error{"Consume": consume, "NewGroup": made} {
					assert.Error(t, err, sarama.ErrOutOfBrokers, "%s", call)
					for _, part := range append(s.want, s.address) {
						if err == nil || !strings.Contains(err.Error(), part) {
							t.Errorf("%s: the error does not say %q: %v", call, part, err)
						}
					}
				}
			})
		}
	}
}

// NewGroup waits as long as Config says for a broker that accepts connections and never answers.
func TestNewGroupWithSilentBroker(t *testing.T) {
	silent := serveBroker(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	zk, zookeeper := zktest.Start(t, zktest.Options{})
	for full, ask := range map[bool]bool{true: false, false: true} {
		config := testConfig()
		config.ApiVersionsRequest, config.Metadata.Full = ask, full
		config.Net.ReadTimeout = 50 * time.Millisecond
		config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 1, time.Millisecond
		_, err := NewGroup([]string{zookeeper}, []string{silent}, "g", Options{Config: config})
		if !errors.Is(err, sarama.ErrOutOfBrokers) || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("%v: no ErrOutOfBrokers by a timeout", err)
		}
	}
	assert.Equal(t, zk.Stats().SessionsCreated, 0, "ZooKeeper sessions")
}
