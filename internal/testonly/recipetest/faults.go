package recipetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/recipe"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// EndWithTheirContext checks calls without a connection. Each call returns when its context ends, with an error that wraps the
// cause and names the path. No such call was sent, so none is uncertain. The cause here is an error of another call; a call must
// neither return it as its own nor change it. EndWithTheirContext belongs in a bubble.
func EndWithTheirContext(tb testing.TB, path string, calls map[string]func(ctx context.Context) error) {
	tb.Helper()
	for what, call := range calls {
		why := &recipe.BlockedError{Recipe: "another", Path: "/another", Blocker: "/another/1", Err: errors.New("enough")}
		before := *why
		ctx, cancel := context.WithTimeoutCause(tb.Context(), time.Second, why)
		start := time.Now()
		err := call(ctx)
		if d := time.Since(start); d != time.Second {
			tb.Errorf("%s: returned after %v", what, d)
		}
		if !errors.Is(err, why) || errors.Is(err, session.ErrUncertain) || !strings.Contains(err.Error(), path) {
			tb.Errorf("%s: %v", what, err)
		}
		if err == error(why) || *why != before { //nolint:errorlint // err may wrap why, but must not be it
			tb.Errorf("%s: returned the error of another call, %v, or changed it from %v", what, err, &before)
		}
		cancel()
	}
}

// LoseTrust breaks a client's link until trust ends, and heals it before the session expires.
func LoseTrust(tb testing.TB, link *zktest.Client, inc *session.Incarnation) {
	tb.Helper()
	link.BlackHole(zktest.Both)
	<-inc.Context().Done()
	if cause := context.Cause(inc.Context()); !errors.Is(cause, session.ErrTrustLost) {
		tb.Fatalf("the incarnation ended with %v, not with ErrTrustLost", cause)
	}
	link.Heal()
}

// Trouble makes random faults. It belongs in a bubble.
type Trouble struct {
	Server  *zktest.Server
	Network *zktest.Network
	Clients []string // the clients whose links fail
	Seed    uint64   // the seed of the random choices

	Pause  time.Duration                 // the longest time between two faults
	Delay  time.Duration                 // the longest delay of a slow link
	Losses int                           // the most replies that are lost in a row
	Lose   []func(r zktest.Request) bool // predicates of requests; each loss takes one of them
	More   []func(random *rand.Rand)     // more faults
}

// Until makes faults until the context ends, and then ends all faults.
func (t *Trouble) Until(ctx context.Context) {
	random := rand.New(rand.NewPCG(t.Seed, 1<<63))
	kinds := append([]func(*rand.Rand){
		func(*rand.Rand) { t.one(random).Cut() },
		func(*rand.Rand) { t.one(random).BlackHole(zktest.Direction(1 + random.IntN(3))) },
		func(*rand.Rand) { t.one(random).Delay(upTo(random, t.Delay)) },
		func(*rand.Rand) { t.Server.LoseReply(1+random.IntN(t.Losses), t.Lose[random.IntN(len(t.Lose))]) },
		func(*rand.Rand) { t.one(random).Heal() },
		func(*rand.Rand) { t.heal() },
	}, t.More...)
	for ctx.Err() == nil {
		<-time.After(upTo(random, t.Pause))
		kinds[random.IntN(len(kinds))](random)
	}
	t.Server.LoseReply(0, nil)
	t.heal()
}

// one returns a client at random.
func (t *Trouble) one(random *rand.Rand) *zktest.Client {
	return t.Network.Client(t.Clients[random.IntN(len(t.Clients))])
}

// heal ends the faults of all links.
func (t *Trouble) heal() {
	for _, name := range t.Clients {
		t.Network.Client(name).Heal()
	}
}

// upTo returns a random time of less than d, in whole milliseconds.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.IntN(int(d/time.Millisecond))) * time.Millisecond
}
