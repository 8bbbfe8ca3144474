package conformance_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/conformance"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/zktest"
)

// words are the four-letter words that zktest answers, refused those that it refuses, unknown those that no server knows.
const (
	words   = "conf envi isro mntr ruok srvr stat"
	refused = "cons crst dirs dump gtmk hash srst stmk wchc wchp wchs"
	unknown = "zzzz RUOK"
)

// TestWords39 asks zktest and a real server the same four-letter words: the answers of the one have the form of the other's.
func TestWords39(t *testing.T) {
	runWords(t, servers.ZooKeeper39)
	_, address := zktest.Start(t, options())
	if answer := ask(t, address, "envi"); !strings.Contains(answer, "\nzookeeper.version="+servers.ZooKeeper39+"-") {
		t.Errorf("zktest does not say that it is a ZooKeeper %s: %q", servers.ZooKeeper39, answer)
	}
}

func TestWords38(t *testing.T) { runWords(t, servers.ZooKeeper38) }

func runWords(t *testing.T, version string) {
	t.Helper()
	t.Parallel()
	compareWords(t, version, 1)
	compareWords(t, version, 3)
}

// compareWords compares ensembles, or single servers, by their members' modes.
func compareWords(t *testing.T, version string, members int) {
	t.Helper()
	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{
		Version: version, Servers: members, TickTime: conformance.TickTime,
		Config: map[string]string{"4lw.commands.whitelist": strings.ReplaceAll(words, " ", ", ")},
	})
	fakes := map[string]string{} // addresses by mode
	for _, address := range serveTogether(t, members) {
		fakes[modeOf(t, address)] = address
	}
	compared := map[string]bool{}
	for _, n := range zk.Nodes() {
		mode := modeOf(t, n.Addr())
		if compared[mode] {
			continue
		}
		compared[mode] = true
		if fakes[mode] == "" {
			t.Errorf("no zktest is a %s: %q", mode, fakes)
			continue
		}
		for word := range strings.FieldsSeq(words + " " + refused + " " + unknown) {
			if text := differ(word, ask(t, n.Addr(), word), ask(t, fakes[mode], word)); text != "" {
				t.Errorf("%s of a %s: %s", word, mode, text)
			}
		}
	}
	if len(compared) != len(fakes) {
		t.Errorf("%d modes of real servers, %q of zktest", len(compared), fakes)
	}
	zk.Stop()
}

// serveTogether serves one zktest at several addresses, and returns when it has begun to at all: before, it has fewer members.
func serveTogether(t *testing.T, members int) []string {
	t.Helper()
	srv := zktest.NewServer(options())
	t.Cleanup(func() { _ = srv.Close() }) // it returns nil
	var addresses []string
	for range members {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = srv.Serve(l) }() // Close ends it
		addresses = append(addresses, l.Addr().String())
	}
	for _, address := range addresses {
		ask(t, address, "ruok")
	}
	return addresses
}

// ask writes a four-letter word and returns what is answered until the connection is closed.
func ask(t *testing.T, address, word string) string {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // all has been read
	defer context.AfterFunc(t.Context(), func() { _ = c.Close() })()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, word); err != nil {
		t.Fatalf("%s: %v", word, err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%s: %v", word, err)
	}
	return string(answer)
}

func modeOf(t *testing.T, address string) string {
	t.Helper()
	_, rest, found := strings.Cut(ask(t, address, "srvr"), "\nMode: ")
	mode, _, ended := strings.Cut(rest, "\n")
	if !found || !ended {
		t.Fatalf("no mode at %s", address)
	}
	return mode
}

// differ says in what an answer of zktest is not like that of a real server; "" when in nothing.
func differ(word, genuine, fake string) string {
	switch word {
	case "mntr", "envi", "conf": // zktest has some of the lines, in the same order
		return missing(word, shapes(genuine), shapes(strings.TrimSuffix(fake, "\n")))
	default:
		if r, f := shapes(genuine), shapes(fake); !slices.Equal(r, f) {
			return fmt.Sprintf("\n real %q\nzktest %q", r, f)
		}
		return ""
	}
}

// needed are the lines that programs look for.
func needed(word string) []string {
	switch word {
	case "mntr":
		return []string{
			"zk_version", "zk_server_state", "zk_num_alive_connections", "zk_znode_count", "zk_ephemerals_count", "zk_watch_count",
			"zk_outstanding_requests", "zk_avg_latency", "zk_packets_received", "zk_approximate_data_size",
		}
	case "envi":
		return []string{"Environment:", "zookeeper.version="}
	default:
		return []string{"clientPort=", "tickTime=", "minSessionTimeout=", "maxSessionTimeout=", "serverId="}
	}
}

// missing says which line of zktest's answer the real one lacks, or which one that is needed zktest lacks.
func missing(word string, genuine, fake []string) string {
	for _, key := range needed(word) {
		if !slices.ContainsFunc(fake, func(line string) bool { return strings.HasPrefix(line, key) }) {
			return fmt.Sprintf("zktest does not have %q: %q", key, fake)
		}
	}
	for _, line := range fake {
		i := slices.Index(genuine, line)
		if i < 0 {
			return fmt.Sprintf("the real answer does not have %q, or has it earlier: %q", line, genuine)
		}
		genuine = genuine[i+1:]
	}
	return ""
}

var (
	versionText = regexp.MustCompile(`\d+\.\d+\.\d+-\w+, built on [-\d]+ \d\d:\d\d UTC`)
	addressText = regexp.MustCompile(`/127\.0\.0\.1:\d+`)
	floatText   = regexp.MustCompile(`\d+\.\d+`)
	zxidText    = regexp.MustCompile(`0x[0-9a-f]+`)
	numberText  = regexp.MustCompile(`-?\b\d+\b`)
)

// shapes returns an answer's lines, with the same letter for all versions, addresses and numbers.
func shapes(answer string) []string {
	if answer == "" {
		return nil
	}
	answer = versionText.ReplaceAllString(answer, "V")
	answer = addressText.ReplaceAllString(answer, "A")
	answer = zxidText.ReplaceAllString(answer, "Z")
	answer = floatText.ReplaceAllString(answer, "F")
	answer = numberText.ReplaceAllString(answer, "N")
	return strings.Split(answer, "\n")
}
