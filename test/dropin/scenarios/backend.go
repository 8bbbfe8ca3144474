package scenarios

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kielgo/kiel/test/wait"
)

// Backend is the Kafka and the ZooKeeper that scenarios run on.
type Backend struct {
	// Brokers and ZooKeeper are the servers' addresses.
	Brokers, ZooKeeper []string
	// Suffix is put behind the names of groups and topics, when backends have servers in common.
	Suffix string
	// Real says that this is a real Kafka.
	Real bool
	// Settle is how long a scenario waits before it observes that nothing happens.
	Settle time.Duration
	// SessionTimeout is that of the ZooKeeper sessions.
	SessionTimeout time.Duration
	// Expire makes ZooKeeper end the session of a member. It is nil where the cases that need it do not run.
	Expire func(group, member string)
}

// client returns a client for what a scenario does beside the groups.
func (b *Backend) client(t *testing.T) *kgo.Client {
	t.Helper()
	opts := []kgo.Opt{
		kgo.SeedBrokers(b.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.MaxVersions(kversion.V3_6_0()), // newer requests name topics by their ids
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// warmUp waits until Kafka stores offsets: it makes its topic for them when the first group asks for one.
func (b *Backend) warmUp(t *testing.T) {
	t.Helper()
	s := &scene{Backend: b, t: t, client: b.client(t), group: "warm-up" + b.Suffix, topic: "warm-up" + b.Suffix}
	defer s.client.Close()
	s.createTopic(s.topic, 1)
	s.commit(0)
}

// createTopic creates a topic and waits until it can be written to.
func (s *scene) createTopic(name string, partitions int32) {
	s.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(s.t.Context(), s.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.waitTopic(name, partitions)
}

// waitTopic waits until all partitions have a leader.
func (s *scene) waitTopic(name string, partitions int32) {
	s.t.Helper()
	s.until("the topic has leaders", func() bool {
		req := kmsg.NewPtrMetadataRequest()
		one := kmsg.NewMetadataRequestTopic()
		one.Topic = &name
		req.Topics = append(req.Topics, one)
		resp, err := req.RequestWith(s.t.Context(), s.client)
		if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != int(partitions) {
			return false
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 {
				return false
			}
		}
		return true
	})
}

// deleteTopic deletes a topic.
func (s *scene) deleteTopic(name string) {
	s.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic = &name
	req.Topics, req.TopicNames = append(req.Topics, one), []string{name}
	resp, err := req.RequestWith(s.t.Context(), s.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// grow gives the topic of the scenario more partitions.
func (s *scene) grow(to int32) {
	s.t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	one := kmsg.NewCreatePartitionsRequestTopic()
	one.Topic, one.Count = s.topic, to
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(s.t.Context(), s.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.waitTopic(s.topic, to)
	s.client.PurgeTopicsFromClient(s.topic) // it asks anew
}

// produce appends n messages to partitions of the scenario's topic.
func (s *scene) produce(n int, partitions ...int32) {
	s.t.Helper()
	var records []*kgo.Record
	for _, p := range partitions {
		for range n {
			records = append(records, &kgo.Record{Topic: s.topic, Partition: p, Value: []byte("value")})
		}
	}
	if err := s.client.ProduceSync(s.t.Context(), records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// deleteRecords deletes the messages of a partition before an offset.
func (s *scene) deleteRecords(partition int32, before int64) {
	s.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	one := kmsg.NewDeleteRecordsRequestTopic()
	one.Topic = s.topic
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Partition, part.Offset = partition, before
	one.Partitions = append(one.Partitions, part)
	req.Topics = append(req.Topics, one)
	for _, shard := range s.client.RequestSharded(s.t.Context(), req) {
		if shard.Err != nil {
			s.t.Fatal(shard.Err)
		}
	}
}

// commit stores an offset of partition 0 for the group of the scenario, which has no members.
func (s *scene) commit(offset int64) {
	s.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = s.group, -1
	one := kmsg.NewOffsetCommitRequestTopic()
	one.Topic = s.topic
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset = offset
	one.Partitions = append(one.Partitions, part)
	req.Topics = append(req.Topics, one)
	s.until("the offset is stored", func() bool {
		resp, err := req.RequestWith(s.t.Context(), s.client)
		return err == nil && resp.Topics[0].Partitions[0].ErrorCode == 0
	})
}

// stored returns what Kafka has for a partition: offset and metadata, -1 when nothing.
func (s *scene) stored(partition int32) (offset int64, metadata string) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = s.group
	one := kmsg.NewOffsetFetchRequestTopic()
	one.Topic, one.Partitions = s.topic, []int32{partition}
	req.Topics = append(req.Topics, one)
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = s.group
	in := kmsg.NewOffsetFetchRequestGroupTopic()
	in.Topic, in.Partitions = s.topic, []int32{partition}
	group.Topics = append(group.Topics, in)
	req.Groups = append(req.Groups, group)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also in cleanups
	defer cancel()
	resp, err := req.RequestWith(ctx, s.client)
	for err != nil && ctx.Err() == nil { // a group that is new may have no coordinator yet
		wait.Pass(s.t, 50*time.Millisecond)
		resp, err = req.RequestWith(ctx, s.client)
	}
	if err != nil {
		s.t.Errorf("offset fetch: %v", err)
		return -1, ""
	}
	if len(resp.Groups) != 1 || len(resp.Groups[0].Topics) != 1 || len(resp.Groups[0].Topics[0].Partitions) != 1 {
		return -1, ""
	}
	p := resp.Groups[0].Topics[0].Partitions[0]
	if p.Metadata != nil {
		metadata = *p.Metadata
	}
	return p.Offset, metadata
}

// kick makes Kafka forget the members of the group.
func (s *scene) kick() {
	s.t.Helper()
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{s.group}
	described, err := describe.RequestWith(s.t.Context(), s.client)
	if err != nil || len(described.Groups[0].Members) == 0 {
		s.t.Fatalf("no members: %v", err)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = s.group
	for _, m := range described.Groups[0].Members {
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = m.MemberID
		leave.Members = append(leave.Members, one)
	}
	if _, err := leave.RequestWith(s.t.Context(), s.client); err != nil {
		s.t.Fatal(err)
	}
}

// until waits until ok is true, and ends the test if that takes minutes.
func (s *scene) until(what string, ok func() bool) {
	s.t.Helper()
	wait.Until(s.t, 2*time.Minute, ok, func() string { return s.Name + " on " + s.variant.String() + ": " + what + "\n" + s.seen.String() })
}

// settle waits until what was to happen has happened.
func (s *scene) settle() { wait.Pass(s.t, s.Settle) }

// settleUntil waits until ok is true, or it surely never will be.
func (s *scene) settleUntil(ok func() bool) {
	for began := time.Now(); time.Since(began) < 5*s.Settle && !ok(); {
		wait.Pass(s.t, 20*time.Millisecond)
	}
}

// untilOn waits until ok is true on the given variants, however long that takes. On the others it never should be: there untilOn
// is settleUntil.
func (s *scene) untilOn(what string, ok func() bool, on ...Variant) {
	s.t.Helper()
	if slices.Contains(on, s.variant) {
		s.until(what, ok)
		return
	}
	s.settleUntil(ok)
}
