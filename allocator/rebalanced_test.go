package allocator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
)

// inLoggedRig is inRig with what is logged at INFO and above.
func inLoggedRig(t *testing.T, test func(r *rig, log *logtest.Log)) {
	t.Helper()
	log := new(logtest.Log)
	inRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) }, func(r *rig) { test(r, log) })
}

// since returns the lines after the first n, without what all lines have in common.
func since(log *logtest.Log, n int) (lines []string) {
	for line := range strings.Lines(log.String()) {
		if n--; n < 0 {
			_, line, _ = strings.Cut(line, " ") // the time
			lines = append(lines, strings.Replace(strings.TrimSpace(line), " component=allocator group=g member=b", "", 1))
		}
	}
	return lines
}

func TestOneLineForEachRebalance(t *testing.T) {
	inLoggedRig(t, func(r *rig, log *logtest.Log) {
		set := func(n int) (items []string) {
			for i := range n {
				items = append(items, fmt.Sprintf("t:%d", i))
			}
			return items
		}
		crowd := plain("b")
		for i := range 999 {
			crowd = append(crowd, plain(fmt.Sprintf("m%03d", i))...)
		}
		logged := 0
		for _, step := range []struct {
			act  func()
			want string
		}{
			{
				func() { r.partitions(); r.membersAre(crowd[:1]...) },
				`reason=started joined_count=0 gone_count=0 members=1 partitions=0 moved=0 given=0 taken_away=0 took=0s`,
			},
			{
				func() { r.partitions(set(1000)...) },
				`reason="topic-added t" joined_count=0 gone_count=0 members=1 partitions=1000 moved=1000 given=1000 taken_away=0 took=0s`,
			},
			{
				func() { r.membersAre(crowd...) },
				`reason="member-joined m000, m001, m002, m003, m004 and 994 more" joined_count=999 gone_count=0 members=1000 partitions=1000 ` +
					`moved=999 given=0 taken_away=999 took=0s joined="m000, m001, m002, m003, m004 and 994 more"`,
			},
			{
				func() { r.membersAre(append(crowd[:2:2], crowd[998:]...)...) },
				`reason="member-gone m001, m002, m003, m004, m005 and 991 more" joined_count=0 gone_count=996 members=4 partitions=1000 ` +
					`moved=996 given=249 taken_away=0 took=0s gone="m001, m002, m003, m004, m005 and 991 more"`,
			},
			{
				func() { r.partitions() },
				`reason="topic-removed t" joined_count=0 gone_count=0 members=4 partitions=0 moved=1000 given=0 taken_away=250 took=0s`,
			},
		} {
			step.act()
			sleep(time.Minute)
			lines := since(log, logged)
			logged += len(lines)
			want := fmt.Sprintf("level=INFO msg=rebalanced version=%d %s", r.Snapshot().Version, step.want)
			if len(lines) != 1 || lines[0] != want {
				r.Errorf("logged\n%s\nwant\n%s", strings.Join(lines, "\n"), want)
			}
		}
	})
}

// A thousand members with the longest of names come and go one by one.
func TestLinesOfAStormOfMembers(t *testing.T) {
	inLoggedRig(t, func(r *rig, log *logtest.Log) {
		r.begin("t:0")
		sleep(time.Minute)
		first, before := len(since(log, 0)), r.published()
		crowd := plain("b")
		for i := range 1000 {
			crowd = append(crowd, plain(fmt.Sprintf("m%03d", i)+strings.Repeat("x", 244))...)
		}
		show := func(n int) {
			r.show(&party.View{Incarnation: r.inc, Joined: true, At: time.Now(), Members: crowd[:n]})
			time.Sleep(10 * time.Millisecond)
		}
		for n := range crowd {
			show(n + 1)
		}
		for n := range crowd {
			show(len(crowd) - n)
		}
		sleep(time.Minute)
		lines := since(log, first)
		if rebalances := r.published() - before; len(lines) != rebalances || rebalances < 10 || rebalances > 30 {
			r.Errorf("%d lines for %d rebalances in 20 s", len(lines), rebalances)
		}
		for _, line := range lines {
			if len(line) > 1200 || !strings.Contains(line, " msg=rebalanced ") {
				r.Errorf("%d bytes: %s", len(line), line)
			}
		}
	})
}

func TestAliveFindsALoopThatHangs(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		hang, publish := make(chan struct{}), r.loop.publish
		r.loop.publish = func(s *Snapshot) {
			<-hang
			publish(s)
		}
		r.begin("t:0")
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := r.Alive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			r.Error("the loop hangs:", err)
		}
		close(hang)
		noerr.Want(r, r.Alive(r.Context()))
		r.stop()
		noerr.Want(r, r.Alive(r.Context()))
	})
}

func TestLinesOfASetThatCanNotBeRead(t *testing.T) {
	inLoggedRig(t, func(r *rig, log *logtest.Log) {
		r.begin("t:0")
		sleep(time.Minute)
		first := len(since(log, 0))
		for i := range 60 {
			r.writes++
			r.showSet(&sharedset.View{
				Items: []string{"t:0"}, Exists: true, Czxid: r.czxid, DataVersion: r.writes, Err: fmt.Errorf("%w: %d", sharedset.ErrUnreadable, i),
			})
			time.Sleep(time.Second)
		}
		if failed := r.failed(); failed == nil || strings.Count(failed.Error(), "\n") != 59 {
			r.Error("OnError was not called for each:", failed)
		}
		r.partitions("t:0")
		lines := since(log, first)
		if len(lines) != 7 || !strings.Contains(lines[0], "level=WARN msg=failed kind=set error=") ||
			!strings.Contains(lines[1], "still failing") || lines[6] != "level=INFO msg=recovered kind=set after=1m0s errors=60" {
			r.Errorf("logged\n%s", strings.Join(lines, "\n"))
		}
	})
}
