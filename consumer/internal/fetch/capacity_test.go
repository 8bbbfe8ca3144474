package fetch

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/IBM/sarama"
)

// parts returns the slices of bytes that a message hands out, and what they are.
func parts(m *sarama.ConsumerMessage) map[string][]byte {
	out := map[string][]byte{"key": m.Key, "value": m.Value}
	for i, h := range m.Headers {
		out[fmt.Sprintf("key of header %d", i)], out[fmt.Sprintf("value of header %d", i)] = h.Key, h.Value
	}
	return out
}

// A handler may append to what a message has. The messages of an answer share memory, so an append that found room there would
// write over the messages behind.
func TestAppendingChangesNoOtherMessage(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Options)
		batches []batch
		aborted []sarama.AbortedTransaction
	}{
		"plain":              {batches: []batch{{values: vals(5)}, {values: vals(5)}}},
		"gzip":               {batches: []batch{{values: vals(5), gzip: true}, {values: vals(5), gzip: true}}},
		"bare":               {batches: []batch{{values: vals(5), bare: true}}},
		"legacy":             {batches: []batch{{values: vals(5), legacy: true}, {values: vals(5), legacy: true}}},
		"legacy, compressed": {batches: []batch{{values: vals(5), legacy: true, gzip: true}}},
		"legacy, then a new": {batches: []batch{{values: vals(5), legacy: true}, {values: vals(5)}}},
		"inside of a batch":  {batches: []batch{{values: []string{"a", "", "c"}}}},
		"committed":          {change: committed, batches: []batch{{producer: 7, values: vals(5)}, {producer: 7, control: true}, {values: vals(5)}}},
		"most were aborted":  {change: committed, batches: []batch{{producer: 7, values: vals(50)}, {producer: 7, control: true, abort: true}, {values: vals(5)}}, aborted: []sarama.AbortedTransaction{{ProducerID: 7}}},
	} {
		subtest(t, name, c.change, func(t *testing.T, k *fakeCluster, x *Fetcher) {
			k.add(0, c.batches...)
			k.log(0).aborted = c.aborted
			p := open(t, x, 0, 0, -1)
			synctest.Wait()
			all := messages(t, p, k.log(0).end)
			before := make([]map[string][]byte, len(all))
			for i, m := range all {
				before[i] = map[string][]byte{}
				for what, data := range parts(m) {
					before[i][what] = bytes.Clone(data)
				}
			}
			for _, m := range all {
				for _, data := range parts(m) {
					_ = append(data, "and this is what a handler appends"...)
				}
				_ = append(m.Headers, nil)
			}
			for i, m := range all {
				for what, data := range parts(m) {
					if !bytes.Equal(data, before[i][what]) || cap(data) > len(data) {
						t.Fatalf("%s of message %d is %q after the handler has appended, was %q; there is room for %d bytes",
							what, m.Offset, data, before[i][what], cap(data)-len(data))
					}
				}
				if cap(m.Headers) > len(m.Headers) {
					t.Fatalf("the headers of message %d have room for %d more", m.Offset, cap(m.Headers)-len(m.Headers))
				}
			}
			if len(all) == 0 {
				t.Error("no message")
			}
		})
	}
}
