package inspect

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// Many chroots behind a slow ZooKeeper are looked at within the time, and if that is not enough, what was found is said, and that
// more may be there.
func TestManyChroots(t *testing.T) {
	for delay, want := range map[time.Duration]string{100 * time.Millisecond: "", 450 * time.Millisecond: "for want of time"} {
		t.Run(delay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zk, network := zktest.StartVirtual(t, zktest.Options{})
				for i := range 300 {
					mustCreate(t, zk, fmt.Sprintf("/app%03d/kiel", i), "")
				}
				mustCreate(t, zk, "/app007/kiel/groups/g/members/m", "")
				in, err := Open(t.Context(), Sources{
					Servers: []string{zktest.VirtualAddress}, Session: session.Options{Dial: network.Client("looker").Dial, Logger: slog.New(slog.DiscardHandler)},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close(context.WithoutCancel(t.Context()))
				network.Delay(delay)
				defer network.Heal()
				began := time.Now()
				found, unseen, err := in.siblings(t.Context(), "g")
				if err != nil || len(found) != 1 || found[0].chroot != "/app007" || found[0].since.IsZero() {
					t.Errorf("%v: %+v", err, found)
				}
				if text := strings.Join(unseen, ", "); text != "" && want == "" || !strings.Contains(text, want) {
					t.Errorf("unseen: %s", text)
				}
				if took := time.Since(began); took > patience+time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
