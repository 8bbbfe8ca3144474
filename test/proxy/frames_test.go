package proxy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/test/proxy"
	"github.com/kielgo/kiel/test/wait"
	"github.com/kielgo/kiel/zktest"
)

// connect returns go-zookeeper's client as it comes, when it has a session.
func connect(t *testing.T, timeout time.Duration, addrs ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, timeout, zk.WithLogInfo(false), zk.WithLogger(quietLog{}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range events {
			continue
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
	up(t, conn)
	return conn
}

type quietLog struct{}

func (quietLog) Printf(string, ...any) {}

func up(t *testing.T, conn *zk.Conn) {
	t.Helper()
	wait.Until(t, soon, func() bool { return conn.State() == zk.StateHasSession },
		func() string { return conn.State().String() })
}

func TestLoseReply(t *testing.T) {
	srv, addr := zktest.Start(t, zktest.Options{})
	links := proxy.To(t, []string{addr})
	conn := connect(t, 4*time.Second, links.Addrs()...)
	multi := links.LoseReply(func(r proxy.Request) bool { return r.Op == proxy.OpMulti && r.First == proxy.OpSetData })
	lost := links[0].LoseReply(func(r proxy.Request) bool { return r.Op == proxy.OpCreate })
	if _, err := conn.Create("/a", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("create: %v", err)
	}
	<-lost
	if _, _, ok := srv.Get("/a"); !ok {
		t.Error("the server has not executed it")
	}
	up(t, conn)
	if _, err := conn.Create("/b", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Errorf("the next create: %v", err)
	}
	if _, err := conn.Multi(&zk.CheckVersionRequest{Path: "/a", Version: -1}); err != nil {
		t.Errorf("another multi: %v", err)
	}
	_, err := conn.Multi(&zk.SetDataRequest{Path: "/a", Data: []byte("x"), Version: -1})
	if !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("multi: %v", err)
	}
	<-multi
	if data, _, _ := srv.Get("/a"); string(data) != "x" {
		t.Error("the server has not executed it")
	}
}

func TestSessionClosedFromOutside(t *testing.T) {
	srv, addr := zktest.Start(t, zktest.Options{})
	links := proxy.To(t, []string{addr})
	conn := connect(t, 4*time.Second, links.Addrs()...)
	if _, err := conn.Create("/mine", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	session := links[0].Session()
	if session.ID != conn.SessionID() {
		t.Fatalf("session %x, the client has %x", session.ID, conn.SessionID())
	}
	if err := session.Close(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := srv.Get("/mine"); ok {
		t.Error("the session's ephemeral is still there")
	}
	wrong := proxy.Session{ID: links[0].Session().ID, Password: make([]byte, 16)}
	if err := wrong.Close(t.Context(), addr); err == nil {
		t.Error("a session was closed twice")
	}
}
