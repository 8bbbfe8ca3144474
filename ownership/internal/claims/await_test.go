package claims_test

import (
	"testing"
	"testing/synctest"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/ownership/internal/claims"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// opGet is a read of data, also one that sets a watch.
const opGet zktest.Op = 4

// A claim whose deletion the server has told is gone: nobody reads it again first.
func TestAwaitedClaimIsNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, nw := zktest.StartVirtual(t, zktest.Options{})
		const owners = "/g/owners"
		for _, data := range []string{"another's", "changed"} {
			noerr.Must(t, srv.Create(owners+"/t:0", []byte(data)))
			ses, err := session.New([]string{zktest.VirtualAddress}, session.Options{Dial: nw.Client("a").Dial})
			noerr.Must(t, err)
			recipetest.Run(t, ses)
			inc, err := ses.Incarnation(t.Context())
			noerr.Must(t, err)
			w := claims.New(claims.Paths{Owners: owners}, "")
			found := make(chan claims.Finding, 1)
			before := srv.Stats().Requests[opGet]
			go func() {
				found <- w.Await(t.Context(), inc, kiel.Partition{Topic: "t"}, func([]byte, session.Stat) {})
			}()
			synctest.Wait()
			reads := 1
			if data == "changed" { // which is read again
				reads++
				noerr.Must(t, srv.Set(owners+"/t:0", []byte("x")))
				synctest.Wait()
			}
			noerr.Must(t, srv.Delete(owners+"/t:0"))
			if f := <-found; f.Outcome != claims.Gone {
				t.Errorf("%s: %+v", data, f)
			}
			if n := srv.Stats().Requests[opGet] - before; n != reads {
				t.Errorf("%s: read %d times, want %d", data, n, reads)
			}
		}
	})
}
