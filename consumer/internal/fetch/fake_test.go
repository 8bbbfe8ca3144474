package fetch

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	gometrics "github.com/rcrowley/go-metrics"
	"go.uber.org/goleak"

	"github.com/kielgo/kiel"
)

func TestMain(m *testing.M) {
	gometrics.UseNilMetrics = true // sarama's meters share a goroutine that never ends
	goleak.VerifyTestMain(m)
}

var epochTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// fakeLog is a partition of a fake cluster.
type fakeLog struct {
	leader   int32
	epoch    int32
	batches  []batch
	bytes    [][]byte
	start    int64
	end      int64 // the high watermark is here, too
	mark     int64 // the high watermark, if not 0: nothing from there on is given out
	stable   int64 // -1: end
	aborted  []sarama.AbortedTransaction
	err      sarama.KError // answered instead of data
	follower int32         // named by the leader; -1 for none
	replica  int32         // gives out messages as a follower does, though the leader does not name it; 0 for none
	lagging  int64         // on the follower the log ends here
	told     int64         // where Range says that the log ends; 0 for its end
	endless  bool          // answers have no high watermark
	spoilt   int32         // the broker whose copy of all batches has wrong checksums; 0 for none
	part     bool          // a batch that is larger than the size asked for comes in part, as brokers before 0.10.1 send it
}

// fakeFetch is a request that a broker has received.
type fakeFetch struct {
	broker     int32
	at         time.Time
	wait       time.Duration
	conn       *serverConn
	partitions []fakeAsk
}

type fakeAsk struct {
	key
	epoch  int32
	offset int64
	size   int32
}

// fakeCluster is a Kafka that answers Fetch of version 11 on connections in memory.
type fakeCluster struct {
	mu        sync.Mutex
	logs      map[key]*fakeLog
	changed   chan struct{}
	fetches   []fakeFetch
	refreshes int
	ranges    int
	ends      []int         // the number of partitions of each call of Ends
	slowEnds  time.Duration // how long a call of Ends takes
	committed bool          // Ends answers with the last stable offset
	dials     int
	conns     []net.Conn
	leaderErr error
	down      map[int32]bool
	silent    map[int32]bool // takes requests and does not answer
	slow      time.Duration  // between two pieces of an answer
	late      time.Duration  // before an answer that has something
	throttle  time.Duration  // told once in the next answer
	busy      bool           // other partitions' messages come first in an answer
	starving  bool           // a quota allows no messages: answers have no partition
	garbage   bool           // answers can't be decoded
	racks     bool           // leaders name followers only to requests with a rack
	lifetime  time.Duration  // of a session with SASL; 0 for no end
	logins    int            // with SASL
	known     map[key]fakeLeader
	served    sync.WaitGroup
}

type fakeLeader struct{ leader, epoch int32 }

func newCluster() *fakeCluster {
	return &fakeCluster{
		logs: map[key]*fakeLog{}, changed: make(chan struct{}), down: map[int32]bool{}, silent: map[int32]bool{}, known: map[key]fakeLeader{},
	}
}

// log returns partition id of topic t, which it makes if it is new.
func (c *fakeCluster) log(id int32) *fakeLog {
	k := key{"t", id}
	if c.logs[k] == nil {
		c.logs[k] = &fakeLog{leader: 1, stable: -1, follower: -1, lagging: -1}
		c.known[k] = fakeLeader{1, 0}
	}
	return c.logs[k]
}

// change changes the cluster and wakes what waits for it.
func (c *fakeCluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// add appends batches; base is the end of the log if it is 0.
func (c *fakeCluster) add(id int32, bs ...batch) {
	c.change(func() {
		l := c.log(id)
		for _, b := range bs {
			if b.base == 0 {
				if b.last > 0 {
					b.last += l.end
				}
				b.base = l.end
			}
			if b.epoch == 0 {
				b.epoch = l.epoch
			}
			l.batches = append(l.batches, b)
			l.bytes = append(l.bytes, b.encode())
			l.end = b.end() + 1
		}
	})
}

func (c *fakeCluster) requests() []fakeFetch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.fetches)
}

// Refresh makes Leader return who leads now.
func (c *fakeCluster) Refresh([]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refreshes++
	for k, l := range c.logs {
		c.known[k] = fakeLeader{l.leader, l.epoch}
	}
	return nil
}

func (c *fakeCluster) Leader(topic string, id int32) (Node, int32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaderErr != nil {
		return Node{}, 0, c.leaderErr
	}
	l, ok := c.known[key{topic, id}]
	if !ok {
		return Node{}, 0, sarama.ErrUnknownTopicOrPartition
	}
	return nodeAt(l.leader), l.epoch, nil
}

func (c *fakeCluster) Range(topic string, id int32) (start, end int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranges++
	l := c.logs[key{topic, id}]
	return l.start, cmp.Or(l.told, l.end), nil
}

// Ends answers for the partitions whose leader is up.
func (c *fakeCluster) Ends(ps []kiel.Partition) map[kiel.Partition]int64 {
	out := map[kiel.Partition]int64{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range ps {
		if l := c.logs[key{p.Topic, p.ID}]; !c.down[l.leader] {
			out[p] = l.endAt(l.leader, c.committed)
		}
	}
	c.ends = append(c.ends, len(ps))
	if wait := c.slowEnds; wait > 0 {
		c.mu.Unlock()
		time.Sleep(wait)
		c.mu.Lock()
	}
	return out
}

// Dial connects to the broker whose id is the address.
func (c *fakeCluster) Dial(_, address string) (net.Conn, error) {
	id := int32(address[0] - '0')
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials++
	if c.down[id] {
		return nil, errors.New("down")
	}
	client, server := net.Pipe()
	sc := &serverConn{Conn: server, gone: make(chan struct{})}
	c.conns = append(c.conns, server)
	c.served.Go(func() { c.serve(sc, id) })
	return client, nil
}

type serverConn struct {
	net.Conn
	gone chan struct{}
}

func (c *fakeCluster) serve(conn *serverConn, id int32) {
	requests := make(chan []byte)
	c.served.Go(func() {
		defer close(conn.gone)
		for {
			var size [4]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return
			}
			b := make([]byte, binary.BigEndian.Uint32(size[:]))
			if _, err := io.ReadFull(conn, b); err != nil {
				return
			}
			requests <- b
		}
	})
	defer conn.Close()
	for {
		select {
		case <-conn.gone:
			return
		case b := <-requests:
			if c.handle(conn, id, b) != nil {
				return
			}
		}
	}
}

// handle answers a request, unless the broker is silent.
func (c *fakeCluster) handle(conn *serverConn, id int32, b []byte) error {
	if done, err := c.login(conn, b); done {
		return err
	}
	handshake := binary.BigEndian.Uint16(b) == 18
	var req fakeRequest
	c.mu.Lock()
	if !handshake {
		req = parseFetch(b)
		req.f.broker, req.f.at, req.f.conn = id, time.Now(), conn
		c.fetches = append(c.fetches, req.f)
	}
	silent := c.silent[id]
	c.mu.Unlock()
	switch {
	case silent:
		<-conn.gone
		return net.ErrClosed
	case handshake:
		return send(conn, binary.BigEndian.Uint32(b[4:]), apiVersions, 0)
	default:
		return c.answer(conn, req)
	}
}

// apiVersions is an answer of version 3 to ApiVersions (KIP-511), which says that Fetch goes to version 11.
var apiVersions = []byte{0, 0, 2, 0, 1, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0}

type fakeRequest struct {
	correlation uint32
	maxBytes    int32
	rack        bool
	committed   bool
	f           fakeFetch
}

// parseFetch decodes a Fetch request of version 11.
func parseFetch(b []byte) fakeRequest {
	var r fakeRequest
	i32 := func() int32 { v := int32(binary.BigEndian.Uint32(b)); b = b[4:]; return v }
	i64 := func() int64 { v := int64(binary.BigEndian.Uint64(b)); b = b[8:]; return v }
	str := func() string {
		n := int16(binary.BigEndian.Uint16(b))
		b = b[2:]
		if n < 0 {
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	if key, version := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]); key != 1 || version != 11 {
		panic("not a Fetch of version 11")
	}
	b = b[4:]
	r.correlation = uint32(i32())
	str() // client id
	i32() // replica
	r.f.wait = time.Duration(i32()) * time.Millisecond
	i32() // min bytes
	r.maxBytes = i32()
	r.committed = b[0] == 1
	b = b[1:]
	i32() // session
	i32()
	for range i32() {
		topic := str()
		for range i32() {
			a := fakeAsk{key: key{topic, i32()}, epoch: i32(), offset: i64()}
			i64() // log start
			a.size = i32()
			r.f.partitions = append(r.f.partitions, a)
		}
	}
	i32() // forgotten topics
	r.rack = str() != ""
	slices.SortFunc(r.f.partitions, func(a, b fakeAsk) int { return int(a.id - b.id) })
	return r
}

// answer waits for something to answer with, as long as the request says.
func (c *fakeCluster) answer(conn *serverConn, req fakeRequest) error {
	timer := time.NewTimer(req.f.wait)
	defer timer.Stop()
	for last := false; ; {
		c.mu.Lock()
		body, some := c.body(req)
		changed, slow, late := c.changed, c.slow, c.late
		c.mu.Unlock()
		if some && late > 0 {
			select {
			case <-time.After(late):
			case <-conn.gone:
				return net.ErrClosed
			}
		}
		if some || last {
			return send(conn, req.correlation, body, slow)
		}
		select {
		case <-changed:
		case <-timer.C:
			last = true
		case <-conn.gone:
			return net.ErrClosed
		}
	}
}

func send(conn net.Conn, correlation uint32, body []byte, slow time.Duration) error {
	out := frame(correlated(correlation), body)
	for slow > 0 && len(out) > 1024 {
		if _, err := conn.Write(out[:1024]); err != nil {
			return err
		}
		out = out[1024:]
		time.Sleep(slow)
	}
	_, err := conn.Write(out)
	return err
}

// body encodes an answer. The second value says whether there is something to tell.
func (c *fakeCluster) body(req fakeRequest) ([]byte, bool) {
	some := c.throttle > 0
	out := wire(nil).i32(int(c.throttle / time.Millisecond)).i16(0).i32(0)
	switch {
	case c.garbage:
		return append(out, 0xff, 0xff), true
	case c.starving:
		return out.i32(0), true
	}
	out = append(out.i32(1).i16(1), 't').i32(len(req.f.partitions))
	first, left := !c.busy || len(req.f.partitions) == 1, int(req.maxBytes)
	for _, a := range req.f.partitions {
		code, follower, l := c.check(req, a)
		var data []byte
		if code == 0 && follower < 0 {
			data = l.copyOf(req.f.broker).read(a.offset, min(int(a.size), left), first && !l.part, l.endAt(req.f.broker, req.committed))
		}
		left -= len(data)
		first = first && len(data) == 0
		some = some || len(data) > 0 || code != 0 || follower >= 0
		end, stable, start := int64(-1), int64(-1), int64(-1)
		if code == 0 {
			start = l.start
		}
		if code == 0 && !l.endless {
			end, stable = l.endAt(req.f.broker, false), l.endAt(req.f.broker, true)
		}
		var aborted []sarama.AbortedTransaction
		if req.committed && l != nil {
			aborted = l.aborted
		}
		out = out.i32(int(a.id)).i16(int(code)).i64(end, stable, start).i32(len(aborted))
		for _, t := range aborted {
			out = out.i64(t.ProducerID, t.FirstOffset)
		}
		out = append(out.i32(int(follower), len(data)), data...)
	}
	if some {
		c.throttle = 0
	}
	return out, some
}

func (c *fakeCluster) check(req fakeRequest, a fakeAsk) (code sarama.KError, follower int32, l *fakeLog) {
	l = c.logs[a.key]
	switch {
	case l == nil:
		return sarama.ErrUnknownTopicOrPartition, -1, nil
	case l.err != 0:
		return l.err, -1, l
	case req.f.broker != l.leader && req.f.broker != l.follower && req.f.broker != l.replica:
		return sarama.ErrNotLeaderForPartition, -1, l
	case a.epoch >= 0 && a.epoch < l.epoch:
		return sarama.ErrFencedLeaderEpoch, -1, l
	case a.epoch > l.epoch:
		return sarama.ErrUnknownLeaderEpoch, -1, l
	case a.offset < l.start || a.offset > max(l.endAt(req.f.broker, false), l.end*min(l.mark, 1)):
		return sarama.ErrOffsetOutOfRange, -1, l
	case req.f.broker == l.leader && l.follower >= 0 && l.follower != l.leader && (req.rack || !c.racks):
		return 0, l.follower, l
	}
	return 0, -1, l
}

func (l *fakeLog) endAt(broker int32, committed bool) int64 {
	switch {
	case broker != l.leader && l.lagging >= 0:
		return l.lagging
	case committed && l.stable >= 0:
		return l.stable
	case l.mark > 0:
		return l.mark
	}
	return l.end
}

// copyOf returns a broker's copy of the log.
func (l *fakeLog) copyOf(broker int32) *fakeLog {
	if l.spoilt != broker {
		return l
	}
	c := *l
	c.bytes = nil
	for _, b := range l.bytes {
		c.bytes = append(c.bytes, append(b[:len(b)-1:len(b)-1], ^b[len(b)-1]))
	}
	return &c
}

// read returns the batches from offset on, the last one cut off at size. The first comes whole if whole is true.
func (l *fakeLog) read(offset int64, size int, whole bool, end int64) []byte {
	var out []byte
	for i := range l.batches {
		if l.batches[i].end() < offset || l.batches[i].base >= end {
			continue
		}
		out = append(out, l.bytes[i]...)
		switch {
		case len(out) < size:
		case i >= 0 && len(out) == len(l.bytes[i]) && whole:
			return out
		case len(l.bytes[i]) == len(out) && !l.part:
			return nil
		default:
			return out[:size]
		}
	}
	return out
}
