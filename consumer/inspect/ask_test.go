package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kielgo/kiel/status"
)

// Whatever answers in a member's place is bounded, is never followed elsewhere, and is not shown.
func TestHostileMembers(t *testing.T) {
	const evil = "s3cret"
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	good, err := json.Marshal(&status.Group{Version: status.Version, Group: "g", Self: &status.Self{Name: "m"}})
	if err != nil {
		t.Fatal(err)
	}
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
		if err := checkAddress(address, false); !errors.Is(err, errLocal) {
			t.Errorf("%s: %v", address, err)
		}
		if err := checkAddress(address, true); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := checkAddress("10.0.0.7:80", false); err != nil {
		t.Error(err)
	}
}
