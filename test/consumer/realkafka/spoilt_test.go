package realkafka_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/test/servers"
)

// spoil changes a byte in the record batch that has an offset of partition 0, and returns the batch's first offset and the one
// behind.
func (r *rig) spoil(offset int64) (first, next int64) {
	r.t.Helper()
	name := filepath.Join(r.kafka.Nodes()[0].LogDir(r.topic, 0), "00000000000000000000.log")
	data, err := os.ReadFile(name)
	if err != nil {
		r.t.Fatal(err)
	}
	for at := 0; at < len(data); at += 12 + int(binary.BigEndian.Uint32(data[at+8:])) {
		first = int64(binary.BigEndian.Uint64(data[at:]))
		next = first + int64(binary.BigEndian.Uint32(data[at+23:])) + 1
		if next <= offset {
			continue
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		_, err = f.WriteAt([]byte{^data[at+70]}, int64(at+70))
		if err := errors.Join(err, f.Close()); err != nil {
			r.t.Fatal(err)
		}
		return first, next
	}
	r.t.Fatalf("%s has no batch with offset %d", name, offset)
	return 0, 0
}

// goOnAt does what docs/operating.md says, for partition 0.
func (r *rig) goOnAt(next int64) {
	r.t.Helper()
	r.groups([]string{fmt.Sprintf("%s %s 0 %d", r.group, r.topic, next)}, "--reset-offsets", "--topic", r.topic+":0", "--to-offset", fmt.Sprint(next), "--execute")
}

// A batch that was spoilt on disk is named, the messages before it are handed out, and the other partition is read. What
// docs/operating.md says makes the group go on behind it, while the member runs.
func TestSpoiltBatch(t *testing.T) {
	t.Parallel()
	r := sharedRig(t, servers.Kafka4, 2)
	for range 3 {
		r.produce(5, 0, 1)
	}
	first, next := r.spoil(7)
	a := r.member("a")
	until(t, "what can be read is read", func() bool { return a.count.Load() == 15+first })
	var named error
	until(t, "the batch is named", func() bool {
		all := a.errors()
		i := slices.IndexFunc(all, func(err error) bool { return errors.Is(err, consumer.ErrUnreadable) })
		if i >= 0 {
			named = all[i]
		}
		return i >= 0
	})
	for _, part := range []string{fmt.Sprintf("read %s:0 at %d", r.topic, first), fmt.Sprintf("go on at %d", next), "CRC", "docs/operating.md"} {
		if !strings.Contains(named.Error(), part) {
			t.Errorf("%q is missing in %q", part, named)
		}
	}
	want := 30 - (next - first)
	for range 3 { // the member may store its position in the moment of the reset
		r.goOnAt(next)
		reset := time.Now()
		until(t, "the rest is read", func() bool { return a.count.Load() == want || time.Since(reset) > 10*time.Second })
		if a.count.Load() == want {
			break
		}
	}
	a.leave()
	if got := r.committed(0); got != 15 || a.count.Load() != want {
		t.Errorf("%d messages were read, want %d; the stored offset is %d", a.count.Load(), want, got)
	}
}

// While the messages before a batch that can't be read are not committed, they come again at each attempt. That is one trouble in
// the status and in the log, and not a recovery at each attempt. It ends when the group has gone on behind the batch.
func TestSpoiltBatchBehindUncommitted(t *testing.T) {
	t.Parallel()
	r := sharedRig(t, servers.Kafka4, 1)
	r.config = memberConfig()
	r.config.Consumer.Offsets.AutoCommit.Enable = false
	for range 3 {
		r.produce(5, 0)
	}
	first, next := r.spoil(7)
	a := r.member("a")
	until(t, "five attempts have failed", func() bool { return len(a.errors()) >= 5 && a.count.Load() >= 5*first })
	trouble := func() status.Trouble {
		troubles := a.group.Status().Troubles
		if len(troubles) != 1 || troubles[0].Kind != "fetch" || troubles[0].Count < 5 {
			t.Fatalf("troubles %+v, want one that lasts", troubles)
		}
		return troubles[0]
	}
	if end := trouble().Until; end != nil {
		t.Errorf("the trouble ended at %v while the batch can't be read", end)
	}
	r.goOnAt(next)
	until(t, "the trouble is over", func() bool { return trouble().Until != nil })
	a.leave()
}
