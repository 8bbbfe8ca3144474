package partitioner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/partitioner"
	"github.com/kielgo/kiel/session"
)

// small is a budget of ephemeral znodes for the member and 9 of the items of uneven.
const small = 9*(len("/chroot"+path+"/locks/long-item-00/")+32+len("__lock__")+11+4) + len("/chroot"+path+"/party/-p0") + 32 + 4

// uneven returns a set of n items with names of two lengths.
func uneven(n int) []string {
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf("%sitem-%02d", []string{"", "long-"}[i%2], i))
	}
	return items
}

// poor returns a session with the small budget.
func (w *world) poor(name string) *session.Session {
	w.Helper()
	s, _ := recipetest.Stoppable(w, w.Net, name, session.Options{EphemeralBudget: small, Chroot: "/chroot"})
	return s
}

// New logs a warning if one member can't hold the whole set, with how many items it can hold.
func TestWarningOfTooManyItems(t *testing.T) {
	for n, warned := range map[int]bool{9: false, 10: true, 40: true} {
		inWorld(t, func(w *world) {
			var log bytes.Buffer
			w.memberIn(w.poor("p0"), "p0", uneven(n), partitioner.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			says := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), fmt.Sprintf("items=%d most=9 budget=%d", n, small))
			if says != warned || !warned && log.Len() > 0 {
				w.Errorf("%d items: logged %q", n, &log)
			}
		})
	}
}

// A member whose share exceeds the budget fails with an error that names the limit, before it acquires any lock. It can hold that
// many items, whichever they are.
func TestShareThatExceedsTheBudget(t *testing.T) {
	inWorld(t, func(w *world) {
		items := uneven(18)
		share := func(_ string, members, items []string) ([]string, error) {
			if len(members) > 1 { // those with long names, of which 9 fit
				return slices.DeleteFunc(items, func(item string) bool { return !strings.HasPrefix(item, "long") }), nil
			}
			return items, nil
		}
		w.Must(w.Srv.Create("/chroot"+guest, nil))
		m := w.memberIn(w.poor("p0"), "p0", items, partitioner.Options{Func: share})
		done := make(chan error, 1)
		go func() {
			done <- m.Run(w.Context(), func(ctx context.Context, _ []string) error {
				<-ctx.Done()
				return nil
			})
		}()
		m.wait(partitioner.Acquired)
		if n := len(m.Items()); n != 9 {
			w.Errorf("acquired %d items, want 9", n)
		}
		w.Must(w.Srv.Delete("/chroot" + guest))
		start := time.Now()
		err := <-done
		var failed *partitioner.FailedError
		if !errors.Is(err, session.ErrEphemeralBudget) || !errors.As(err, &failed) {
			w.Errorf("got %v", err)
		}
		for _, says := range []string{"18 items", "any 9 of"} {
			if !strings.Contains(err.Error(), says) {
				w.Errorf("%v: does not say %q", err, says)
			}
		}
		if took := time.Since(start); took > boundary+time.Second {
			w.Errorf("ended after %v", took)
		}
		w.clean()
	})
}
