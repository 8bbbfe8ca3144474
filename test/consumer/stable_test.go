package consumer_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// An offset that a transaction is about to store is waited for when a partition is opened, whatever the isolation level: the
// start position, which is committed, would lower it.
func TestOpeningWaitsForATransaction(t *testing.T) {
	inRig(t, 1, func(t *testing.T, r *rig) {
		r.produce(5, 0)
		a := r.member("a", nil).start()
		until(t, "the first messages are read", func() bool { return a.h.count() == 5 })
		a.leave()
		r.produce(5, 0)
		end := r.commitInTransaction(7)
		a.start()
		time.Sleep(time.Second)
		if n := a.h.count(); n > 5 {
			t.Errorf("%d messages were handed out before the transaction has ended", n-5)
		}
		end()
		until(t, "the rest is read", func() bool { return a.h.count() >= 8 })
		time.Sleep(time.Second)
		if got := a.h.offsets(topic, 0); len(got) != 8 || got[5] != 7 {
			t.Errorf("read %v, want from 7 on", got)
		}
		quit(a)
		if errs := a.errors(); len(errs) > 0 {
			t.Errorf("reported: %v", errs)
		}
	})
}

// commitInTransaction stores an offset of partition 0 in a transaction, which end commits.
func (r *rig) commitInTransaction(offset int64) (end func()) {
	r.t.Helper()
	const id = "tx"
	c, err := kgo.NewClient(kgo.SeedBrokers(r.kafka.ListenAddrs()...), kgo.Dialer(r.knet.DialContext), kgo.TransactionalID(id),
		kgo.MaxVersions(kversion.V3_6_0())) // topics by name
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	producer, epoch, err := c.ProducerID(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, producer, epoch, group
	if resp, err := add.RequestWith(r.t.Context(), c); err != nil || resp.ErrorCode != 0 {
		r.t.Fatal(err, resp)
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = id, producer, epoch, group
	commit.Topics = []kmsg.TxnOffsetCommitRequestTopic{{
		Topic: topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: offset, LeaderEpoch: -1}},
	}}
	resp, err := commit.RequestWith(r.t.Context(), c)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return func() {
		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, producer, epoch, true
		if resp, err := end.RequestWith(r.t.Context(), c); err != nil || resp.ErrorCode != 0 {
			r.t.Fatal(err, resp)
		}
	}
}
