package zktest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/zktest"
)

// version is what the server says of itself.
const version = "3.9.5-zktest, built on 2026-02-11 20:18 UTC"

// askConn writes a four-letter word and returns all that is answered until the server closes the connection. It gives up after a
// minute.
func askConn(t *testing.T, c net.Conn, parts ...string) (string, error) {
	t.Helper()
	defer func() { must(t, c.Close()) }()
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	for _, part := range parts {
		if _, err := io.WriteString(c, part); err != nil {
			return "", err
		}
		time.Sleep(time.Second)
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

// askAt asks the listener at an address of a virtual network.
func askAt(t *testing.T, nw *zktest.Network, address string, parts ...string) (string, error) {
	t.Helper()
	c, err := nw.Client("asker").Dial(t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	return askConn(t, c, parts...)
}

// ask asks the server of StartVirtual.
func ask(t *testing.T, nw *zktest.Network, parts ...string) (string, error) {
	t.Helper()
	return askAt(t, nw, zktest.VirtualAddress, parts...)
}

// TestWords: each four-letter word is answered in plain text with the server's state, then the connection is closed.
func TestWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{TickTime: time.Second})
		c := connect(t, zktest.VirtualAddress, nw.Client("a").Dial, 10*time.Second)
		create(t, c, "/e", zk.FlagEphemeral)
		_, _, _, err := c.GetW("/e")
		must(t, err)
		time.Sleep(time.Second)
		summary := "Latency min/avg/max: 0/0.0/0\nReceived: 4\nSent: 3\nConnections: 2\nOutstanding: 0\nZxid: 0x2\n" +
			"Mode: standalone\nNode count: 6\n"
		for _, tt := range []struct{ word, want string }{
			{"srvr", "Zookeeper version: " + version + "\n" + summary},
			{"ruok", "imok"},
			{"isro", "rw"},
			{"envi", "Environment:\nzookeeper.version=" + version + "\nhost.name=localhost\n"},
			{"conf", "clientPort=2181\nsecureClientPort=-1\ntickTime=1000\nmaxClientCnxns=0\nminSessionTimeout=2000\n" +
				"maxSessionTimeout=20000\nclientPortListenBacklog=-1\nserverId=0\n"},
			{"cons", "cons is not executed because it is not in the whitelist.\n"},
			{"wchp", "wchp is not executed because it is not in the whitelist.\n"},
			{"zzzz", ""},
		} {
			if answer, err := ask(t, nw, tt.word); err != nil || answer != tt.want {
				t.Errorf("%s: %v\n got %q\nwant %q", tt.word, err, answer, tt.want)
			}
		}
		synctest.Wait()
		if st := srv.Stats(); st.Connections != 1 || st.Requests[zktest.OpConnect] != 1 {
			t.Errorf("words are no requests, and leave no connection: %+v", st)
		}
	})
}

// TestWordsCount: mntr and stat tell what clients have done.
func TestWordsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nw := zktest.StartVirtual(t, zktest.Options{})
		c := connect(t, zktest.VirtualAddress, nw.Client("a").Dial, time.Minute)
		create(t, c, "/e", zk.FlagEphemeral)
		_, _, _, err := c.GetW("/e")
		must(t, err)
		answer, err := ask(t, nw, "mntr")
		must(t, err)
		want := []string{
			"zk_version\t" + version, "zk_server_state\tstandalone", "zk_ephemerals_count\t1", "zk_num_alive_connections\t2",
			"zk_avg_latency\t0.0", "zk_outstanding_requests\t0", "zk_znode_count\t6", "zk_global_sessions\t1", "zk_packets_sent\t3",
			"zk_packets_received\t4", "zk_watch_count\t1", "zk_min_latency\t0", "zk_approximate_data_size\t46",
			"zk_local_sessions\t0", "zk_uptime\t0", "zk_max_latency\t0", "",
		}
		if got := strings.Split(answer, "\n"); !slices.Equal(got, want) {
			t.Errorf("mntr:\n got %q\nwant %q", got, want)
		}
		answer, err = ask(t, nw, "stat")
		must(t, err)
		if clients := "\nClients:\n /a[1](queued=0,recved=3,sent=3)\n /asker[0](queued=0,recved=1,sent=0)\n\nLatency min/avg/max: "; !strings.Contains(answer, clients) {
			t.Errorf("stat: %q", answer)
		}
	})
}

// TestWordsAreFirst: a word may come in pieces and with more behind it, but only as the first bytes of a connection.
func TestWordsAreFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		for _, parts := range [][]string{{"ru", "ok"}, {"ruok\n"}, {"ruokruok", "more"}} {
			if answer, err := ask(t, nw, parts...); answer != "imok" && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("%q: %q, %v", parts, answer, err)
			}
		}
		if answer, err := ask(t, nw, "ruo"); answer != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("half a word: %q, %v", answer, err)
		}
		r, err := dialRaw(t.Context(), nw)
		must(t, err)
		if answer, err := askConn(t, r.Conn, "ruok"); answer != "" || err != nil {
			t.Errorf("in a session: %q, %v", answer, err)
		}
		synctest.Wait()
		if st := srv.Stats(); st.Connections != 0 {
			t.Errorf("connections are left: %+v", st)
		}
	})
}

// TestWordsTCP: a client that reads to the end gets the whole answer and no reset.
func TestWordsTCP(t *testing.T) {
	t.Parallel()
	_, address := zktest.Start(t, zktest.Options{})
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	for word, want := range map[string]string{"ruok": "imok", "conf": "clientPort=" + port + "\n"} {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(c, word+"\n")
		must(t, err)
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), want) {
			t.Errorf("%s: %q, %v", word, answer, err)
		}
		must(t, c.Close())
	}
}

// TestWordsUnderFaults: what keeps packets from being answered keeps words from being answered.
func TestWordsUnderFaults(t *testing.T) {
	silent, closed, refused := os.ErrDeadlineExceeded, error(nil), syscall.ECONNREFUSED
	for name, tt := range map[string]struct {
		fault, heal func(*zktest.Server, *zktest.Network)
		want        error
	}{
		"frozen":   {func(s *zktest.Server, _ *zktest.Network) { s.Freeze() }, func(s *zktest.Server, _ *zktest.Network) { s.Thaw() }, silent},
		"silent":   {func(s *zktest.Server, _ *zktest.Network) { s.SilentHandshakes(true) }, func(s *zktest.Server, _ *zktest.Network) { s.SilentHandshakes(false) }, silent},
		"refusing": {func(s *zktest.Server, _ *zktest.Network) { s.RefuseHandshakes(true) }, func(s *zktest.Server, _ *zktest.Network) { s.RefuseHandshakes(false) }, closed},
		"down":     {func(s *zktest.Server, _ *zktest.Network) { s.Down() }, func(s *zktest.Server, _ *zktest.Network) { s.Restart(false) }, closed},
		"refused":  {func(_ *zktest.Server, n *zktest.Network) { n.Refuse() }, func(_ *zktest.Server, n *zktest.Network) { n.Heal() }, refused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, nw := zktest.StartVirtual(t, zktest.Options{})
				tt.fault(srv, nw)
				if answer, err := ask(t, nw, "ruok"); answer != "" || !errors.Is(err, tt.want) && !errors.Is(err, syscall.EPIPE) {
					t.Errorf("%q, %v, want %v", answer, err, tt.want)
				}
				tt.heal(srv, nw)
				if answer, err := ask(t, nw, "ruok"); answer != "imok" || err != nil {
					t.Errorf("afterwards: %q, %v", answer, err)
				}
			})
		})
	}
}

// TestWordsAreAnsweredLate: a server that was frozen answers by its state of then.
func TestWordsAreAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		srv.Freeze()
		time.AfterFunc(30*time.Second, func() {
			noerr.Want(t, srv.Create("/x", nil))
			srv.Thaw()
		})
		if answer, err := ask(t, nw, "srvr"); err != nil || !strings.Contains(answer, "\nZxid: 0x1\n") {
			t.Errorf("%q, %v", answer, err)
		}
	})
}

// TestWordsOnABrokenLink: a black hole in either direction holds the answer back until it is healed, and a cut loses it.
func TestWordsOnABrokenLink(t *testing.T) {
	for _, dir := range []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both} {
		for _, cut := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				_, nw := zktest.StartVirtual(t, zktest.Options{})
				link := nw.Client("asker")
				c, err := link.Dial(t.Context(), "tcp", zktest.VirtualAddress)
				must(t, err)
				link.BlackHole(dir)
				healed := make(chan struct{})
				start := time.Now()
				go func() {
					defer close(healed)
					time.Sleep(30 * time.Second)
					if cut {
						link.Cut()
					}
					link.Heal()
				}()
				answer, err := askConn(t, c, "ruok")
				<-healed
				want := "imok"
				if cut {
					want = ""
				}
				if answer != want || cut != errors.Is(err, syscall.ECONNRESET) || time.Since(start) < 30*time.Second {
					t.Errorf("direction %d, cut %t: %q, %v after %v", dir, cut, answer, err, time.Since(start))
				}
			})
		}
	}
}

// TestWordsOfAnEnsemble: of several listeners the first leads. One that is cut off says what it knows, and another leads.
func TestWordsOfAnEnsemble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.NewServer(zktest.Options{}), zktest.NewNetwork()
		addresses := []string{"a:1", "b:2", "c:3"}
		served := make(chan error, len(addresses))
		for _, address := range addresses {
			l, err := nw.Listen(address)
			must(t, err)
			go func() { served <- srv.Serve(l) }()
			synctest.Wait()
		}
		says := func(state, address, lines string) {
			t.Helper()
			all := "\n"
			for word := range strings.SplitSeq("srvr mntr conf", " ") {
				answer, err := askAt(t, nw, address, word)
				must(t, err)
				all += answer
			}
			for line := range strings.SplitSeq(lines, ", ") {
				if !strings.Contains(all, "\n"+line+"\n") {
					t.Errorf("%s: %s says nowhere %q:%s", state, address, line, all)
				}
			}
		}
		const leads = "Mode: leader, Proposal sizes last/min/max: -1/-1/-1, zk_server_state\tleader, zk_peer_state\tleading - broadcast"
		const follows = "Mode: follower, zk_server_state\tfollower, zk_peer_state\tfollowing - broadcast"
		says("all well", "a:1", leads+", zk_learners\t2, zk_quorum_size\t3, serverId=1")
		says("all well", "b:2", follows+", serverId=2")
		says("all well", "c:3", follows+", clientPort=3, serverId=3")
		srv.Isolate("a:1")
		srv.Isolate("c:3")
		must(t, srv.Create("/unseen", nil))
		says("cut off", "a:1", leads+", Zxid: 0x0, Node count: 5, zk_znode_count\t5")
		says("cut off", "b:2", leads+", Zxid: 0x1, Node count: 6, zk_znode_count\t6, zk_synced_followers\t0")
		says("cut off", "c:3", follows+", Zxid: 0x0")
		srv.Rejoin("a:1")
		says("together", "a:1", leads+", Zxid: 0x1, zk_synced_followers\t1")
		says("together", "b:2", follows)
		must(t, srv.Close())
		for range addresses {
			must(t, <-served)
		}
	})
}
