package barrier_test

import (
	"testing"
	"time"
)

// §15: a member is killed while it waits for one more, and started again. Its old znode exists until its session is over, and
// counts. Identifiers do not tell members apart: kazoo gives one to all objects of a process, and so do we by default. So no rule
// can prevent that one of two members crosses with its own old znode: nobody can tell the znode of a dead member from that of a
// living one. Only two things are sure: the member does not leave alone, and the next round is complete.
func TestRestartedCrossesWithItsOldZnode(t *testing.T) {
	for what, start := range map[string]func(x *execution, name string) (in, out func()){
		"Python": func(x *execution, name string) (in, out func()) {
			p := x.python(name)
			p.goThrough(2)
			return func() { x.over("enter", p) }, func() { x.over("leave", p) }
		},
		"ours": func(x *execution, name string) (in, out func()) {
			c := x.enter(x.double(x.Session("python "+name), 2, "one identifier"))
			return func() { x.ends("enter", c, nil) }, func() { x.ends("leave", x.leave(c.Value), nil) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			inExecution(t, func(x *execution) {
				x.Must(x.Srv.Create(path, nil))
				const name, again = "00000000000000000000000000000000", "11111111111111111111111111111111"
				start(x, name)
				x.until("the first one", func() bool { return len(x.Srv.Children(path)) == 1 })
				link := x.Net.Client("python " + name)
				link.Refuse()
				link.Cut() // it is killed
				begun := time.Now()
				in, out := start(x, again)
				in()
				if d := time.Since(begun); d > time.Second {
					x.Errorf("it went in after %v", d)
				}
				out()
				if d := time.Since(begun); d < 5*time.Second || d > 30*time.Second {
					x.Errorf("it went out after %v, and the session of the old one is over after about 10 s", d)
				}
				if left := x.Srv.Children(path); len(left) != 0 {
					x.Errorf("left: %q", left)
				}
				x.goesOn(x.enter(x.double(x.Session("g"), 2, "")))
				link.Heal()
			})
		})
	}
}
