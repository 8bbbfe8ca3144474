package hold

import (
	"context"
	"time"

	"github.com/kielgo/kiel/internal/pause"
)

// kindRefused is the kind of the errors in the log that are outlasted.
const kindRefused = "refused"

// Refusals outlasts what the servers refuse, by an ACL or a quota for instance, in work that goes on for long. Between two
// attempts it makes pauses that grow from 100 ms to 5 s. One goroutine uses it.
type Refusals struct {
	log    refusalLog
	about  string
	pauses pause.Backoff
}

// refusalLog is where refusals are told, and that they are over: an errlog.Log.
type refusalLog interface {
	FailedWarn(kind, about string, err error, attrs ...any)
	OK(kind, about string)
}

// NewRefusals returns Refusals of one kind of attempts, which the log calls about.
func NewRefusals(log refusalLog, about string) *Refusals {
	return &Refusals{log: log, about: about, pauses: pause.Backoff{Growth: pause.Doubling(100*time.Millisecond, 5*time.Second)}}
}

// Outlast reports whether err, which an attempt in ctx has returned, is a refusal that may be over at the next attempt. If so, it
// logs err and waits until it is time for that attempt, or until ctx ends: then that attempt returns its cause.
func (r *Refusals) Outlast(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !Refused(err) {
		return false
	}
	r.log.FailedWarn(kindRefused, r.about, err)
	_ = pause.Sleep(ctx, pause.Jitter(r.pauses.Next())) // the next attempt returns the cause
	return true
}

// Over says that an attempt was not refused: the next pause is the shortest again.
func (r *Refusals) Over() {
	r.pauses.Reset()
	r.log.OK(kindRefused, r.about)
}
