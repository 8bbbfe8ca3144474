package sharedset_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
)

// Read returns the items as they are, and why they can't be read.
func TestRead(t *testing.T) {
	inWorld(t, func(w *world) {
		inc, err := w.Session("reader").Incarnation(w.Context())
		noerr.Must(w, err)
		for data, want := range map[string]error{`["t:1","t:0"]`: nil, "nonsense": sharedset.ErrUnreadable} {
			w.Write(path, data)
			got, err := sharedset.Read(w.Context(), inc, path)
			if !errors.Is(err, want) || want == nil && !slices.Equal(got, []string{"t:0", "t:1"}) {
				w.Errorf("%s: %v, %v", data, got, err)
			}
		}
		if got, err := sharedset.Read(w.Context(), inc, path+"-of-nobody"); !errors.Is(err, session.ErrNoNode) || got != nil {
			w.Errorf("without a znode: %v, %v", got, err)
		}
	})
}
