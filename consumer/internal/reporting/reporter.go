package reporting

import (
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/operr"
)

// The kinds of errors in the log and in the status, beside those of package fetch.
const (
	KindBroker   = "broker"        // requests to a broker fail; package fetch reports it
	KindCleanup  = "cleanup"       // Cleanup has returned an error
	KindCommit   = "commit"        // offsets can't be stored
	KindFence    = "fence"         // Fence has returned an error
	KindFetch    = "fetch"         // a partition can't be read
	KindHandler  = "handler"       // a handler has returned by itself, or panicked
	KindKafka    = "kafka"         // no broker answers
	KindHeldBack = "held-back"     // messages of a partition are not handed out because an old one is not marked
	KindMember   = "member"        // the member has left by itself, or could not join
	KindMetadata = "metadata"      // the topics can't be described
	KindMissing  = "missing-topic" // Kafka does not have a topic any more
	KindOffsets  = "offsets"       // stored offsets, or the first or the last offset of a partition, can't be read
	KindShared   = "shared"        // others store offsets of partitions that this member owns
	KindStands   = "stands"        // a handler takes no further message, though it has one or one waits
	KindUnmarked = "unmarked"      // a handler has marked none of its messages
	KindText     = "text"          // the metadata of marks are too long for Kafka, so they are lost
	KindTree     = "tree"          // the group's znode can't be identified
	KindSet      = "set"           // the group's set can't be changed
	KindZones    = "zones"         // the zones can't be written, or a rack is no valid zone
)

// Reporter logs the errors of a group that no call returns, and sends them to the program if it wants them. Its methods may be
// called from any goroutine, and do not block.
type Reporter struct {
	Log    *errlog.Log  // the lines of errors that repeat
	Logger *slog.Logger // the lines of errors that came too late
	Late   func()       // counts an error that came too late

	errs    *queue
	sends   bool // the program wants errors
	closing atomic.Bool
}

// New returns a Reporter, whose other fields the caller sets. With sends it sends errors to a channel with room for size of them.
// When the channel is full the oldest error is dropped, and dropped is called.
func New(sends bool, size int, dropped func()) *Reporter {
	return &Reporter{errs: newQueue(size, dropped), sends: sends}
}

// Errors returns the channel to which errors are sent. Close closes it.
func (r *Reporter) Errors() <-chan error { return r.errs.ch }

// Closing has later errors dropped: they are counted and logged at Debug.
func (r *Reporter) Closing() { r.closing.Store(true) }

// Close closes the channel of Errors.
func (r *Reporter) Close() { r.errs.close() }

// Failed logs an error and sends it to the program, unless Closing was called. about is what has failed, such as a partition, or
// "".
func (r *Reporter) Failed(kind, about string, err error) {
	if r.closing.Load() {
		r.Drop(err)
		return
	}
	r.Log.Failed(kind, about, err)
	r.SendEvenAfterClose(err)
}

// Send sends an error that is in the log already to the program, unless Closing was called.
func (r *Reporter) Send(err error) {
	if r.closing.Load() {
		r.Drop(err)
		return
	}
	r.SendEvenAfterClose(err)
}

// SendEvenAfterClose sends an error that is in the log already to the program, also after Closing, but not after Close.
func (r *Reporter) SendEvenAfterClose(err error) {
	if r.sends {
		r.errs.put(err)
	}
}

// Drop counts and logs an error that came too late to be sent.
func (r *Reporter) Drop(err error) {
	r.Late()
	r.Logger.Debug("error came too late", "error", err)
}

// FailedOf logs an error of a partition and sends it to the program, unless Closing was called.
func (r *Reporter) FailedOf(p kiel.Partition, kind string, err error) {
	if !r.closing.Load() {
		r.Log.Failed(kind, p.String(), err)
	}
	r.SendOf(p, err)
}

// SendOf sends an error of a partition that is in the log already to the program, unless Closing was called.
func (r *Reporter) SendOf(p kiel.Partition, err error) { r.Send(OfPartition(err, p)) }

// Works ends the errors of these kinds about a partition in the log.
func (r *Reporter) Works(p kiel.Partition, kinds ...string) {
	if !r.Log.Failing() {
		return
	}
	about := p.String()
	for _, kind := range kinds {
		r.Log.OK(kind, about)
	}
}

// Text reports that the metadata of a mark are lost; if first, also to the program. nil says that those of a later mark were
// stored.
func (r *Reporter) Text(p kiel.Partition, err error, first bool) {
	if err == nil {
		r.Works(p, KindText)
		return
	}
	if !r.closing.Load() {
		r.Log.FailedWarn(KindText, p.String(), err)
	}
	if first {
		r.SendOf(p, err)
	}
}

// OfPartition returns err as a *sarama.ConsumerError.
func OfPartition(err error, p kiel.Partition) error {
	if _, ok := errors.AsType[*sarama.ConsumerError](err); ok {
		return err
	}
	return &sarama.ConsumerError{Topic: p.Topic, Partition: p.ID, Err: err}
}

// Refused returns the error for a topic or group that Kafka has refused for a while. The text says what the ACLs must allow.
func Refused(what, name string, lasted time.Duration, err error) error {
	if lasted > 0 {
		err = operr.New("", "refused for", lasted.Round(time.Second).String(), err)
	}
	return operr.New("consumer", "Kafka's ACLs must allow READ on "+what, strconv.Quote(name), err)
}
