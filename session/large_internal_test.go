package session

import (
	"fmt"
	"testing"
	"time"
)

// story plays a Session's large writes and lost connections.
type story struct {
	o   oversized
	now instant
}

func (s *story) wait(d time.Duration) { s.now = s.now.add(d) }

func writeOf(size int) sending { return sending{"create", "/a", size} }

// loses sends a write of that size, and loses the connection as a server ends it, but for what change makes of it. It returns
// whether writes of that size are refused from now on because of it.
func (s *story) loses(size int, change func(*loss)) bool {
	l := loss{size: size, byPeer: true, answered: true}
	if change != nil {
		change(&l)
	}
	s.o.begin(writeOf(size))
	_, refused := s.o.lose(l, s.now)
	s.o.end(writeOf(size), false, s.now)
	return refused
}

// losesAgain returns after how many losses writes of that size are refused, 0 for none of ten.
func (s *story) losesAgain(size int, change func(*loss)) int {
	for n := 1; n <= 10; n++ {
		if s.loses(size, change) {
			return n
		}
		s.wait(time.Second)
	}
	return 0
}

func (s *story) answers(size int) {
	s.o.begin(writeOf(size))
	s.o.end(writeOf(size), true, s.now)
}

func (s *story) losesWithoutAWrite() { s.o.lose(loss{byPeer: true, answered: true}, s.now) }

func (s *story) refuses(size int) bool { return s.o.refuse(writeOf(size), s.now) != nil }

// A loss of a connection counts as caused by a server's limit under some conditions, and several such losses have writes refused.
func TestWhichLossesCount(t *testing.T) {
	const size = 100_000
	late := func(l *loss) { l.age = promptClose + time.Millisecond }
	slow := func(l *loss) { l.age, l.rtt = 2*time.Second, 600*time.Millisecond }
	for name, c := range map[string]struct {
		before func(s *story)
		change func(*loss)
		want   int // losses until writes are refused, of ten; 0 for never
	}{
		"a server's limit":                        {nil, nil, 3},
		"this side has ended the connection":      {nil, func(l *loss) { l.byPeer = false }, 0},
		"the end came late":                       {nil, late, 0},
		"the end came late, as all answers do":    {nil, slow, 3},
		"nothing was answered on the connection":  {nil, func(l *loss) { l.answered = false }, 0},
		"a loss without a write, just before":     {func(s *story) { s.losesWithoutAWrite() }, nil, 6},
		"a loss without a write, a while ago":     {func(s *story) { s.losesWithoutAWrite(); s.wait(badFor) }, nil, 3},
		"a loss without a write, in between":      {func(s *story) { s.loses(size, nil); s.loses(size, nil); s.losesWithoutAWrite(); s.wait(badFor) }, nil, 3},
		"an answer to that size in between":       {func(s *story) { s.loses(size, nil); s.loses(size, nil); s.answers(size); s.wait(badFor) }, nil, 3},
		"an answer to a smaller write in between": {func(s *story) { s.loses(size, nil); s.loses(size, nil); s.answers(size - 1) }, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{}
			s.wait(time.Hour)
			if c.before != nil {
				c.before(s)
			}
			if got := s.losesAgain(size, c.change); got != c.want {
				t.Errorf("refused after %d losses, want %d", got, c.want)
			}
			if got, want := fmt.Sprint(s.refuses(size-1), s.refuses(size), s.refuses(size+1)), fmt.Sprint(false, c.want > 0, c.want > 0); got != want {
				t.Errorf("writes a little smaller, of that size, and a little larger are refused: %s, want %s", got, want)
			}
		})
	}
}

// A refusal lasts for ten seconds, and twice as long after each try in vain, up to five minutes. It ends with an answer to that
// size, is lowered by a smaller write that costs a connection, too, and is forgotten if nobody tries again for ten minutes.
func TestHowLongWritesAreRefused(t *testing.T) {
	const size = 100_000
	s := &story{}
	s.losesAgain(size, nil)
	for _, seconds := range []int{10, 20, 40, 80, 160, 300, 300} {
		want := time.Duration(seconds) * time.Second
		began := s.now
		for s.refuses(size) && s.now.mono-began.mono < time.Hour {
			s.wait(time.Second)
		}
		if took := s.now.mono - began.mono; took < want-time.Second || took > want {
			t.Errorf("refused for %v, want %v", took, want)
		}
		if !s.loses(size, nil) {
			t.Error("a try in vain is no reason to refuse the next one")
		}
	}
	s.wait(longRefusal)
	if !s.loses(size+1, nil) {
		t.Error("a try of a larger write in vain is no reason to refuse the next one")
	}
	if s.losesAgain(size/2, nil); !s.refuses(size / 2) {
		t.Error("a smaller write that costs connections, too, is not refused")
	}
	s.answers(size / 2)
	if s.refuses(size/2) || s.refuses(size) {
		t.Error("an answer does not end the refusal")
	}

	s = &story{}
	s.losesAgain(size, nil)
	s.wait(firstRefusal + forgotten)
	if got := s.losesAgain(size, nil); got != 3 {
		t.Errorf("after a long time refused after %d losses, want 3", got)
	}
}
