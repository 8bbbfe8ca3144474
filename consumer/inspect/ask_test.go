package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/status"
)

// Whatever answers in a member's place is bounded, is never followed elsewhere, and is not shown.
func TestHostileMembers(t *testing.T) {
	const evil = "s3cret"
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	good, err := json.Marshal(&status.Group{Version: status.Version, Group: "g", Self: &status.Self{Name: "m"}})
	noerr.Must(t, err)
	released := make(chan struct{})
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string // "" is a good answer
	}{
		"good":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(good) }, ""},
		"other path": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(pathCode(r)); _, _ = w.Write(good) }, ""},
		"redirect":   {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, "HTTP status 302"},
		"login":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "auth"},
		"garbage":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, evil) }, "no status"},
		"other JSON": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"password":%q}`, evil) }, "another group"},
		"other group": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Replace(string(good), `"g"`, `"h"`, 1))
		}, "another group"},
		"too large":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+10)) }, ""},
		"never":         {func(_ http.ResponseWriter, r *http.Request) { wait(r, released) }, "in time"},
		"no HTTP":       {func(w http.ResponseWriter, _ *http.Request) { raw(w, evil+"\r\n\r\n") }, "no answer in HTTP"},
		"large headers": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat(evil, 10000)) }, "no answer in HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tc.answer)
			defer server.Close()
			began := time.Now()
			said, answers := newAsker(true).ask(t.Context(), "g", []status.Member{{Name: "m", StatusAddr: server.URL}}, nil)
			if name == "too large" { // or too slow
				if said[0] != nil || answers[0].Error == "" {
					t.Errorf("%+v", answers)
				}
				return
			}
			if (said[0] != nil) != (tc.want == "") || !strings.Contains(answers[0].Error, tc.want) || strings.Contains(answers[0].Error, evil) {
				t.Errorf("%+v", answers)
			}
			if answers[0].Silent != (name == "never") {
				t.Errorf("silent: %+v", answers)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if name != "good" {
				return
			}
			_, answers = newAsker(false).ask(t.Context(), "g", []status.Member{{Name: "m", StatusAddr: server.URL}}, nil)
			if !strings.Contains(answers[0].Error, errLocal.Error()) {
				t.Errorf("a loopback address: %+v", answers)
			}
		})
	}
	close(released)
	if elsewhere.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

func pathCode(r *http.Request) int {
	if r.URL.Path != "/status" || r.URL.RawQuery != "" || r.Method != http.MethodGet {
		return http.StatusTeapot
	}
	return http.StatusOK
}

func wait(r *http.Request, released <-chan struct{}) {
	select {
	case <-r.Context().Done():
	case <-released:
	}
}

// raw answers with bytes that are no HTTP.
func raw(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_, _ = conn.Write([]byte(text))
		_ = conn.Close()
	}
}

// A thousand members that accept connections and never answer cost some seconds, and those that answer are not lost among them.
func TestMembersThatHang(t *testing.T) {
	released := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { wait(r, released) }))
	defer hangs.Close()
	defer close(released)
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(&status.Group{Version: status.Version, Group: "g", Self: &status.Self{Name: "m"}})
	}))
	defer answers.Close()
	members := make([]status.Member, 1000)
	for i := range members {
		members[i] = status.Member{Name: "m", StatusAddr: hangs.URL}
	}
	members[999].StatusAddr = answers.URL
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	said, got := newAsker(true).ask(ctx, "g", members, nil)
	if took := time.Since(began); took > patience-2*time.Second {
		t.Errorf("it took %v", took)
	}
	if got[0].State != Failed || got[0].Error != errLate.Error() || got[999].State != OK || said[999] == nil {
		t.Errorf("%+v, %+v", got[0], got[999])
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	for _, address := range []string{"127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "169.254.169.254:80", "[fe80::1]:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::]:80", "224.0.0.1:80", "[ff02::1]:80"} {
		assert.Error(t, checkAddress(address, false), errLocal, "%s", address)
		assert.Error(t, checkAddress(address, true), nil, "%s", address)
	}
	noerr.Want(t, checkAddress("10.0.0.7:80", false))
}

func answerWith(rest string) string {
	return fmt.Sprintf(`{"version":%d,"group":"g","self":{"name":"m"}%s}`, status.Version, rest)
}

// An answer of many or of large values costs no more memory than one of them, and what is not kept of it is garbage at once.
func TestAnswersHaveBoundedMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		rest string
		want error
	}{
		"empty partitions": {`,"partitions":[{}` + strings.Repeat(",{}", 1<<20) + "]", nil},
		"foreign":          {`,"partitions":[{}` + strings.Repeat(`,{"topic":"t","partition":8,"offsets":{}}`, 90000) + "]", nil},
		"troubles":         {`,"troubles":[{}` + strings.Repeat(`,{"kind":"k"}`, 300000) + "]", nil},
		"names":            {`,"troubles":[{"about":[""` + strings.Repeat(`,""`, 1<<20) + "]}]", errTooLarge},
		"deep":             {`,"x":` + strings.Repeat("[", 1<<20), errNoStatus},
		"unknown":          {`,"x":[0` + strings.Repeat(",0", 1<<20) + "]", errTooLarge},
		"skipped":          {`,"members":[{}` + strings.Repeat(",{}", 1<<20) + "]", nil},
		"long":             {`,"members":[{}` + strings.Repeat(`,{"name":"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"}`, 80000) + "]", errTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			body := answerWith(tc.rest)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var most uint64
			g, err := readAnswer(&slowed{from: strings.NewReader(body), each: func() {
				runtime.GC()
				runtime.ReadMemStats(&after)
				most = max(most, after.HeapAlloc)
			}}, "g", "m", holders{{Topic: "t", ID: 7}: "m"})
			if !errors.Is(err, tc.want) || (g != nil) != (tc.want == nil) {
				t.Errorf("%v", err)
			}
			if held := int64(most) - int64(before.HeapAlloc); held > 2<<20 {
				t.Errorf("%d bytes were held while %d were read", held, len(body))
			}
			if g != nil && (len(g.Partitions) > 0 || len(g.Troubles) > maxTroubles) {
				t.Errorf("%d partitions, %d troubles are kept", len(g.Partitions), len(g.Troubles))
			}
		})
	}
}

// slowed calls each every few hundred kilobytes.
type slowed struct {
	from *strings.Reader
	each func()
	n    int
}

func (s *slowed) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if s.n += n; s.n > 300<<10 {
		s.n = 0
		s.each()
	}
	return n, err
}

// A member that has 2,000 partitions of its own, with names as long as Kafka takes, is heard.
func TestLargeAnswersAreRead(t *testing.T) {
	now, of, topic := time.Now(), holders{}, strings.Repeat("t", 249)
	g := statuswrite.Group("g", status.SourceMember, now)
	g.Self = &status.Self{Name: "m", Kafka: &status.Kafka{Reachable: true}}
	for i := range int32(2000) {
		g.Partitions = append(g.Partitions, status.Partition{
			Topic: topic, Partition: i, State: status.Owned, Planned: "member-with-a-name", Owner: "member-with-a-name", Since: &now, Token: 1 << 40, Previous: "member-with-another-name",
			Reason:  &status.Reason{Code: status.MemberGone, Names: []string{"member-with-another-name"}},
			Offsets: &status.Offsets{Position: 1 << 40, Committed: 1 << 40, Marked: 1 << 40, End: 1 << 40}, Times: &status.Times{Settle: 1.234567, Claim: 1.234567, Open: 1.234567, FirstMessage: 1.234567},
		})
		of[kiel.Partition{Topic: topic, ID: i}] = "m"
	}
	g.Troubles = append(g.Troubles, status.Trouble{Kind: "commit", About: []string{"t:1"}})
	body, err := json.Marshal(g)
	noerr.Must(t, err)
	said, err := readAnswer(bytes.NewReader(body), "g", "m", of)
	if err != nil || len(said.Partitions) != 2000 || said.Partitions[1999].Offsets.End != 1<<40 || len(said.Troubles) != 1 || !said.Self.Kafka.Reachable {
		t.Fatalf("of %d bytes: %v", len(body), err)
	}
	if len(body) > maxAnswer/2 {
		t.Errorf("a real answer has %d bytes: the bound is near", len(body))
	}
	t.Logf("%d bytes", len(body))
}

// A member that was asked and did not answer may have a handler that is stuck: all is not known to be well.
func TestAllIsWellOnlyIfAllHaveAnswered(t *testing.T) {
	for state, want := range map[SourceState]string{
		OK: "all well", NotAsked: "all well", Failed: "no problem found, not all could be seen",
	} {
		r := &Report{Window: 10, Claims: true, Answers: []Answer{{Member: "m", State: state}}}
		r.ZooKeeper.State, r.Kafka.State = OK, OK
		if got := r.Verdict(); got != want {
			t.Errorf("with a member that is %q: %s", state, got)
		}
	}
}
