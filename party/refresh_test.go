package party_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/zktest"
)

func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.join("a")
		a.joined()
		time.Sleep(time.Second)
		var requests []zktest.Op
		c.srv.SetHook(func(r *zktest.Request) zktest.Action {
			if strings.HasPrefix(r.Path, directory) {
				requests = append(requests, r.Op)
			}
			return zktest.Action{}
		})
		c.net.Client("a").Delay(100 * time.Millisecond)
		start := time.Now()
		must(t, a.Refresh(t.Context()))
		c.unhook()
		if !a.View().At.After(start) {
			t.Error("returned before the view was read")
		}
		if want := []zktest.Op{zktest.OpSync, zktest.OpExists}; len(requests) < 2 || !slices.Equal(requests[:2], want) {
			t.Errorf("requests %v", requests)
		}
		c.net.Client("a").Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), directory) {
			t.Errorf("got %v", err)
		}
		c.net.Client("a").Heal()
		must(t, a.Refresh(t.Context()))
		must(t, a.stop())
		wantErr(t, a.Refresh(t.Context()), party.ErrStopped)
	})
}
