package topics

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/zones"
)

// racksOf returns the racks of brokers that have one.
func racksOf(brokers []*sarama.Broker) map[int32]string {
	racks := map[int32]string{}
	for _, b := range brokers {
		if b.Rack() != "" {
			racks[b.ID()] = b.Rack()
		}
	}
	return racks
}

// preferredRacks returns the racks of the preferred leaders of a topic's partitions. The preferred leader is a partition's first
// replica and, unlike the leader, stays when brokers are restarted. Kafka does not name brokers that are down, so the racks of
// their partitions are unknown for a while.
func preferredRacks(topic *sarama.TopicMetadata, racks map[int32]string) map[int32]string {
	if len(racks) == 0 {
		return nil
	}
	out := map[int32]string{}
	for _, p := range topic.Partitions {
		if len(p.Replicas) > 0 && racks[p.Replicas[0]] != "" {
			out[p.ID] = racks[p.Replicas[0]]
		}
	}
	return out
}

// ZoneWriter writes the zones of the group's partitions, according to Kafka's answers to this member. Kafka may answer members
// differently, for a moment or for long. So that they do not overwrite each other for ever, a member writes a partition's zone
// only at its first answer, when its answer has changed, and when the group has no zone. It never writes because the group has
// another zone. So the number of writes is bounded by the number of members that start and of changes that they see.
type ZoneWriter struct {
	Kafka  func() map[kiel.Partition]string                                   // returns the racks that Kafka's answers have
	Group  func() map[kiel.Partition]string                                   // returns the group's zones, as read last
	Update func(ctx context.Context, changes map[kiel.Partition]string) error // writes zones of the group

	written map[kiel.Partition]string // the zones that this member has written
}

// look uses cached metadata; its only request is a write.
func (w *ZoneWriter) look(ctx context.Context) error {
	racks, refused := checkRacks(w.Kafka())
	has := w.Group()
	changes := map[kiel.Partition]string{}
	for p, zone := range racks {
		if w.written[p] != zone || has[p] == "" {
			changes[p] = zone
		}
	}
	if len(changes) == 0 {
		return refused
	}
	if err := w.Update(ctx, changes); err != nil {
		return errors.Join(refused, operr.New("consumer", "", "", err)) // written stays, so the next look writes again
	}
	if w.written == nil {
		w.written = map[kiel.Partition]string{}
	}
	maps.Copy(w.written, changes)
	return refused
}

// checkRacks removes the racks that are no valid zones, and returns an error that names them.
func checkRacks(racks map[kiel.Partition]string) (map[kiel.Partition]string, error) {
	faults := map[string]error{}
	for _, rack := range racks {
		if _, ok := faults[rack]; !ok {
			faults[rack] = zones.Check(rack)
		}
	}
	var errs []error
	for _, rack := range slices.Sorted(maps.Keys(faults)) {
		if err := faults[rack]; err != nil {
			errs = append(errs, operr.New("consumer", "rack of Kafka's brokers", "", err))
		}
	}
	if len(errs) > 0 {
		maps.DeleteFunc(racks, func(_ kiel.Partition, rack string) bool { return faults[rack] != nil })
	}
	return racks, errors.Join(errs...)
}

// Run calls look at once and whenever Kafka was asked, until ctx ends. It reports each change of look's error; nil says that the
// error has ended.
func (w *ZoneWriter) Run(ctx context.Context, asked <-chan struct{}, report func(error)) {
	last := ""
	for {
		err := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != last {
			report(err)
		}
		last = text
		select {
		case <-asked:
		case <-ctx.Done():
			return
		}
	}
}
