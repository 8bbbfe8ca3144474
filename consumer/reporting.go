package consumer

import (
	"errors"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
)

// The kinds of errors in the log and in the status, beside those of package fetch.
const (
	kindCleanup  = "cleanup"       // Cleanup has returned an error
	kindCommit   = "commit"        // offsets can't be stored
	kindFence    = "fence"         // Fence has returned an error
	kindFetch    = "fetch"         // a partition can't be read
	kindHandler  = "handler"       // a handler has returned by itself, or panicked
	kindKafka    = "kafka"         // no broker answers
	kindHeldBack = "held-back"     // messages of a partition are not handed out because an old one is not marked
	kindMember   = "member"        // the member has left with an error that no call returns
	kindMetadata = "metadata"      // the topics can't be described
	kindMissing  = "missing-topic" // Kafka does not have a topic any more
	kindOffsets  = "offsets"       // stored offsets, or the first or the last offset of a partition, can't be read
	kindShared   = "shared"        // others store offsets of partitions that this member owns
	kindText     = "text"          // the metadata of marks are too long for Kafka, so they are lost
	kindTree     = "tree"          // the group's znode can't be identified
	kindSet      = "set"           // the group's set can't be changed
	kindZones    = "zones"         // the zones can't be written, or a rack is no valid zone
)

// Errors returns the channel of errors that no Consume returns, if Config.Consumer.Return.Errors is true. Errors of partitions
// are *sarama.ConsumerError. The log has all these errors, too: of each kind the first at once, then one line in 10 s with a
// count, and a line "recovered" when the errors have ended. When nobody reads the channel, the oldest errors are dropped and
// counted.
//
// From the beginning of Close on, errors are not sent, as with a group of sarama, but counted and logged at Debug. Two errors are
// still sent: a callback is stuck, and the member could not leave while no Consume returns that. Close closes the channel.
func (g *Group) Errors() <-chan error { return g.errs.ch }

// failed logs an error and sends it to the user, unless Close was called. about is what has failed, such as a partition, or "".
// failed does not block.
func (g *Group) failed(kind, about string, err error) {
	if g.isClosed() {
		g.drop(err)
		return
	}
	g.log.Failed(kind, about, err)
	g.send(err)
}

// pass sends an error that is in the log already to the user, unless Close was called. It does not block.
func (g *Group) pass(err error) {
	if g.isClosed() {
		g.drop(err)
		return
	}
	g.send(err)
}

// drop counts and logs an error that is not sent to the user, because Close was called.
func (g *Group) drop(err error) {
	g.metrics.late.WithLabelValues(lateError).Inc()
	g.settings.log.Debug("error came too late", "error", err)
}

// send puts an error into the channel Errors. It does not block.
func (g *Group) send(err error) {
	if g.settings.config.Consumer.Return.Errors {
		g.errs.put(err)
	}
}

// isClosed returns whether Close was called.
func (g *Group) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// failed logs an error of a partition and sends it to the user, unless Close was called.
func (m *membership) failed(kind string, err error, p kiel.Partition) {
	if !m.group.isClosed() {
		m.group.log.Failed(kind, p.String(), err)
	}
	m.pass(err, p)
}

// pass sends an error of a partition that is in the log already to the user, unless Close was called.
func (m *membership) pass(err error, p kiel.Partition) { m.group.pass(ofPartition(err, p)) }

// works ends the errors of these kinds about a partition in the log.
func (m *membership) works(p kiel.Partition, kinds ...string) {
	if !m.group.log.Failing() {
		return
	}
	about := p.String()
	for _, kind := range kinds {
		m.group.log.OK(kind, about)
	}
}

// reportText reports that the metadata of a mark are lost, the first time for each opening to the user. nil says that those of a
// later mark were stored.
func (m *membership) reportText(p kiel.Partition, err error, first bool) {
	if err == nil {
		m.works(p, kindText)
		return
	}
	if !m.group.isClosed() {
		m.group.log.FailedWarn(kindText, p.String(), err)
	}
	if first {
		m.pass(err, p)
	}
}

// ofPartition returns err as a *sarama.ConsumerError.
func ofPartition(err error, p kiel.Partition) error {
	if _, ok := errors.AsType[*sarama.ConsumerError](err); ok {
		return err
	}
	return &sarama.ConsumerError{Topic: p.Topic, Partition: p.ID, Err: err}
}
