package differential_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// maxDifferences is how many differences of a partition are printed.
const maxDifferences = 10

// compare returns how got differs from want, both of one partition.
func compare(want, got []*sarama.ConsumerMessage) []string {
	var diffs []string
	note := func(format string, args ...any) { diffs = append(diffs, fmt.Sprintf(format, args...)) }
	expected := make(map[int64]*sarama.ConsumerMessage, len(want))
	for _, m := range want {
		expected[m.Offset] = m
	}
	last := int64(-1)
	seen := make(map[int64]bool, len(got))
	for _, m := range got {
		switch {
		case seen[m.Offset]:
			note("offset %d came twice", m.Offset)
		case m.Offset < last:
			note("offset %d came after %d", m.Offset, last)
		}
		seen[m.Offset] = true
		last = max(last, m.Offset)
		if w := expected[m.Offset]; w == nil {
			note("offset %d came and should not", m.Offset)
		} else if names := differentFields(w, m); len(names) > 0 {
			note("offset %d has another %s", m.Offset, strings.Join(names, ", "))
		}
	}
	for _, m := range want {
		if !seen[m.Offset] {
			note("offset %d is missing", m.Offset)
		}
	}
	if len(diffs) > maxDifferences {
		diffs = append(diffs[:maxDifferences], fmt.Sprintf("and %d more", len(diffs)-maxDifferences))
	}
	return diffs
}

// differentFields names the fields in which two messages differ. Null bytes differ from empty ones.
func differentFields(a, b *sarama.ConsumerMessage) []string {
	var names []string
	for _, field := range []struct {
		name string
		same bool
	}{
		{"topic", a.Topic == b.Topic},
		{"partition", a.Partition == b.Partition},
		{"key", sameBytes(a.Key, b.Key)},
		{"value", sameBytes(a.Value, b.Value)},
		{"header", slices.EqualFunc(a.Headers, b.Headers, sameHeader)},
		{"timestamp", a.Timestamp.Equal(b.Timestamp)},
		{"block timestamp", a.BlockTimestamp.Equal(b.BlockTimestamp)},
	} {
		if !field.same {
			names = append(names, field.name)
		}
	}
	return names
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func sameHeader(a, b *sarama.RecordHeader) bool {
	return sameBytes(a.Key, b.Key) && sameBytes(a.Value, b.Value)
}

func TestCompare(t *testing.T) {
	message := func(offset int64) *sarama.ConsumerMessage {
		return &sarama.ConsumerMessage{
			Topic: "t", Partition: 1, Offset: offset, Key: []byte("k"), Value: []byte{}, Timestamp: time.UnixMilli(offset),
			Headers: []*sarama.RecordHeader{{Key: []byte("h"), Value: nil}, {Key: []byte("h"), Value: []byte("2")}},
		}
	}
	// Offset 3 is a gap of the log.
	messages := func() []*sarama.ConsumerMessage {
		return []*sarama.ConsumerMessage{message(1), message(2), message(4), message(5)}
	}
	field := func(change func(*sarama.ConsumerMessage)) func([]*sarama.ConsumerMessage) []*sarama.ConsumerMessage {
		return func(ms []*sarama.ConsumerMessage) []*sarama.ConsumerMessage { change(ms[1]); return ms }
	}
	for name, test := range map[string]struct {
		change func([]*sarama.ConsumerMessage) []*sarama.ConsumerMessage
		want   string
	}{
		"nothing": {func(ms []*sarama.ConsumerMessage) []*sarama.ConsumerMessage { return ms }, ""},
		"first": {
			func(ms []*sarama.ConsumerMessage) []*sarama.ConsumerMessage { return ms[1:] },
			"offset 1 is missing",
		},
		"last": {
			func(ms []*sarama.ConsumerMessage) []*sarama.ConsumerMessage { return ms[:3] },
			"offset 5 is missing",
		},
		"all": {
			func([]*sarama.ConsumerMessage) []*sarama.ConsumerMessage { return nil },
			"offset 1 is missing; offset 2 is missing; offset 4 is missing; offset 5 is missing",
		},
		"twice": {
			func(ms []*sarama.ConsumerMessage) []*sarama.ConsumerMessage { return slices.Insert(ms, 2, ms[1]) },
			"offset 2 came twice",
		},
		"again": {
			func(ms []*sarama.ConsumerMessage) []*sarama.ConsumerMessage { return append(ms, ms[1:]...) },
			"offset 2 came twice; offset 4 came twice; offset 5 came twice",
		},
		"out of order": {
			func(ms []*sarama.ConsumerMessage) []*sarama.ConsumerMessage { ms[1], ms[2] = ms[2], ms[1]; return ms },
			"offset 2 came after 4",
		},
		"one too many": {
			func(ms []*sarama.ConsumerMessage) []*sarama.ConsumerMessage { return slices.Insert(ms, 2, message(3)) },
			"offset 3 came and should not",
		},
		"key":          {field(func(m *sarama.ConsumerMessage) { m.Key = []byte("K") }), "offset 2 has another key"},
		"null key":     {field(func(m *sarama.ConsumerMessage) { m.Key = nil }), "offset 2 has another key"},
		"value":        {field(func(m *sarama.ConsumerMessage) { m.Value = []byte("v") }), "offset 2 has another value"},
		"null value":   {field(func(m *sarama.ConsumerMessage) { m.Value = nil }), "offset 2 has another value"},
		"no headers":   {field(func(m *sarama.ConsumerMessage) { m.Headers = nil }), "offset 2 has another header"},
		"one header":   {field(func(m *sarama.ConsumerMessage) { m.Headers = m.Headers[1:] }), "offset 2 has another header"},
		"headers":      {field(func(m *sarama.ConsumerMessage) { slices.Reverse(m.Headers) }), "offset 2 has another header"},
		"header value": {field(func(m *sarama.ConsumerMessage) { m.Headers[0].Value = []byte{} }), "offset 2 has another header"},
		"timestamp":    {field(func(m *sarama.ConsumerMessage) { m.Timestamp = time.UnixMilli(3) }), "offset 2 has another timestamp"},
		"topic and partition": {
			field(func(m *sarama.ConsumerMessage) { m.Topic, m.Partition = "u", 0 }),
			"offset 2 has another topic, partition",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(compare(messages(), test.change(messages())), "; "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
