package ownership

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// The kinds of troubles, as logs and Status name them.
const (
	troubleClaim      = "claim"            // a claim was refused
	troubleRelease    = "release"          // a release was refused
	troubleUnsure     = "verify"           // a request without an answer: the claim is possibly ours
	troubleSweep      = "sweep"            // the claims could not be listed
	troubleVanished   = "vanished"         // a third party changed a claim's znodes
	troubleHeld       = "held"             // another member's claim has existed for long
	troublePersistent = "persistent-claim" // a persistent znode is in a claim's place
	troubleForeign    = "foreign-claim"    // an ephemeral znode that is no member's is in a claim's place
	troubleRoom       = "room"             // the session has no room for claims
	troubleUnclaimed  = "unclaimed"        // refused by Accept, or by the name
	troubleHandler    = "handler"          // a handler failed
	troubleStuck      = "stuck"            // a handler does not return
	troubleCallback   = "callback"         // a callback does not return
)

// failed reports an error: in the log, unless it had many of the kind lately, and to OnError.
func (l *loop) failed(kind, about string, err error) {
	if _, ok := err.(*StuckError); !ok { //nolint:errorlint // not what it wraps: that one names the package itself
		err = exported(err)
	}
	l.report(kind, about, err)
}

func (l *loop) report(kind, about string, err error) {
	l.o.troubles.Failed(kind, about, err)
	l.o.users.report(err)
}

// failedPart is failed for an error of one partition.
func (l *loop) failedPart(kind string, id kiel.Partition, err error) {
	l.report(kind, id.String(), &PartitionError{Partition: id, Err: exported(err)})
}

// warn logs what is put right without the user.
func (l *loop) warn(kind, about string, err error) {
	l.o.troubles.FailedWarn(kind, about, exported(err))
}

// recovered ends the trouble of that kind, if there is any.
func (l *loop) recovered(kind, about string) { l.o.troubles.OK(kind, about) }

// reportRoom tells of the partitions for which the session has no room.
func (l *loop) reportRoom() {
	l.count()
	switch full := l.counts[noRoom]; full {
	case l.fullTold:
	case 0:
		l.recovered(troubleRoom, "")
	default:
		l.o.metrics.claimFailed.Inc()
		l.failed(troubleRoom, "", operr.Because(fmt.Errorf("%w: %d partitions", ErrUnclaimed, full), session.ErrEphemeralBudget))
	}
	l.fullTold = l.counts[noRoom]
}

// setLevel sets the level of the lines about partitions that move at once.
func (l *loop) setLevel(parts []*part) {
	level := slog.LevelInfo
	if len(parts) > errlog.MaxLines {
		level = slog.LevelDebug
	}
	for _, p := range parts {
		p.level = level
	}
}

// limitVanished is setLevel for a claim that has vanished, with the others of the last seconds.
func (l *loop) limitVanished(p *part) {
	if time.Since(l.vanishedAt) > 10*time.Second {
		l.vanishedAt, l.vanishedCount = time.Now(), 0
	}
	l.vanishedCount++
	p.level = slog.LevelInfo
	if l.vanishedCount > errlog.MaxLines {
		p.level = slog.LevelDebug
	}
}
