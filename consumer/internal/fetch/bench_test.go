package fetch

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// canned is a broker that answers each request with the same record batches, whatever offset is asked for: it costs next to
// nothing beside what reads them.
type canned struct {
	*fakeCluster
	records []byte
	count   int64 // offsets of records
	addr    string
}

func (c *canned) Dial(network, _ string) (net.Conn, error) { return net.Dial(network, c.addr) }

func (c *canned) Leader(string, int32) (Node, int32, error) {
	return Node{ID: 1, Addr: c.addr}, 0, nil
}

func (c *canned) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var size [4]byte
			var body []byte
			for {
				if _, err := io.ReadFull(conn, size[:]); err != nil {
					return
				}
				b := make([]byte, binary.BigEndian.Uint32(size[:]))
				if _, err := io.ReadFull(conn, b); err != nil {
					return
				}
				req := parseFetch(b)
				body = c.body(body[:0], req)
				head := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
				buffers := net.Buffers{binary.BigEndian.AppendUint32(head, req.correlation), body}
				if _, err := buffers.WriteTo(conn); err != nil {
					return
				}
			}
		}()
	}
}

func (c *canned) body(out []byte, req fakeRequest) []byte {
	out = append(out, make([]byte, 10)...)
	out = binary.BigEndian.AppendUint32(out, 1)
	out = append(out, 0, 1, 't')
	out = binary.BigEndian.AppendUint32(out, uint32(len(req.f.partitions)))
	for _, a := range req.f.partitions {
		out = binary.BigEndian.AppendUint32(out, uint32(a.id))
		out = binary.BigEndian.AppendUint16(out, 0)
		out = binary.BigEndian.AppendUint64(out, 1<<60)
		out = binary.BigEndian.AppendUint64(out, 1<<60)
		out = binary.BigEndian.AppendUint64(out, 0)
		out = binary.BigEndian.AppendUint32(out, 0)
		out = binary.BigEndian.AppendUint32(out, ^uint32(0))
		n := max(int(a.size)/len(c.records), 1)
		out = binary.BigEndian.AppendUint32(out, uint32(n*len(c.records)))
		for i := range n {
			at := len(out)
			out = append(out, c.records...)
			binary.BigEndian.PutUint64(out[at:], uint64(a.offset+int64(i)*c.count)) // the checksum begins behind
		}
	}
	return out
}

// BenchmarkNext reads messages of 100 bytes from 8 partitions of one broker, which stands in this process, too. cpu-ns/op is of
// the whole process.
func BenchmarkNext(b *testing.B) {
	const parts, perBatch = 8, 150
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	values := make([]string, perBatch)
	for i := range values {
		values[i] = strings.Repeat("x", 100)
	}
	records := batch{values: values, bare: true}
	c := &canned{fakeCluster: newCluster(), records: records.encode(), count: perBatch, addr: l.Addr().String()}
	go c.serve(l)
	x, err := New(c, Options{Config: testConfig(), Dialer: c})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ran := make(chan error, 1)
	go func() { ran <- x.Run(ctx) }()
	batches := make(chan int)
	for id := range int32(parts) {
		p, err := x.Open(ctx, "t", id, 0, -1)
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for {
				got, err := p.Next(ctx)
				if err != nil {
					return
				}
				select {
				case batches <- len(got.Messages):
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	<-batches
	b.ReportAllocs()
	began, read := cpu(b), 0
	for b.Loop() {
		for read--; read < 0; {
			read += <-batches
		}
	}
	b.ReportMetric(float64(cpu(b)-began)/float64(b.N), "cpu-ns/op")
	cancel()
	<-ran
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkUnpack decompresses batches of JSON.
func BenchmarkUnpack(b *testing.B) {
	for _, size := range []int{16 << 10, 1 << 20} {
		var data []byte
		for i := 0; len(data) < size; i++ {
			data = fmt.Appendf(data, `{"time":%d,"customer":%d,"level":"info","x":%x},`, i*7919, i*104729%99991, i*7907)
		}
		for _, codec := range codecs {
			packed := &recordBatch{attributes: int16(codec), records: compressed(codec, data)}
			b.Run(fmt.Sprintf("%v %d KB", codec, size>>10), func(b *testing.B) {
				u := newUnpacker(defaultMaxBatch)
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := u.unpack(packed); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
