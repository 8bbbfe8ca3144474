package zktest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

// pair returns both ends of a connection of client "a".
func pair(t *testing.T, nw *zktest.Network) (client, server net.Conn) {
	t.Helper()
	l, err := nw.Listen("server")
	noerr.Must(t, err)
	client, err = nw.Client("a").Dial(t.Context(), "tcp", "server")
	noerr.Must(t, err)
	server, err = l.Accept()
	noerr.Must(t, err)
	noerr.Must(t, l.Close())
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return client, server
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if n, err := c.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatal(n, err)
	}
}

func read(t *testing.T, c net.Conn, want string) {
	t.Helper()
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != want {
		t.Fatalf("read %q, %v; want %q", buf, err, want)
	}
}

// silent checks that nothing can be read from c for d.
func silent(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d, %v; want silence", n, err)
	}
	_ = c.SetReadDeadline(time.Time{})
}

func TestConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t, zktest.NewNetwork())
		if got := server.RemoteAddr().String(); got != "a" {
			t.Errorf("remote address %q", got)
		}
		if got := client.RemoteAddr().String(); got != "server" {
			t.Errorf("remote address %q", got)
		}
		write(t, client, "hello")
		write(t, client, "world")
		read(t, server, "hellow")
		read(t, server, "orld")
		write(t, server, "bye")
		noerr.Must(t, server.Close())
		read(t, client, "bye") // what was sent before the close arrives
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read: %v, want EOF", err)
		}
		if _, err := client.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v, want EPIPE", err)
		}
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		if err := server.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t, zktest.NewNetwork())
		start := time.Now()
		silent(t, client, 3*time.Second)
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("waited %v", d)
		}
		var netErr net.Error
		_ = client.SetDeadline(time.Now().Add(-time.Second))
		if _, err := client.Read(make([]byte, 1)); !errors.As(err, &netErr) || !netErr.Timeout() {
			t.Errorf("read: %v", err)
		}
		if _, err := client.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
		_ = client.SetDeadline(time.Time{})
		// A deadline that moves moves for who waits already.
		done := make(chan time.Duration)
		go func() {
			_, _ = client.Read(make([]byte, 1))
			done <- time.Since(start)
		}()
		synctest.Wait()
		_ = client.SetReadDeadline(time.Now().Add(time.Hour))
		_ = client.SetReadDeadline(time.Now().Add(7 * time.Second))
		if d := <-done; d != 10*time.Second {
			t.Errorf("gave up after %v", d)
		}
		_ = client.SetReadDeadline(time.Time{})
		go func() { // and closing ends a wait
			_, err := client.Read(make([]byte, 1))
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("read while closing: %v", err)
			}
			close(done)
		}()
		synctest.Wait()
		_ = client.Close()
		<-done
		_ = server
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := zktest.NewNetwork()
		client, server := pair(t, nw)
		start := time.Now()
		nw.Client("a").Delay(2 * time.Second)
		nw.Delay(time.Second)
		write(t, client, "slow")
		nw.Heal()
		nw.Client("a").Heal()
		write(t, client, "fast") // but not faster than what is under way
		read(t, server, "slowfast")
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("arrived after %v", d)
		}
		nw.Delay(time.Second)
		write(t, server, "x")
		_ = server.Close()
		read(t, client, "x")
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if d := time.Since(start); d != 4*time.Second {
			t.Errorf("end arrived after %v", d)
		}
	})
}

func TestBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := zktest.NewNetwork()
		client, server := pair(t, nw)
		nw.Client("b").BlackHole(zktest.Both) // another's
		nw.Client("a").BlackHole(zktest.ToServer)
		write(t, client, "one")
		write(t, server, "two")
		read(t, client, "two")
		silent(t, server, time.Hour)
		nw.BlackHole(zktest.ToClient)
		write(t, server, "three")
		silent(t, client, time.Hour)
		nw.Client("a").Heal()
		read(t, server, "one")
		silent(t, client, time.Hour)
		nw.Heal()
		read(t, client, "three")
		// The end of a connection is held back too, and arrives after what was sent before.
		nw.Client("a").Freeze()
		write(t, client, "last words")
		_ = client.Close()
		silent(t, server, time.Hour)
		write(t, server, "into the void")
		nw.Client("a").Heal()
		read(t, server, "last words")
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := zktest.NewNetwork()
		client, server := pair(t, nw)
		write(t, client, "lost")
		nw.Client("b").Cut()
		write(t, client, "still lost")
		nw.Client("a").Cut()
		for _, c := range []net.Conn{client, server} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read: %v", err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write: %v", err)
			}
		}
		client, server = pair(t, nw) // new ones are possible
		waiting := make(chan error)
		go func() {
			_, err := client.Read(make([]byte, 1))
			waiting <- err
		}()
		synctest.Wait()
		nw.Cut()
		if err := <-waiting; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		_ = server
	})
}

func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := zktest.NewNetwork()
		a := nw.Client("a")
		refused := func(err error) {
			t.Helper()
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dial: %v, want ECONNREFUSED", err)
			}
		}
		_, err := a.Dial(t.Context(), "tcp", "server")
		refused(err)
		l, err := nw.Listen("server")
		noerr.Must(t, err)
		if _, err := nw.Listen("server"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second listener: %v", err)
		}
		a.Refuse()
		_, err = a.Dial(t.Context(), "tcp", "server")
		refused(err)
		other, err := nw.Client("b").Dial(t.Context(), "tcp", "server")
		noerr.Must(t, err)
		a.Heal()
		nw.Refuse()
		_, err = nw.Dial(t.Context(), "tcp", "server")
		refused(err)
		nw.Heal()

		start := time.Now()
		a.BlackHole(zktest.ToClient) // one direction is enough for a handshake to fail
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := a.Dial(ctx, "tcp", "server"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("dial: %v after %v", err, time.Since(start))
		}
		time.AfterFunc(time.Second, a.Heal)
		c, err := a.Dial(t.Context(), "tcp", "server")
		if err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("dial: %v after %v", err, time.Since(start))
		}
		a.Delay(time.Second)
		c2, err := a.Dial(t.Context(), "tcp", "server")
		if err != nil || time.Since(start) != 6*time.Second {
			t.Errorf("dial: %v after %v", err, time.Since(start))
		}
		accepted, err := l.Accept()
		if err != nil || accepted.RemoteAddr().String() != "b" {
			t.Fatal(accepted, err)
		}
		go func() { _ = l.Close() }()
		for range 2 { // what nobody accepted is reset by the close
			if a, err := l.Accept(); err == nil {
				_ = a.Close()
			} else if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		for _, c := range []net.Conn{other, accepted, c, c2} {
			_ = c.Close()
		}
		_, err = a.Dial(t.Context(), "tcp", "server")
		refused(err)
	})
}

// TestBackpressure: a writer waits once too much is under way, and goes on when it is read.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t, zktest.NewNetwork())
		block := bytes.Repeat([]byte{'x'}, 1<<20)
		for range 4 {
			write(t, client, string(block))
		}
		_ = client.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := client.Write(block); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("write: %v, want a deadline", err)
		}
		_ = client.SetWriteDeadline(time.Time{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			write(t, client, "more")
		}()
		synctest.Wait()
		read(t, server, string(bytes.Repeat(block, 4))+"more")
		<-done
	})
}
