package session_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func digest(user, password string) []session.Auth {
	return []session.Auth{{Scheme: "digest", Credential: []byte(user + ":" + password)}}
}

func TestDigest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		ann := w.start("ann", func(o *session.Options) { o.Auth, o.Chroot = digest("ann", "right"), "/app" })
		inc := ann.incarnation()
		noerr.Last(t)(inc.Create(ctx, "/a", nil, session.Persistent))
		acl, _, err := inc.GetACL(ctx, "/a")
		if err != nil || !slices.Equal(acl, session.DigestACL(session.PermAll, "ann", "right")) {
			t.Errorf("%v, %v", acl, err)
		}
		// The credentials are sent on every connection of the session, and in the next session.
		ann.link.Cut()
		if _, _, err := inc.Get(ctx, "/a"); err != nil {
			t.Error(err)
		}
		w.srv.KillSession(inc.SessionID())
		<-inc.Context().Done()
		if _, _, err := ann.incarnation().Get(ctx, "/a"); err != nil {
			t.Error(err)
		}

		for name, auth := range map[string][]session.Auth{"wrong password": digest("ann", "wrong"), "nobody": nil} {
			m := w.start(name, func(o *session.Options) { o.Auth, o.Chroot = auth, "/app" })
			_, err := m.Incarnation(ctx)
			wantErr(t, name, err, session.ErrAuthFailed)
			if text := err.Error(); !strings.Contains(text, "/app") || strings.Contains(text, "wrong\"") || strings.Contains(text, ":wrong") ||
				auth != nil && (!strings.Contains(text, "digest") || !strings.Contains(text, "ann")) {
				t.Errorf("%s: %v", name, err)
			}
			if session.Classify(err) != session.ClassFatal {
				t.Errorf("%s: %v is not fatal", name, err)
			}
			wantErr(t, name, <-m.done, session.ErrAuthFailed)
			m.done = nil
		}

		// A denied znode is an error of the operation, not of the session.
		bob := w.start("bob", func(o *session.Options) { o.Auth = digest("bob", "x") }).incarnation()
		_, _, err = bob.Get(ctx, "/app/a")
		wantErr(t, "Get", err, session.ErrNoAuth)
		// The same with another path to check, which the password does not open.
		m := w.start("carl", func(o *session.Options) { o.Auth, o.CheckPath = digest("carl", "x"), "/app/a" })
		_, err = m.Incarnation(ctx)
		wantErr(t, "CheckPath", err, session.ErrAuthFailed)
		if !strings.Contains(err.Error(), "/app/a") {
			t.Error(err)
		}
	})
}

// A chroot that is missing and must not be created is as final as credentials that do not open it, before there was any
// incarnation.
func TestChrootRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		ann := w.start("ann", func(o *session.Options) { o.Auth = digest("ann", "right") }).incarnation()
		noerr.Last(t)(ann.Create(ctx, "/closed", nil, session.Persistent))
		missing := func(o *session.Options) { o.Auth, o.Chroot = digest("bob", "x"), "/closed/app" }
		bob := w.start("bob", missing)
		patience, cancel := context.WithTimeout(ctx, 10*timeout)
		defer cancel()
		_, err := bob.Incarnation(patience)
		wantErr(t, "Incarnation", err, session.ErrNoAuth)
		wantErr(t, "Run", <-bob.done, session.ErrNoAuth)
		bob.done = nil

		// A connection that breaks before it is known whether the chroot is there is no refusal.
		var cut bool
		noerr.Last(t)(ann.Create(ctx, "/closed/app", nil, session.Persistent))
		setACL(t, ann, "/closed/app", session.WorldACL(session.PermAll))
		eve := w.net.Client("eve")
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			switch {
			case r.Client != "eve":
			case r.Op == zktest.OpMulti && !cut:
				return zktest.Action{Err: zktest.ErrNoNode} // as if the chroot was missing
			case r.Op == zktest.OpExists && !cut:
				cut = true
				eve.Cut()
			}
			return zktest.Action{}
		})
		w.start("eve", missing).incarnation()
		w.srv.SetHook(nil)
		if !cut {
			t.Error("it was not asked whether the chroot is there")
		}
	})
}

// Once it has worked, credentials that do not open the check path any more end trust, but not at once the session: an operator
// may have slipped.
func TestAccessWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", nil)
		inc := m.incarnation()
		w.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if r.Op == zktest.OpMulti {
				return zktest.Action{Err: -102}
			}
			return zktest.Action{}
		})
		<-inc.Context().Done()
		wantErr(t, "cause", context.Cause(inc.Context()), session.ErrTrustLost)
		w.srv.SetHook(nil)
		if again := m.incarnation(); again.SessionID() != inc.SessionID() {
			t.Error("another session")
		}
	})
}

func TestChroot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		m := w.start("a", func(o *session.Options) { o.Chroot = "/x/y" })
		inc := m.incarnation()
		created, err := inc.Create(ctx, "/s-", nil, session.EphemeralSequential)
		if err != nil || created != "/s-0000000000" {
			t.Errorf("Create = %q, %v", created, err)
		}
		results, err := inc.Multi(ctx, session.CreateOp("/m", []byte("x"), session.Persistent), session.CheckOp("/", -1))
		if err != nil || results[0].Path != "/m" {
			t.Errorf("Multi = %+v, %v", results, err)
		}
		if got := w.srv.Children("/x/y"); !slices.Equal(got, []string{"m", "s-0000000000"}) {
			t.Errorf("children %q", got)
		}
		names, _, err := inc.Children(ctx, "/")
		if err != nil || !slices.Equal(names, []string{"m", "s-0000000000"}) {
			t.Errorf("Children = %q, %v", names, err)
		}
		noerr.Want(t, inc.EnsurePath(ctx, "/"))
		_, _, err = inc.Get(ctx, "/nothing")
		if err == nil || strings.Contains(err.Error(), "/x/y") {
			t.Errorf("%v: the error is not in the caller's terms", err)
		}
		_, _, watch, err := inc.ChildrenW(ctx, "/")
		noerr.Must(t, err)
		noerr.Must(t, w.srv.Create("/x/y/n", nil))
		elapsed(t, "watch", watch.C(), time.Second)

		// An operator deletes it.
		noerr.Must(t, w.srv.Delete("/x"))
		time.Sleep(timeout / 3)
		if _, err := inc.Create(ctx, "/again", nil, session.Persistent); err != nil {
			t.Error(err)
		}
		if !inc.Trusted() {
			t.Error("that ended trust")
		}
	})
}

func TestMissingCheckPath(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.start("a", func(o *session.Options) { o.CheckPath = "/nothing" })
		inc := m.incarnation()
		time.Sleep(10 * timeout)
		if !inc.Trusted() {
			t.Error("the quorum's answer that it is missing is no proof")
		}
	})
}

func TestTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		inc := w.start("a", nil).incarnation()
		if inc.MaxPacket() != 0xfffff-1024 {
			t.Errorf("MaxPacket %d", inc.MaxPacket())
		}
		if _, err := inc.Create(ctx, "/a", make([]byte, 1_047_000), session.Persistent); err != nil {
			t.Error(err)
		}
		if _, err := inc.Set(ctx, "/a", make([]byte, 988_890), -1); err != nil { // what a Python kiel writes
			t.Error(err)
		}
		sent := w.srv.Stats().Requests[zktest.OpSetData]
		_, err := inc.Set(ctx, "/a", make([]byte, 1_047_600), -1)
		wantErr(t, "Set", err, session.ErrTooLarge)
		if text := err.Error(); !strings.Contains(text, "/a") || !strings.Contains(text, "1047551") || !strings.Contains(text, "10476") {
			t.Errorf("%v: no numbers", err)
		}
		if w.srv.Stats().Requests[zktest.OpSetData] != sent {
			t.Error("it was sent")
		}

		// A batch fits whose paths and data, with 300 bytes an operation, are no larger than a packet.
		var ops []session.Op
		size := 0
		for i := 0; ; i++ {
			op := session.CreateOp(fmt.Sprintf("/owner-%06d", i), make([]byte, 500), session.Persistent)
			if size += len("/owner-000000") + 500 + 300; size > inc.MaxPacket() {
				break
			}
			ops = append(ops, op)
		}
		if _, err := inc.Multi(ctx, ops...); err != nil {
			t.Error(err)
		}
		if len(ops) < 1200 {
			t.Errorf("only %d operations in a batch", len(ops))
		}
		for len(ops) < 2200 {
			ops = append(ops, session.CreateOp("/x", make([]byte, 500), session.Persistent))
		}
		_, err = inc.Multi(ctx, ops...)
		wantErr(t, "Multi", err, session.ErrTooLarge)
		if !strings.Contains(err.Error(), "2200 operations") {
			t.Error(err)
		}
	})
}

func TestEphemeralBudget(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		m := w.start("a", func(o *session.Options) { o.EphemeralBudget, o.Chroot = 100, "/app" })
		inc := m.incarnation()
		use := func(want int) {
			t.Helper()
			if used, budget := session.EphemeralBytes(inc); used != want || budget != 100 {
				t.Errorf("%d of %d bytes in use, want %d of 100", used, budget, want)
			}
		}
		create := func(path string, mode session.Mode) error {
			_, err := inc.Create(ctx, path, nil, mode)
			return err
		}
		if err := create("/1234567", session.Ephemeral); err != nil { // 4 + 8 + 4
			t.Fatal(err)
		}
		use(16)
		wantErr(t, "twice", create("/1234567", session.Ephemeral), session.ErrNodeExists)
		wantErr(t, "no parent", create("/a/b", session.Ephemeral), session.ErrNoNode)
		use(16)
		if err := errors.Join(create("/p", session.Persistent), create("/s", session.EphemeralSequential)); err != nil { // 4 + 12 + 4
			t.Fatal(err)
		}
		use(36)
		for path, mode := range map[string]session.Mode{"/1234567": session.Ephemeral, "/s": session.EphemeralSequential} {
			want := 16 // 4 + 8 + 4
			if mode == session.EphemeralSequential {
				want = 21 // 4 + 2 + 11 + 4
			}
			if size := m.EphemeralSize(path, mode); size != want || m.EphemeralBudget() != 100 {
				t.Errorf("size of %s is %d, want %d; the budget is %d", path, size, want, m.EphemeralBudget())
			}
		}
		long := "/" + strings.Repeat("x", 80)
		err := create(long, session.Ephemeral)
		wantErr(t, "too much", err, session.ErrEphemeralBudget)
		for _, number := range []string{"36", "100", "89"} {
			if !strings.Contains(err.Error(), number) {
				t.Errorf("%v: no %s", err, number)
			}
		}
		_, err = inc.Multi(ctx, session.CreateOp("/"+strings.Repeat("x", 40), nil, session.Ephemeral),
			session.CreateOp("/"+strings.Repeat("y", 40), nil, session.Ephemeral))
		wantErr(t, "too much in a multi", err, session.ErrEphemeralBudget)
		use(36)
		_, err = inc.Multi(ctx, session.CreateOp("/m", nil, session.Ephemeral), session.CheckOp("/nothing", -1))
		wantErr(t, "refused multi", err, session.ErrNoNode)
		use(36)
		if _, err = inc.Multi(ctx, session.CreateOp("/m", nil, session.Ephemeral), session.DeleteOp("/1234567", -1)); err != nil {
			t.Fatal(err)
		}
		use(30)

		// Replies lost: what may exist counts, until it is known to be gone.
		for range 2 {
			w.srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpCreate })
			wantErr(t, "lost reply", create("/l-", session.EphemeralSequential), session.ErrUncertain)
		}
		w.srv.LoseReply(1, func(r zktest.Request) bool { return r.Op == zktest.OpDelete })
		wantErr(t, "lost reply", inc.Delete(ctx, "/m", -1), session.ErrUncertain)
		use(30 + 2*22)
		if found, _, err := inc.Exists(ctx, "/m"); err != nil || found {
			t.Fatal(found, err)
		}
		use(20 + 2*22)
		for _, name := range w.srv.Children("/app") {
			if strings.HasPrefix(name, "l-") {
				noerr.Must(t, inc.Delete(ctx, "/"+name, -1))
			}
		}
		use(20)

		// A new session begins with nothing.
		w.srv.KillSession(inc.SessionID())
		<-inc.Context().Done()
		inc = m.incarnation()
		use(0)
	})
}

// serveTLS starts a server that demands certificates, and returns its address and a client's configuration.
func serveTLS(t *testing.T) (string, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noerr.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	noerr.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	noerr.Must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	noerr.Must(t, err)
	srv := zktest.NewServer(zktest.Options{})
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(listener) }()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	return listener.Addr().String(), &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

func TestTLS(t *testing.T) {
	address, config := serveTLS(t)
	_, port, _ := net.SplitHostPort(address)
	world := session.Options{TLS: config, ACL: session.WorldACL(session.PermAll)}
	s, err := session.New([]string{"localhost:" + port}, world) // the certificate is for that name
	noerr.Must(t, err)
	inc := run(t, s, nil).incarnation()
	noerr.Want(t, inc.EnsurePath(t.Context(), "/a/b"))
	if config.ServerName != "" || config.MinVersion != 0 {
		t.Error("the caller's configuration was changed")
	}

	for name, c := range map[string]struct {
		host   string
		config *tls.Config
		want   string
	}{
		"unknown authority": {"localhost", &tls.Config{Certificates: config.Certificates}, "unknown authority"},
		"wrong name":        {"127.0.0.1", config, "127.0.0.1"},
		"no certificate":    {"localhost", &tls.Config{RootCAs: config.RootCAs}, ""},
	} {
		s, err := session.New([]string{c.host + ":" + port}, session.Options{TLS: c.config})
		noerr.Must(t, err)
		m := run(t, s, nil)
		for start := time.Now(); ; { // the reason is known after the first attempt, which takes its time
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err = m.Incarnation(ctx)
			cancel()
			if err == nil || strings.Contains(err.Error(), c.want) && strings.Contains(err.Error(), "last connection error") {
				break
			}
			if time.Since(start) > 20*time.Second {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err == nil {
			t.Errorf("%s: connected", name)
		}
	}
}

// The log names servers and chroot, and warns when a chroot was created: by the one member that did it, and never again.
func TestChrootInTheLog(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const warning = "the chroot did not exist and was created"
		lines := func(name, chroot string) string {
			out := new(logtest.Log)
			m := w.start(name, func(o *session.Options) {
				o.Chroot, o.Logger = chroot, slog.New(slog.NewTextHandler(out, nil))
				o.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("user:secret")}}
				o.ACL = session.WorldACL(session.PermAll)
			})
			m.incarnation()
			noerr.Want(t, m.stop())
			return out.String()
		}
		for at, chroot := range []string{"/x/y", "/x/y", "/x", ""} {
			log := lines(fmt.Sprint("m", at), chroot)
			if warned := strings.Contains(log, warning); warned != (at == 0) || strings.Contains(log, "secret") {
				t.Errorf("chroot %q, start %d:\n%s", chroot, at, log)
			}
			want := fmt.Sprintf("servers=[zk:2181] chroot=%s\n", cmp.Or(chroot, "/"))
			_, line, _ := strings.Cut(log, "ZooKeeper session established")
			if !strings.Contains(line, want) {
				t.Errorf("no %q in\n%s", want, log)
			}
		}
	})
}
