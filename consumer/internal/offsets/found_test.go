package offsets

import (
	"sync/atomic"
	"testing"
	"time"
)

// Kafka takes commits as far as is known if it has taken the newest one, within the last minute.
func TestAccepts(t *testing.T) {
	withCommitter(t, true, func(t *testing.T, cm *Committer, store *MemoryStore) {
		var refuses atomic.Bool
		store.Refuse = func(OffsetCommit) error {
			if refuses.Load() {
				return ErrGroupInUse
			}
			return nil
		}
		if cm.Accepts() {
			t.Error("nothing was committed")
		}
		tr := openAt(t, cm, tp("t", 0), 42)
		if !cm.Accepts() {
			t.Error("an offset was stored")
		}
		refuses.Store(true)
		tr.Mark(43, "")
		time.Sleep(2 * time.Second)
		if cm.Accepts() {
			t.Error("the newest commit was refused")
		}
		refuses.Store(false)
		time.Sleep(2 * time.Second)
		if !cm.Accepts() {
			t.Error("an offset was stored again")
		}
		time.Sleep(acceptedFor)
		if cm.Accepts() {
			t.Error("that was long ago")
		}
	})
}
