package consumer

import (
	"errors"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
)

// The kinds of errors in the log and in the status, beside those of package fetch.
const (
	kindCleanup  = "cleanup"       // what Cleanup has returned
	kindCommit   = "commit"        // offsets can't be stored
	kindFence    = "fence"         // what Fence has returned
	kindFetch    = "fetch"         // a partition can't be read
	kindHandler  = "handler"       // a handler has returned, or panicked
	kindKafka    = "kafka"         // no broker answers
	kindHeldBack = "held-back"     // messages of a partition are not handed out because an old one is not marked
	kindMember   = "member"        // why the member has left, when no call returns that
	kindMetadata = "metadata"      // the topics can't be described
	kindMissing  = "missing-topic" // Kafka does not have a topic any more
	kindOffsets  = "offsets"       // stored offsets, or the first or the last offset of a partition, can't be read
	kindSet      = "set"           // the group's set can't be changed
	kindZones    = "zones"         // the zones can't be written, or racks can be no zones
)

// Errors returns the errors that no Consume returns, those of partitions as
// *sarama.ConsumerError, when Config.Consumer.Return.Errors is true. The log has them in any case: of
// one kind the first at once, then one line in 10 s with a count, and a line when all works again. When
// nobody reads, the oldest are dropped and counted. From the beginning of
// Close on, errors are dropped as by a group of sarama, counted and logged at Debug, but
// for what is stuck, and why the member could not leave when no Consume returns that. Close
// closes the channel.
func (g *Group) Errors() <-chan error { return g.errs.ch }

// failed logs an error and hands it to the user, before the beginning of Close. about is what has failed, such as a partition, or "".
// It does not block.
func (g *Group) failed(kind, about string, err error) {
	if g.isClosed() {
		g.drop(err)
		return
	}
	g.log.Failed(kind, about, err)
	g.send(err)
}

// pass hands an error that is in the log already to the user, before the beginning of Close. It does not block.
func (g *Group) pass(err error) {
	if g.isClosed() {
		g.drop(err)
		return
	}
	g.send(err)
}

// drop counts and logs an error that comes too late for the user.
func (g *Group) drop(err error) {
	g.metrics.late.WithLabelValues(lateError).Inc()
	g.settings.log.Debug("error came too late", "error", err)
}

// send hands an error to the user. It does not block.
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

// failed logs an error of a partition and hands it to the user.
func (m *membership) failed(kind string, err error, p kiel.Partition) {
	if !m.group.isClosed() {
		m.group.log.Failed(kind, p.String(), err)
	}
	m.pass(err, p)
}

// pass hands an error of a partition that is in the log already to the user.
func (m *membership) pass(err error, p kiel.Partition) { m.group.pass(ofPartition(err, p)) }

// works notes that what is of these kinds works for a partition.
func (m *membership) works(p kiel.Partition, kinds ...string) {
	if !m.group.log.Failing() {
		return
	}
	about := p.String()
	for _, kind := range kinds {
		m.group.log.OK(kind, about)
	}
}

// ofPartition returns err in sarama's shape.
func ofPartition(err error, p kiel.Partition) error {
	if _, ok := errors.AsType[*sarama.ConsumerError](err); ok {
		return err
	}
	return &sarama.ConsumerError{Topic: p.Topic, Partition: p.ID, Err: err}
}
