package consumer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// sourceOn returns a source of limit bytes on a stream of a test.
func sourceOn(t *testing.T, limit int) (*streamSource, *fakeStream) {
	t.Helper()
	stream := newStream(tp("t", 0))
	var running kafkaconn.Calls
	s := newStreamSource(stream, 0, limit, running.Start, func(error) {})
	t.Cleanup(func() {
		s.Close()
		running.Wait()
	})
	return s, stream
}

func offsetsOf(b fetch.Batch) []int64 {
	var out []int64
	for _, m := range b.Messages {
		out = append(out, m.Offset)
	}
	return out
}

func TestSourceReturnsWhatWasFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stream := sourceOn(t, 1<<20)
		stream.send(3, 4, 6)
		synctest.Wait()
		b, err := s.Next(t.Context())
		if err != nil || !slices.Equal(offsetsOf(b), []int64{3, 4, 6}) || b.Next != 7 {
			t.Errorf("%v, %v", b, err)
		}
		if n, behind := s.Lag(); n != 99-7 || behind != 0 {
			t.Errorf("lag %d, %v", n, behind)
		}
		stream.messages <- &sarama.ConsumerMessage{Topic: "t", Offset: 7, Timestamp: time.Now().Add(-time.Minute)}
		stream.AsyncClose()
		synctest.Wait()
		if _, behind := s.Lag(); behind != time.Minute {
			t.Errorf("behind %v", behind)
		}
		if b, err := s.Next(t.Context()); err != nil || b.Next != 8 {
			t.Errorf("what was fetched before the end: %v, %v", b, err)
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, errStreamEnded) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A reader that is slow is waited for, and then costs the other partitions of its broker nothing.
func TestFullQueueIsWaitedForAndThenPausesItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stream := sourceOn(t, 10*(1+overhead))
		for i := range int64(10) {
			stream.send(i)
		}
		stream.send(10, 11, 12)
		time.Sleep(patience - time.Millisecond)
		synctest.Wait()
		if len(stream.messages) != 3 || stream.paused.Load() {
			t.Fatalf("%d left while the reader may still come, paused %v", len(stream.messages), stream.paused.Load())
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if len(stream.messages) != 0 || !stream.paused.Load() {
			t.Fatalf("%d left after patience, paused %v: neighbours wait", len(stream.messages), stream.paused.Load())
		}
		if b, err := s.Next(t.Context()); err != nil || len(b.Messages) != 13 {
			t.Fatalf("%v, %v", offsetsOf(b), err)
		}
		if stream.paused.Load() {
			t.Error("still paused when the queue is empty")
		}
	})
}

func TestReaderThatKeepsUpIsNeverPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stream := sourceOn(t, 10*(1+overhead))
		go func() {
			for i := range int64(1000) {
				stream.send(i)
			}
		}()
		for n := 0; n < 1000; time.Sleep(patience / 2) {
			b, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n += len(b.Messages)
		}
		if n := stream.pauses.Load(); n != 0 {
			t.Errorf("paused %d times", n)
		}
	})
}

// The user's pause and that of a full queue are two: the partition is paused while one of them lasts.
func TestUserPauseAndFullQueueAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stream := sourceOn(t, 1)
		fill := func() { stream.send(0); time.Sleep(2 * patience) }
		empty := func() {
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		steps := []struct {
			do   func()
			want bool
		}{{s.Pause, true}, {fill, true}, {s.Resume, true}, {empty, false}, {fill, true}, {s.Pause, true}, {empty, true}, {s.Resume, false}}
		for i, step := range steps {
			step.do()
			if stream.paused.Load() != step.want {
				t.Fatalf("step %d: paused %v", i, !step.want)
			}
		}
	})
}

// Who waits for the next batch is not left waiting when the partition is given up.
func TestSourceIsClosedWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stream := sourceOn(t, 1)
		stream.send(0, 1, 2)
		s.Close()
		if b, err := s.Next(t.Context()); !errors.Is(err, errStreamEnded) {
			t.Errorf("%v, %v", offsetsOf(b), err)
		}
	})
}
