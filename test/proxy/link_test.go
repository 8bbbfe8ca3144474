package proxy_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/proxy"
)

const (
	soon  = 10 * time.Second       // for what must come
	quiet = 200 * time.Millisecond // for what must not
)

// server accepts connections and hands them over.
type server struct {
	net.Listener
	t     *testing.T
	conns chan net.Conn
}

func listen(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, t: t, conns: make(chan net.Conn, 8)}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns <- c
		}
	}()
	return s
}

func dial(t *testing.T, l *proxy.Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// pair is both ends of a new connection.
func (s *server) pair(l *proxy.Link) (client, server net.Conn) {
	s.t.Helper()
	client = dial(s.t, l)
	return client, s.next()
}

// reached checks that a new connection leads to the server.
func (s *server) reached(l *proxy.Link) {
	s.t.Helper()
	a, b := s.pair(l)
	send(s.t, a, "again")
	expect(s.t, b, "again")
}

func (s *server) next() net.Conn {
	s.t.Helper()
	select {
	case c := <-s.conns:
		s.t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(soon):
		s.t.Fatal("no connection came through")
		return nil
	}
}

func send(t *testing.T, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatalf("send %q: %v", text, err)
	}
}

func expect(t *testing.T, from net.Conn, text string) {
	t.Helper()
	from.SetReadDeadline(time.Now().Add(soon))
	buf := make([]byte, len(text))
	if n, err := io.ReadFull(from, buf); err != nil || string(buf) != text {
		t.Fatalf("got %q, %v, want %q", buf[:n], err, text)
	}
}

// fails waits for the end of a connection and returns how it ended.
func fails(t *testing.T, c net.Conn, within time.Duration) error {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(within))
	n, err := c.Read(make([]byte, 1))
	if err == nil {
		t.Fatalf("got %d bytes", n)
	}
	return err
}

func silent(t *testing.T, c net.Conn) {
	t.Helper()
	if err := fails(t, c, quiet); !errors.Is(err, syscall.ETIMEDOUT) && !isTimeout(err) {
		t.Fatalf("got %v, want silence", err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func isReset(t *testing.T, c net.Conn) {
	t.Helper()
	if err := fails(t, c, soon); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}
}

func isEnd(t *testing.T, c net.Conn) {
	t.Helper()
	if err := fails(t, c, soon); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
}

func isRefused(t *testing.T, l *proxy.Link) {
	t.Helper()
	if c, err := net.Dial("tcp", l.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialled %v, %v, want a refusal", c, err)
	}
}

func TestForwards(t *testing.T) {
	s := listen(t)
	l := proxy.New(t, s.Addr().String())
	a, b := s.pair(l)
	send(t, a, "ping")
	expect(t, b, "ping")
	send(t, b, "pong")
	expect(t, a, "pong")
	a.(*net.TCPConn).CloseWrite()
	isEnd(t, b)
	send(t, b, "bye")
	expect(t, a, "bye")
}

func TestCut(t *testing.T) {
	s := listen(t)
	l := proxy.New(t, s.Addr().String())
	a, b := s.pair(l)
	l.Cut()
	isReset(t, a)
	isReset(t, b)
	s.reached(l)
}

func TestRefuse(t *testing.T) {
	s := listen(t)
	l := proxy.New(t, s.Addr().String())
	a, b := s.pair(l)
	l.Refuse()
	isReset(t, a)
	isReset(t, b)
	isRefused(t, l)
	l.Heal()
	s.reached(l)
}

// Nobody listens at a link's address while connections are refused, and yet no other link takes it.
func TestRefusedPortStaysOurs(t *testing.T) {
	s := listen(t)
	l := proxy.New(t, s.Addr().String())
	l.Refuse()
	_, port, err := net.SplitHostPort(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if other, err := new(net.ListenConfig).Listen(t.Context(), "unix", "@kiel-proxy-"+port); err == nil {
		other.Close()
		t.Error("another link could take the port")
	}
}

func TestBlackHole(t *testing.T) {
	s := listen(t)
	for _, d := range []proxy.Direction{proxy.ToServer, proxy.ToClient, proxy.Both} {
		l := proxy.New(t, s.Addr().String())
		client, server := s.pair(l)
		l.BlackHole(d)
		for _, way := range []struct {
			from, to net.Conn
			d        proxy.Direction
		}{{client, server, proxy.ToServer}, {server, client, proxy.ToClient}} {
			send(t, way.from, "data")
			if d&way.d == 0 {
				expect(t, way.to, "data")
				continue
			}
			way.from.(*net.TCPConn).CloseWrite()
			silent(t, way.to)
		}
		l.Heal()
		if d&proxy.ToServer != 0 {
			expect(t, server, "data")
			isEnd(t, server)
		}
		if d&proxy.ToClient != 0 {
			expect(t, client, "data")
			isEnd(t, client)
		}
	}
}

func TestSilence(t *testing.T) {
	s := listen(t)
	l := proxy.New(t, s.Addr().String())
	a, b := s.pair(l)
	l.Silence()
	send(t, a, "old")
	expect(t, b, "old")
	c := dial(t, l)
	send(t, c, "new")
	silent(t, c)
	l.Heal()
	expect(t, s.next(), "new")
}

func TestCutClients(t *testing.T) {
	s := listen(t)
	l := proxy.New(t, s.Addr().String())
	a, b := s.pair(l)
	l.CutClients()
	isReset(t, a)
	isRefused(t, l)
	for range 3 {
		send(t, b, "anybody there?")
		silent(t, b)
	}
	l.Heal()
	isReset(t, b)
	s.reached(l)
}

func TestSlow(t *testing.T) {
	s := listen(t)
	l := proxy.New(t, s.Addr().String())
	a, b := s.pair(l)
	took := func(n int) time.Duration {
		begin := time.Now()
		text := string(make([]byte, n))
		send(t, a, text)
		expect(t, b, text)
		send(t, b, "x")
		expect(t, a, "x")
		return time.Since(begin)
	}
	l.Slow(proxy.Both, proxy.Speed{Latency: 100 * time.Millisecond, Jitter: 20 * time.Millisecond})
	if d := took(1); d < 200*time.Millisecond {
		t.Errorf("there and back in %v", d)
	}
	l.Slow(proxy.ToServer, proxy.Speed{Rate: 1024})
	l.Slow(proxy.ToClient, proxy.Speed{})
	if d := took(512); d < 500*time.Millisecond {
		t.Errorf("512 bytes in %v, at 1024 a second", d)
	}
	l.Heal()
	if d := took(512); d > 400*time.Millisecond {
		t.Errorf("512 bytes in %v, after healing", d)
	}
}
