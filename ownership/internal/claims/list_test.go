package claims_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Servers that lost what they held give other claims the same metadata: the list of claims from before says nothing about them.
func TestListOfAnotherHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		other := zktest.NewServer(zktest.Options{})
		t.Cleanup(func() { _ = other.Close() })
		const owners, address = "/g/owners", "other:2181"
		must := func(err error) {
			noerr.Must(t, err)
		}
		must(srv.Create(owners+"/t:0", nil))
		must(other.Create(owners+"/t:1", nil))
		_, was, _ := srv.Get(owners)
		if _, is, _ := other.Get(owners); is != was {
			t.Fatalf("%+v, on the other server %+v", was, is)
		}
		ses, err := session.New([]string{zktest.VirtualAddress, address}, session.Options{Dial: nw.Client("a").Dial})
		must(err)
		recipetest.Run(t, ses)
		w := claims.New(claims.Paths{Owners: owners}, "")
		want := func(anew bool, names ...string) *session.Incarnation {
			inc, err := ses.Incarnation(t.Context())
			must(err)
			if got, listed, err := w.List(t.Context(), inc); err != nil || !slices.Equal(got, names) || listed != anew {
				t.Errorf("listed %q, anew: %t, %v; want %q", got, listed, err, names)
			}
			return inc
		}
		want(true, "t:0")
		inc := want(false, "t:0")
		srv.Down()
		l, err := nw.Listen(address)
		must(err)
		go func() { _ = other.Serve(l) }()
		<-inc.Context().Done()
		want(true, "t:1")
	})
}
