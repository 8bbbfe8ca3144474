package fetch

import (
	"errors"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// The sarama that is built in keeps the offset after batches without records where this package reads it. If this fails after an
// update of sarama, find out where that offset is now: without it a partition stands still at batches that compaction has emptied.
func TestSaramaKeepsTheNextOffset(t *testing.T) {
	if n := nextOffsetIn(reflect.TypeFor[sarama.FetchResponseBlock]()); n.err != nil {
		t.Fatal(n.err)
	}
	inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
		k.add(0, batch{base: 5, last: 9})
		b, err := next(t, open(t, x, 0, 5, -1), time.Second)
		if err != nil || b.Next != 10 || len(b.Messages) != 0 {
			t.Errorf("next %d, %d messages, %v: the log has a batch without records from 5 to 9", b.Next, len(b.Messages), err)
		}
	})
}

// With a sarama that does not keep that offset, messages are read, and an answer without records is an error that stays and names
// the offset and sarama's version: the position neither goes back nor stands still without a word.
func TestSaramaWithoutTheNextOffset(t *testing.T) {
	for name, block := range map[string]reflect.Type{
		"no field":     reflect.TypeFor[struct{ HighWaterMarkOffset int64 }](),
		"another type": reflect.TypeFor[struct{ recordsNextOffset int64 }](),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, k *fakeCluster, x *Fetcher) {
				x.settings.next = nextOffsetIn(block)
				k.add(0, batch{base: 2, values: vals(3)}, batch{base: 5, last: 9})
				p := open(t, x, 0, 2, -1)
				same(t, offsets(t, p, 5), seq(2, 5))
				_, err := next(t, p, time.Second)
				if !errors.Is(err, errNoNextOffset) || ReasonOf(err) != Undecodable ||
					!strings.Contains(err.Error(), "t:0 at offset 5") || !strings.Contains(err.Error(), "sarama "+saramaVersion(debug.ReadBuildInfo())) {
					t.Errorf("Next: %v", err)
				}
				if at := p.read(func() int64 { return p.position }); at != 5 {
					t.Errorf("position %d", at)
				}
				before := len(k.requests())
				time.Sleep(time.Minute)
				if n := len(k.requests()) - before; n > 0 {
					t.Errorf("%d requests after the error", n)
				}
			})
		})
	}
}

// The versions are those that the program was built with.
func TestSaramaVersion(t *testing.T) {
	other := &debug.Module{Path: "github.com/rcrowley/go-metrics", Version: "v0.1.0"}
	for want, deps := range map[string][]*debug.Module{
		"of unknown version": {other},
		"v1.61.1":            {other, {Path: saramaPath, Version: "v1.61.1"}},
		"v1.61.1, replaced by example.org/sarama v1.61.1-own": {
			{Path: saramaPath, Version: "v1.61.1", Replace: &debug.Module{Path: "example.org/sarama", Version: "v1.61.1-own"}},
		},
	} {
		if got := saramaVersion(&debug.BuildInfo{Deps: deps}, true); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := saramaVersion(nil, false); got != "of unknown version" {
		t.Errorf("%q without build information", got)
	}
}
