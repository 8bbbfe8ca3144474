package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
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

// preferredRacks returns the racks of the preferred leaders of a topic's partitions: of each partition's first replica. Unlike
// the leader, it stays when brokers are restarted. A broker that is down is not among those that Kafka names, so of its
// partitions nothing is known for a while.
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

// zoneKeeper tells the group in which zones its partitions are, as Kafka tells this member. Members may be told different
// things, for a moment or for long. So that they do not write against each other for ever, each writes a partition's zone when
// it has seen it for the first time, when it has seen it change, and when the group has none; never because the group has
// another. The number of writes is bounded by that of members that start and of changes that they see.
type zoneKeeper struct {
	kafka  func() map[kiel.Partition]string // what Kafka says, if it says something
	group  func() map[kiel.Partition]string // what the group has, as read last
	update func(ctx context.Context, changes map[kiel.Partition]string) error

	told map[kiel.Partition]string // what Kafka said when it was written last, or was so already
}

// look uses cached metadata; its only request is a write.
func (k *zoneKeeper) look(ctx context.Context) error {
	said, refused := checkRacks(k.kafka())
	has := k.group()
	changes := map[kiel.Partition]string{}
	for p, zone := range said {
		if k.told[p] != zone || has[p] == "" {
			changes[p] = zone
		}
	}
	if len(changes) == 0 {
		return refused
	}
	if err := k.update(ctx, changes); err != nil {
		return errors.Join(refused, fmt.Errorf("consumer: %w", err)) // told stays, so it is tried again
	}
	if k.told == nil {
		k.told = map[kiel.Partition]string{}
	}
	maps.Copy(k.told, changes)
	return refused
}

// checkRacks leaves out racks that can be no zones.
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
			errs = append(errs, fmt.Errorf("consumer: rack of Kafka's brokers: %w", err))
		}
	}
	if len(errs) > 0 {
		maps.DeleteFunc(racks, func(_ kiel.Partition, rack string) bool { return faults[rack] != nil })
	}
	return racks, errors.Join(errs...)
}

// run looks, and again whenever Kafka was asked, until ctx ends. An error is reported once until it changes; nil is when it has gone.
func (k *zoneKeeper) run(ctx context.Context, asked <-chan struct{}, report func(error)) {
	last := ""
	for {
		err := k.look(ctx)
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

// zonesFailed reports what the zoneKeeper's last look came to.
func (m *membership) zonesFailed(err error) {
	if err == nil {
		m.group.log.OK(kindZones, "")
		return
	}
	m.group.failed(kindZones, "", err)
}
