package consumer

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/consumer/internal/reporting"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/bubble"
	"github.com/kielgo/kiel/internal/testonly/noerr"
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
	s := idleSession(t)
	g, err := New(s, []string{"nowhere.invalid:9092"}, "g", Options{})
	noerr.Must(t, err)
	assert.Error(t, kiel.CheckMember(g.Member()), nil, "default name %q", g.Member())
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
		noerr.Want(t, g.Close())
	}
	if _, ok := <-g.Errors(); ok {
		t.Error("Errors is open after Close")
	}
	assert.Error(t, g.Consume(t.Context(), []string{"t"}, handlerFunc(nil)), sarama.ErrClosedConsumerGroup, "Consume after Close")
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
	s := idleSession(t)
	if _, err := NewFromClient(s, bareClient{}, "g", Options{}); err == nil {
		t.Error("a group was made")
	}
}

func TestDefaults(t *testing.T) {
	set, err := newSettings([]string{"a:1"}, "g", Options{Name: "m"})
	noerr.Must(t, err)
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
	noerr.Must(t, err)
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
	noerr.Must(t, err)
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
	noerr.Must(t, err)
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
	assert.Error(t, control.Validate(), nil, "control")
	if control.Metadata.AllowAutoTopicCreation || !control.Consumer.Return.Errors || control.Net.SASL.Password != "p" || control.Net.Proxy.Dialer == nil {
		t.Errorf("control: %+v", control.Metadata)
	}
	assert.Equal(t, control.Net.ReadTimeout, kafkaconn.MaxControlWait, "how long control waits for an answer")
}

func TestStaticSettings(t *testing.T) {
	for _, c := range []struct {
		what     string
		opts     Options
		instance string
		name     string // "" for none in particular
		static   bool
		fault    string
	}{
		{what: "neither"},
		{what: "a name", opts: Options{Name: "a"}, name: "a"},
		{what: "static", opts: Options{Name: "a", Static: true}, name: "a", static: true},
		{what: "by sarama", instance: "a", name: "a", static: true},
		{what: "twice", opts: Options{Name: "a", Static: true}, instance: "a", name: "a", static: true},
		{what: "two names", opts: Options{Name: "b"}, instance: "a", fault: `option Name: is "b", and Config.Consumer.Group.InstanceId is "a"`},
		{what: "no name", opts: Options{Static: true}, fault: "option Static: needs a Name"},
	} {
		config := sarama.NewConfig()
		config.Consumer.Group.InstanceId = c.instance
		c.opts.Config, c.opts.StartAt = config, Earliest
		set, err := newSettings([]string{"b:1"}, "g", c.opts)
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v", c.what, err)
			}
		case err != nil || set.Static != c.static || c.name != "" && set.Name != c.name || set.Name == "":
			t.Errorf("%s: name %q, static %v, %v", c.what, set.Name, set.Static, err)
		}
	}
}

// A static member ends its ZooKeeper session's connection, so it can share the session with nobody.
func TestStaticNeedsItsOwnSession(t *testing.T) {
	s := idleSession(t)
	config := sarama.NewConfig()
	config.Consumer.Group.InstanceId = "a"
	for _, opts := range []Options{{Name: "a", Static: true}, {Config: config}} {
		if _, err := New(s, []string{"nowhere.invalid:9092"}, "g", opts); err == nil || !strings.Contains(err.Error(), "use NewGroup") {
			t.Errorf("New: %v", err)
		}
	}
}

func TestZoneOption(t *testing.T) {
	c := testConfig()
	c.RackID = "a"
	for name, tt := range map[string]struct {
		opts Options
		want string
	}{
		"none":         {Options{Config: testConfig()}, ""},
		"rack":         {Options{Config: c}, "a"},
		"zone":         {Options{Zone: "b", Config: testConfig()}, "b"},
		"zone of both": {Options{Zone: "b", Config: c}, "b"},
	} {
		tt.opts.Name = "m"
		set, err := newSettings([]string{"a:1"}, "g", tt.opts)
		if err != nil || set.Zone != tt.want || tt.opts.Config.RackID != set.config.RackID {
			t.Errorf("%s: zone %q, rack %q, %v", name, set.Zone, set.config.RackID, err)
		}
	}
	for _, zone := range []string{"a\n", strings.Repeat("z", 250)} {
		if _, err := newSettings([]string{"a:1"}, "g", Options{Name: "m", Zone: zone}); err == nil || !strings.Contains(err.Error(), "Zone") {
			t.Errorf("%.20q: %v", zone, err)
		}
	}
}

// Options.StartAt says where a new group starts; without it a Config does, and without both it is the first message.
func TestPolicyOf(t *testing.T) {
	config := func(initial int64) *sarama.Config {
		c := sarama.NewConfig()
		c.Consumer.Offsets.Initial = initial
		return c
	}
	for name, c := range map[string]struct {
		opts Options
		want policy
	}{
		"nothing":             {Options{}, policy{from: Earliest, option: "default"}},
		"a Config":            {Options{Config: sarama.NewConfig()}, policy{from: Latest, option: "Config.Consumer.Offsets.Initial"}},
		"a Config, oldest":    {Options{Config: config(sarama.OffsetOldest)}, policy{from: Earliest, option: "Config.Consumer.Offsets.Initial"}},
		"From beside newest":  {Options{StartAt: Earliest, Config: sarama.NewConfig()}, policy{from: Earliest, option: "Options.StartAt"}},
		"From beside oldest":  {Options{StartAt: Latest, Config: config(sarama.OffsetOldest)}, policy{from: Latest, option: "Options.StartAt"}},
		"From, and no Config": {Options{StartAt: Latest}, policy{from: Latest, option: "Options.StartAt"}},
		"a time":              {Options{StartTime: time.Unix(7, 0), Config: config(sarama.OffsetOldest)}, policy{Latest, time.Unix(7, 0), "Options.StartTime"}},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := newSettings([]string{"a:1"}, "g", c.opts)
			if err != nil || set.policy != c.want {
				t.Errorf("%+v, %v, want %+v", set.policy, err, c.want)
			}
		})
	}
	for _, opts := range []Options{{StartAt: -1}, {StartAt: 3}, {StartAt: Earliest, StartTime: time.Unix(7, 0)}} {
		if _, err := newSettings([]string{"a:1"}, "g", opts); err == nil {
			t.Errorf("From %v and StartTime %v are taken", opts.StartAt, opts.StartTime)
		}
	}
}

// In a group that starts at the end, a partition without an offset starts there only while the group begins on the topic. What
// the offsets of the topic's other partition say decides.
func TestBeginningAtTheEnd(t *testing.T) {
	p, other := tp("t", 0), tp("t", 1)
	id := sarama.Uuid{1}
	for name, c := range map[string]struct {
		other offsets.Stored // of the other partition
		age   time.Duration  // of the group's beginning in it
		at    int64          // the offset of the first message since then; 0 for none
		want  int64
		says  string
	}{
		"no offset":                         {other: offsets.Stored{Offset: -1}, want: 100, says: `level=WARN msg="new group starts behind messages that it skips" policy=latest option=Options.StartAt skipped=90 partitions=1`},
		"began now":                         {age: time.Second, want: 100, says: "skipped=90"},
		"began now, and a message has come": {age: time.Second, at: 70, want: 70, says: "skipped=60"},
		"began now, and one later":          {age: time.Second, at: 103, want: 100, says: "skipped=90"},
		"began by a clock that is ahead":    {age: -time.Second, at: 70, want: 70, says: "skipped=60"},
		"began long ago":                    {age: beginningFor, at: 70, want: 10, says: `level=WARN msg="partitions start where a policy says, not at a committed offset" cause=none policy=earliest partitions=1`},
		"began in the future":               {age: -beginningFor, at: 70, want: 10, says: "cause=none policy=earliest"},
		"by a program or an earlier member": {other: offsets.Stored{Offset: 7}, want: 10, says: "cause=none policy=earliest"},
		"of an earlier topic":               {other: offsets.Stored{Offset: 7, TopicID: sarama.Uuid{9}}, age: time.Second, want: 10, says: "cause=none policy=earliest"},
		"of one partition less":             {other: offsets.Stored{TopicID: id, FirstPartitions: 2}, age: time.Second, at: 70, want: 70, says: "skipped=60"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
			said := r.logged()
			r.fetch.first, r.fetch.last = 10, 100
			began := time.UnixMilli(time.Now().Add(-c.age).UnixMilli())
			if c.age != 0 {
				c.other.Began = began
			}
			if c.at > 0 {
				r.fetch.times = map[time.Time]int64{began: c.at}
			}
			r.store.Set(map[kiel.Partition]offsets.Stored{other: c.other})
			o := r.newOpening(t, p)
			start, err := o.position(t.Context(), true)
			if err != nil || start != c.want {
				t.Errorf("starts at %d, %v, want %d", start, err, c.want)
			}
			time.Sleep(2 * reporting.StartsWithin)
			synctest.Wait()
			assert.Equal(t, said.Count(c.says), 1, "logged %s", said)
			stored := r.store.Get(p)
			if isNew := c.want != 10; stored.Offset != c.want || stored.Began.IsZero() == isNew {
				t.Errorf("stored %+v", stored)
			}
			if c.age == 0 && c.want == 100 && time.Since(stored.Began) > 5*time.Second {
				t.Errorf("it began at %v, at %v", stored.Began, time.Now())
			}
		})
	}
}

// The end is read before the offsets of the topic: another member that begins in between finds nothing that this one skips. The
// group begins before the end is read: what comes after that is skipped in no other partition, however long the offsets take.
func TestTheEndIsReadBeforeTheOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
		r.fetch.last = 100
		r.store.BlockFetch = make(chan struct{})
		o := r.newOpening(t, tp("t", 0))
		now := time.Now()
		time.AfterFunc(time.Second, func() {
			r.fetch.mu.Lock()
			r.fetch.last = 105 // messages that come while the offsets are read
			r.fetch.mu.Unlock()
			close(r.store.BlockFetch)
		})
		s, err := o.begin(t.Context())
		noerr.Must(t, err)
		assert.Equal(t, s.offset, 100, "starts at")
		if late := s.began.Sub(now); late < 0 || late > time.Millisecond {
			t.Errorf("begins %v after the call", late)
		}
	})
}

// The group's beginning stays in commits across a change of the owner, until it is old.
func TestBeginningOutlastsTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tp("t", 0)
		r := newMarkRig(t, func(o *Options) { o.StartAt = Latest })
		for _, c := range []struct {
			sleep time.Duration
			old   bool
		}{{0, false}, {beginningFor / 2, false}, {beginningFor, true}} {
			time.Sleep(c.sleep)
			o := r.newOpening(t, p)
			if _, err := o.position(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if got := r.store.Get(p).Began; got.IsZero() != c.old {
				t.Errorf("after %v: %v", c.sleep, got)
			}
			r.committer.Close(t.Context(), o.tracker)
		}
	})
}

// With Fence and Earliest the offsets of other partitions are not asked for: a transaction may hold one up.
func TestBeginningWithFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tp("t", 0)
		r := newMarkRig(t, func(o *Options) {
			o.StartAt, o.Fence = Earliest, func(context.Context, string, int32) error { return nil }
		})
		o := r.newOpening(t, p)
		if _, err := o.position(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if got := r.store.Fetches(); len(got) != 1 {
			t.Errorf("read %v", got)
		}
	})
}

// A group that starts at a time starts at the first message of that time or later, or at the end. What is behind an offset beyond
// the end may all be new.
func TestStartAtATime(t *testing.T) {
	p, began := tp("t", 0), time.UnixMilli(9000)
	for name, c := range map[string]struct {
		at     int64 // the offset of the first message since then; 0 for none
		stored *offsets.Stored
		want   int64
		says   string
	}{
		"a message":      {at: 40, want: 40, says: `msg="new group starts behind messages that it skips" policy=1970-01-01T00:00:09Z option=Options.StartTime skipped=30`},
		"none":           {want: 100, says: "skipped=90"},
		"the first":      {at: 10, want: 10, says: `level=INFO msg="new group starts" policy=1970-01-01T00:00:09Z`},
		"beyond the end": {at: 40, stored: &offsets.Stored{Offset: 500}, want: 10, says: "cause=out_of_range policy=earliest"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := newMarkRig(t, func(o *Options) { o.StartTime = began })
			said := r.logged()
			r.fetch.first, r.fetch.last = 10, 100
			if c.at > 0 {
				r.fetch.times = map[time.Time]int64{began: c.at}
			}
			if c.stored != nil {
				r.store.Set(map[kiel.Partition]offsets.Stored{p: *c.stored})
			}
			h := newHolder(t, p)
			_, done := r.opened(h)
			time.Sleep(2 * reporting.StartsWithin)
			synctest.Wait()
			if got := r.store.Get(p).Offset; got != c.want || said.Count(c.says) != 1 {
				t.Errorf("starts at %d, want %d:\n%s", got, c.want, said)
			}
			h.release(t, done)
		})
	}
}
