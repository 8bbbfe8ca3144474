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

// EndWithTheirContext checks calls without a connection: each ends when its context does, with why that ended, and says
// which path it was about. No such call was sent, so none is uncertain. The cause is an error of another call, which is
// neither returned for its own nor changed. It belongs in a bubble.
func EndWithTheirContext(tb testing.TB, path string, calls map[string]func(ctx context.Context) error) {
	tb.Helper()
	for what, call := range calls {
		why := &recipe.BlockedError{Recipe: "another", Path: "/another", Blocker: "/another/1", Err: errors.New("enough")}
		before := *why
		ctx, cancel := context.WithTimeoutCause(tb.Context(), time.Second, why)
		start := time.Now()
		err := call(ctx)
		if d := time.Since(start); d != time.Second {
			tb.Errorf("%s: ended after %v", what, d)
		}
		if !errors.Is(err, why) || errors.Is(err, session.ErrUncertain) || !strings.Contains(err.Error(), path) {
			tb.Errorf("%s: %v", what, err)
		}
		if err == error(why) || *why != before { //nolint:errorlint // it may wrap it
			tb.Errorf("%s: the error of another call: %v, was %v", what, err, &before)
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
		tb.Fatalf("the incarnation ended with %v", cause)
	}
	link.Heal()
}

// Trouble is what happens to clients at random. It belongs in a bubble.
type Trouble struct {
	Server  *zktest.Server
	Network *zktest.Network
	Clients []string
	Seed    uint64

	Pause  time.Duration                 // from one fault to the next, at most
	Delay  time.Duration                 // of a slow link, at most
	Losses int                           // of replies in a row, at most
	Lose   []func(r zktest.Request) bool // whose replies are lost, those of one at a time
	More   []func(random *rand.Rand)     // what else happens
}

// Until has trouble until the context ends, and then none.
func (t *Trouble) Until(ctx context.Context) {
	random := rand.New(rand.NewPCG(t.Seed, 1<<63)) //nolint:gosec // a failure must come again
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

func (t *Trouble) one(random *rand.Rand) *zktest.Client {
	return t.Network.Client(t.Clients[random.IntN(len(t.Clients))])
}

func (t *Trouble) heal() {
	for _, name := range t.Clients {
		t.Network.Client(name).Heal()
	}
}

func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.IntN(int(d/time.Millisecond))) * time.Millisecond
}
