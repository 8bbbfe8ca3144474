package ownership_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/ownership"
	"github.com/kielgo/kiel/zktest"
)

// Whatever happens to the members, to their links, to the server's answers and to the plans, there is at most one trusted owner
// of a partition; and when it is quiet again all partitions are owned.
func TestRandomSchedules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			w := newWorld(t)
			defer w.close()
			const n = 6
			all := strings.Fields(items(n))
			joined := 0
			join := func() *member {
				joined++
				m := w.join(fmt.Sprintf("m%d", joined), memberOptions{
					Options: ownership.Options{RebalanceTimeout: 8 * time.Second, StopTimeout: 12 * time.Second},
					drain:   time.Duration(rapid.IntRange(0, 3000).Draw(t, "drain")) * time.Millisecond,
				})
				return m
			}
			live := []*member{join(), join(), join()}
			pick := func() *member { return live[rapid.IntRange(0, len(live)-1).Draw(t, "member")] }
			plan := func(label string) map[kiel.Partition]string {
				plan := map[kiel.Partition]string{}
				for _, item := range all {
					plan[part(item)] = live[rapid.IntRange(0, len(live)-1).Draw(t, label)].name
				}
				return plan
			}
			share := func() {
				w.owner = plan("owner")
				for _, m := range live {
					m.brain.assign(maps.Clone(w.owner))
				}
			}
			share()
			lose := func(match func(zktest.Request) bool) {
				w.srv.LoseReply(rapid.IntRange(1, 3).Draw(t, "losses"), match)
			}
			for range rapid.IntRange(5, 25).Draw(t, "steps") {
				switch deed := rapid.SampledFrom([]string{
					"share", "share", "confuse", "join", "leave", "cut", "hole", "hole", "delay", "heal", "heal",
					"lose claim", "lose release", "lose any", "kill", "freeze", "thaw", "down", "up", "cut all",
				}).Draw(t, "deed"); deed {
				case "share":
					share()
				case "confuse": // every member hears another plan
					for _, m := range live {
						m.brain.assign(plan("opinion"))
					}
				case "join":
					if len(live) < 5 {
						live = append(live, join())
					}
				case "leave":
					if len(live) > 1 {
						m := pick()
						m.quit()
						rest := live[:0:0]
						for _, other := range live {
							if other != m {
								rest = append(rest, other)
							}
						}
						live = rest
					}
				case "cut":
					pick().client.Cut()
				case "hole":
					pick().client.BlackHole(rapid.SampledFrom([]zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.Both}).Draw(t, "direction"))
				case "delay":
					pick().client.Delay(time.Duration(rapid.IntRange(0, 3000).Draw(t, "delay")) * time.Millisecond)
				case "heal":
					for _, m := range w.members {
						m.client.Heal()
					}
				case "lose claim":
					lose(claims)
				case "lose release":
					lose(releases)
				case "lose any":
					lose(nil)
				case "kill":
					if ses := pick().sessionID(); ses != 0 {
						w.kill(ses)
					}
				case "freeze":
					w.srv.Freeze()
				case "thaw":
					w.srv.Thaw()
				case "down":
					w.srv.Down()
				case "up":
					w.srv.Restart(false)
				case "cut all":
					w.srv.CutAll()
				}
				time.Sleep(time.Duration(rapid.IntRange(1, 6000).Draw(t, "pause")) * time.Millisecond)
				for _, m := range w.members {
					if fault := ownership.Miscounted(m.owner); fault != "" {
						t.Errorf("%s: %s", m.name, fault)
					}
				}
			}
			// Quiet.
			w.srv.LoseReply(0, nil)
			w.srv.Thaw()
			w.srv.Restart(false)
			for _, m := range w.members {
				m.client.Heal()
			}
			share()
			bound := 10*time.Second + 2*time.Second + 8*time.Second + 30*time.Second
			w.within(bound, "every partition is owned by whom the plan says", func() bool {
				for p, name := range w.owner {
					for _, m := range live {
						if owns := strings.Contains(" "+m.owned()+" ", " "+p.String()+" "); owns != (m.name == name) {
							return false
						}
					}
				}
				return true
			})
		})
	})
}
