package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	answer := http.StatusOK
	db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index/db.json" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(answer)
	}))
	defer db.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	modules := []string{".", "bad", "cmd"}
	for name, c := range map[string]struct {
		url    string
		answer int
		code   int
		said   string
		ran    []string
	}{
		"a module is vulnerable":        {db.URL, http.StatusOK, 1, "govulncheck in bad: found", modules},
		"a folder":                      {"file:///db", 0, 1, "govulncheck in bad: found", modules},
		"nobody answers":                {gone.URL, 0, 0, "NOT CHECKED", nil},
		"the network answers by itself": {db.URL, http.StatusForbidden, 0, "NOT CHECKED", nil},
	} {
		t.Run(name, func(t *testing.T) {
			answer = c.answer
			var out strings.Builder
			var ran []string
			code := run(t.Context(), &out, c.url, func(_ context.Context, module string) error {
				ran = append(ran, module)
				if module == "bad" {
					return errors.New("found")
				}
				return nil
			}, modules)
			if code != c.code || !slices.Equal(ran, c.ran) || !strings.Contains(out.String(), c.said) {
				t.Errorf("exit code %d, checked %q, said %q; want %d, %q, %q", code, ran, out.String(), c.code, c.ran, c.said)
			}
		})
	}
}
