package party_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/zktest"
)

func TestRefresh(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.member("a")
		time.Sleep(time.Second)
		var requests []zktest.Op
		w.Srv.SetHook(func(r *zktest.Request) zktest.Action {
			if strings.HasPrefix(r.Path, directory) {
				requests = append(requests, r.Op)
			}
			return zktest.Action{}
		})
		w.Net.Client("a").Delay(100 * time.Millisecond)
		start := time.Now()
		must(w, a.Refresh(w.Context()))
		w.unhook()
		if !a.View().At.After(start) {
			w.Error("returned before the view was read")
		}
		if want := []zktest.Op{zktest.OpSync, zktest.OpExists}; len(requests) < 2 || !slices.Equal(requests[:2], want) {
			w.Errorf("requests %v", requests)
		}
		w.Net.Client("a").Freeze()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := a.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), directory) {
			w.Errorf("got %v", err)
		}
		w.Net.Client("a").Heal()
		must(w, a.Refresh(w.Context()))
		must(w, a.stop())
		wantErr(w, a.Refresh(w.Context()), party.ErrStopped)
	})
}
