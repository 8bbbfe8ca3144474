package conformance

import (
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Server is how to reach a server.
type Server struct {
	Address string
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// Restart stops the server, lets down pass, and starts it again with its data.
	Restart func(down time.Duration)
}

// Target is a kind of server to run the suite on. Its servers must have [TickTime].
type Target struct {
	// Open returns a server; it is called for each case. A server may be the same each time.
	Open func(t *testing.T) *Server
	// Bubble runs each case in a testing/synctest bubble of its own.
	Bubble bool
	// EventsHaveZxid: notifications carry the zxid of their transaction, as since ZooKeeper 3.9.
	EventsHaveZxid bool
}

// TickTime is the tick of the servers that the suite runs on.
const TickTime = 200 * time.Millisecond

var update = flag.Bool("update", false, "write what the target answers to testdata")

// Run runs the suite on a target.
func Run(t *testing.T, target Target) {
	for _, c := range scripts(t) {
		t.Run(c.name, func(t *testing.T) {
			target.run(t, func(t *testing.T) {
				s := newScript(t, target.Open(t))
				defer s.endSessions()
				c.run(s)
				s.compare(c.name)
			})
		})
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			target.run(t, func(t *testing.T) { c.run(t, target, target.Open(t)) })
		})
	}
}

func (target Target) run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if target.Bubble {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

// compare compares a script's text with the one on file, line by line.
func (s *script) compare(name string) {
	s.t.Helper()
	file, got := filepath.Join("testdata", name+".txt"), s.text.String()
	if *update {
		s.must(os.WriteFile(file, []byte(got), 0o600))
		return
	}
	content, err := os.ReadFile(file)
	s.must(err)
	g, w := strings.Split(got, "\n"), strings.Split(string(content), "\n")
	bad := 0
	for i := range max(len(g), len(w)) {
		gl, wl := "(nothing)", "(nothing)"
		if i < len(g) {
			gl = g[i]
		}
		if i < len(w) {
			wl = w[i]
		}
		if gl != wl {
			s.t.Errorf("%s:%d\n got %s\nwant %s", file, i+1, gl, wl)
			if bad++; bad == 10 {
				return
			}
		}
	}
}
