package ownership

import (
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership/internal/claims"
)

// While neither plan nor claims change, looking again costs no look at the partitions.
func TestUnownedIsLookedForOnce(t *testing.T) {
	looked := 0
	planned := func() []kiel.Partition {
		looked++
		return []kiel.Partition{{Topic: "t"}, {Topic: "t", ID: 1}}
	}
	first := &plan{planned: planned}
	start := time.Now()
	var u unowned
	look := func(p *plan, names claims.Names, after time.Duration, count int, oldest time.Duration, looks int) {
		t.Helper()
		n, since := u.look(p, names, start.Add(after))
		if n != count || n > 0 && !since.Equal(start.Add(oldest)) || n == 0 && !since.IsZero() || looked != looks {
			t.Errorf("%d unowned, since %v, after %d looks; want %d since %v, %d looks", n, since.Sub(start), looked, count, oldest, looks)
		}
	}
	one, both := claims.Names{"t:0"}, claims.Names{"t:0", "t:1"}
	look(first, one, 0, 1, 0, 1)
	look(first, one, time.Second, 1, 0, 1)
	look(first, claims.Names{"t:0"}, 2*time.Second, 1, 0, 2) // created and deleted since
	look(&plan{planned: planned}, one, 3*time.Second, 1, 0, 3)
	look(first, both, 4*time.Second, 0, 0, 4)
	look(first, both, 5*time.Second, 0, 0, 4)
	look(first, nil, 6*time.Second, 2, 6*time.Second, 5)
	look(first, claims.Names{}, 7*time.Second, 2, 6*time.Second, 5)
}
