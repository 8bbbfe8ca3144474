package consumer

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/session"
)

func TestBadArgumentsAreNamed(t *testing.T) {
	bad := func(change func(*sarama.Config)) Options {
		c := testConfig()
		change(c)
		return Options{Config: c}
	}
	fenced := func(o Options) Options {
		o.Fence = func(context.Context, string, int32) error { return nil }
		return o
	}
	for name, c := range map[string]struct {
		brokers []string
		group   string
		opts    Options
		want    string
	}{
		"no brokers":     {nil, "g", Options{}, "argument brokers is empty"},
		"empty broker":   {[]string{"a:1", ""}, "g", Options{}, "argument brokers[1] is empty"},
		"group":          {[]string{"a:1"}, strings.Repeat("/", 84), Options{}, `group "///`},
		"name":           {[]string{"a:1"}, "g", Options{Name: "x\ny"}, "option Name: invalid name: member"},
		"from":           {[]string{"a:1"}, "g", Options{StartAt: 7}, "option StartAt: 7 is not known"},
		"rebalance":      {[]string{"a:1"}, "g", Options{RebalanceTimeout: -1}, "option RebalanceTimeout: -1ns is less than 0"},
		"stop":           {[]string{"a:1"}, "g", Options{StopTimeout: -1}, "StopTimeout"},
		"commit":         {[]string{"a:1"}, "g", Options{CommitInterval: -1}, "CommitInterval"},
		"window":         {[]string{"a:1"}, "g", Options{MaxUnmarked: -1}, "MaxUnmarked"},
		"buffer":         {[]string{"a:1"}, "g", Options{BufferBytes: -1}, "BufferBytes"},
		"batch":          {[]string{"a:1"}, "g", Options{MaxBatchBytes: -1}, "MaxBatchBytes"},
		"weight":         {[]string{"a:1"}, "g", Options{Weight: 1_000_001}, "option Weight: 1000001 is more than 1000000"},
		"python func":    {[]string{"a:1"}, "g", Options{PythonFunc: "no good"}, "option PythonFunc"},
		"twice":          {[]string{"a:1"}, "g", Options{Func: allocfn.Range(), AlsoFuncs: []allocfn.Func{allocfn.Range()}}, "option AlsoFuncs[0]: range/1 is given twice"},
		"zone":           {[]string{"a:1"}, "g", Options{Zone: "a\x1bb"}, "option Zone: "},
		"rack":           {[]string{"a:1"}, "g", bad(func(c *sarama.Config) { c.RackID = "a\x1bb" }), "option Config.RackID: "},
		"status address": {[]string{"a:1"}, "g", Options{StatusAddr: "x"}, "option StatusAddr: "},
		"func":           {[]string{"a:1"}, "g", Options{Func: allocfn.Func{Name: "x"}}, "Func"},
		"sarama refuses": {[]string{"a:1"}, "g", bad(func(c *sarama.Config) { c.Consumer.Fetch.Min = 0 }), "Consumer.Fetch.Min"},
		"old version":    {[]string{"a:1"}, "g", bad(func(c *sarama.Config) { c.Version = sarama.V0_10_2_0 }), "Config.Version"},
		"unstable fence": {[]string{"a:1"}, "g", fenced(bad(func(c *sarama.Config) { c.Version = sarama.V2_4_0_0 })), "option Fence"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newSettings(c.brokers, c.group, c.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not name %s", err, c.want)
			}
		})
	}
	_, err := newSettings(nil, "", Options{StopTimeout: -1})
	if err == nil || !strings.Contains(err.Error(), "brokers") || !strings.Contains(err.Error(), "StopTimeout") || !errors.Is(err, kiel.ErrInvalidName) {
		t.Errorf("%v does not name all faults", err)
	}
	_, err = NewGroup(nil, nil, "g", Options{MaxUnmarked: -1, Weight: -1})
	if want := "consumer: argument brokers is empty\noption MaxUnmarked: -1 is less than 0\noption Weight: -1 is less than 0\nargument servers is empty"; err == nil || err.Error() != want {
		t.Errorf("NewGroup: got %v, want %s", err, want)
	}
}

func TestNewStartsNothing(t *testing.T) {
	s, err := session.New([]string{"nowhere.invalid:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(s, []string{"nowhere.invalid:9092"}, "g", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := kiel.CheckMember(g.Member()); err != nil {
		t.Errorf("default name %q: %v", g.Member(), err)
	}
	other, err := New(s, []string{"nowhere.invalid:9092"}, "g", Options{})
	if err != nil || other.Member() == g.Member() {
		t.Errorf("two members have the name %q (%v)", g.Member(), err)
	}
	if _, err := New(nil, []string{"a:1"}, "g", Options{}); err == nil {
		t.Error("made a group without a session")
	}
	for _, call := range []func() error{
		func() error { return g.Consume(t.Context(), nil, handlerFunc(nil)) },
		func() error { return g.Consume(t.Context(), []string{"t", "a/b"}, handlerFunc(nil)) },
		func() error { return g.Consume(t.Context(), []string{"t"}, nil) },
	} {
		if err := call(); err == nil {
			t.Error("bad arguments were taken")
		}
	}
	for range 2 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, ok := <-g.Errors(); ok {
		t.Error("Errors is open after Close")
	}
	if err := g.Consume(t.Context(), []string{"t"}, handlerFunc(nil)); !errors.Is(err, sarama.ErrClosedConsumerGroup) {
		t.Errorf("Consume after Close: %v", err)
	}
	// with nothing running these do nothing
	g.PauseAll()
	g.ResumeAll()
	g.Pause(map[string][]int32{"t": {0}})
	g.Resume(map[string][]int32{"t": {0}})
}

// bareClient is a user's own client, which has no configuration.
type bareClient struct{ sarama.Client }

func (bareClient) Closed() bool              { return false }
func (bareClient) Config() *sarama.Config    { return nil }
func (bareClient) Brokers() []*sarama.Broker { return []*sarama.Broker{sarama.NewBroker("kafka:9092")} }

// A client without a configuration is refused: by default a Group would connect without TLS and credentials.
func TestClientWithoutConfig(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewFromClient(s, bareClient{}, "g", Options{}); err == nil {
		t.Error("a group was made")
	}
}

func TestDefaults(t *testing.T) {
	set, err := newSettings([]string{"a:1"}, "g", Options{Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if set.RebalanceTimeout != time.Minute || set.StopTimeout != 30*time.Second || set.CommitInterval != time.Second || !set.autoCommit {
		t.Errorf("%v %v %v %v", set.RebalanceTimeout, set.StopTimeout, set.CommitInterval, set.autoCommit)
	}
	if set.config.ClientID != "kiel" || !set.config.Version.IsAtLeast(sarama.V3_6_0_0) || set.Func.ID() != "balanced/1" ||
		len(set.AlsoFuncs) != 1 || set.AlsoFuncs[0].ID() != "roundrobin/1" || set.policy != (policy{from: Earliest, option: "default"}) {
		t.Errorf("%v %v %v %v", set.config.ClientID, set.config.Version, set.Func.ID(), set.policy)
	}
	c := testConfig()
	c.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	c.Consumer.Offsets.AutoCommit.Interval = 3 * time.Second
	set, err = newSettings([]string{"a:1"}, "g", Options{Name: "m", Config: c})
	if err != nil {
		t.Fatal(err)
	}
	if set.RebalanceTimeout != 5*time.Second || set.CommitInterval != 3*time.Second {
		t.Errorf("the configuration's timeouts are not used: %v %v", set.RebalanceTimeout, set.CommitInterval)
	}
	if none, _ := newSettings([]string{"a:1"}, "g", Options{}); none.createsTopics() || !set.createsTopics() {
		t.Error("topics are created without a Config, or not with one")
	}
	if Earliest.String() != "earliest" || Latest.String() != "latest" || StartAt(0).String() != "not set" || StartAt(9).String() != "StartAt(9)" {
		t.Error("names of StartAt")
	}
}

func TestBufferBytesReachTheFetcher(t *testing.T) {
	set, err := newSettings([]string{"a:1"}, "g", Options{BufferBytes: 5 << 20, MaxBatchBytes: 3 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if got := (&Group{settings: set}).fetchOptions(); got.MaxBytes != 5<<20 || got.MaxBatchBytes != 3<<20 {
		t.Errorf("the fetcher may hold %d bytes, a batch may have %d", got.MaxBytes, got.MaxBatchBytes)
	}
}

func TestUsersConfigurationIsNotChanged(t *testing.T) {
	c := testConfig()
	c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "u", "p" // Validate fills in the mechanism
	c.Consumer.Interceptors = []sarama.ConsumerInterceptor{interceptorFunc(nil)}
	before := *c
	c.Consumer.Fetch.Max = 1000
	own, err := copyConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	d := kafkaconn.NewDialer(t.Context(), own, time.Second)
	control := kafkaconn.ControlConfig(*own, d)
	for name, pair := range map[string][2]any{
		"Net.SASL":              {before.Net.SASL.Mechanism, c.Net.SASL.Mechanism},
		"Net.Proxy":             {before.Net.Proxy, c.Net.Proxy},
		"Metadata.Full":         {before.Metadata.Full, c.Metadata.Full},
		"Consumer.Interceptors": {len(before.Consumer.Interceptors), len(c.Consumer.Interceptors)},
		"Consumer.MaxWaitTime":  {before.Consumer.MaxWaitTime, c.Consumer.MaxWaitTime},
		"Consumer.Return":       {before.Consumer.Return, c.Consumer.Return},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s was changed from %v to %v", name, pair[0], pair[1])
		}
	}
	if err := control.Validate(); err != nil {
		t.Errorf("control: %v", err)
	}
	if control.Metadata.AllowAutoTopicCreation || !control.Consumer.Return.Errors || control.Net.SASL.Password != "p" || control.Net.Proxy.Dialer == nil {
		t.Errorf("control: %+v", control.Metadata)
	}
	if control.Net.ReadTimeout != kafkaconn.MaxControlWait {
		t.Errorf("control waits %v for an answer", control.Net.ReadTimeout)
	}
}
