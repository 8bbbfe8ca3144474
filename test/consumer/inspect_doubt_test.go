package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

// resetTo stores offsets, and returns what was said of that.
func (r *rig) resetTo(to string, partitions ...int32) (*inspect.ResetResult, error) {
	r.t.Helper()
	return r.inspector("").ResetOffsets(r.t.Context(), group, inspect.Reset{Topic: topic, Partitions: partitions, To: target(r.t, to), Write: true})
}

// The offset that is stored of a topic which was created again says nothing of the new one: shifted, it would skip the new one's
// messages.
func TestResetShiftsNothingOfAFormerTopic(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.used()
		stored := r.kafka.GroupInfo(group).Commits[topic][0]
		r.deleteTopic(topic)
		r.createTopic(topic, 2)
		r.commitAs(stored.Metadata, 0, stored.Offset) // as a commit that was on its way
		r.produce(3, 0, 1)
		if result, err := r.resetTo("-2", 0); err == nil || !strings.Contains(err.Error(), "former topic") {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// Members of another ensemble can't be seen here. What they have stored can.
func TestResetOfAnotherTree(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		for _, path := range []string{"/deep", "/deep/down"} {
			mustCreate(r, path)
		}
		a, _, _ := r.under("/deep/down/below", "a")
		a.start()
		r.produce(10, 0, 1)
		until(t, "all is committed", func() bool { return r.committed(topic, 0) == 10 && r.committed(topic, 1) == 10 })
		for _, path := range []string{"/kiel", "/kiel/groups", "/kiel/groups/g"} {
			mustCreate(r, path)
		}
		result, err := r.resetTo("start")
		if err == nil || !strings.Contains(err.Error(), "another ZooKeeper tree") {
			t.Errorf("%+v, %v", result, err)
		}
		if got := r.committed(topic, 0); got != 10 {
			t.Errorf("stored %d while a member of another tree consumes", got)
		}
		quit(a)
	})
}

// Kafka refuses one of two offsets: the result says which, and that the other is stored.
func TestResetInPart(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.used()
		r.refuse(kmsg.OffsetCommit, kerr.TopicAuthorizationFailed, 1)
		result, err := r.resetTo("end")
		if err == nil || result == nil || result.Written {
			t.Fatalf("%+v, %v", result, err)
		}
		data, _ := json.Marshal(result)
		if text := string(data); strings.Count(text, `"error"`) != 1 || !strings.Contains(text, `"partition":1,"start":0,"end":10,"from":10,"to":10,"error":`) {
			t.Errorf("which is stored? %s, %v", text, err)
		}
	})
}

// A partition of which no broker says anything is not well.
func TestInspectWithoutLeader(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "a owns both", func() bool { return len(a.owns()) == 2 })
		r.produce(3, 0, 1)
		until(t, "all is committed", func() bool { return r.committed(topic, 0) == 3 && r.committed(topic, 1) == 3 })
		r.refuse(kmsg.ListOffsets, kerr.LeaderNotAvailable)
		report := r.doctor(r.inspector(""))
		if !slices.ContainsFunc(report.Findings, func(f inspect.Finding) bool {
			return f.Severity == inspect.Problem && slices.Contains(f.Objects, "t:1")
		}) {
			t.Errorf("all well without a leader: %+v", report.Findings)
		}
		quit(a)
	})
}

// Members that read uncommitted messages pass the beginning of a long transaction, which is the end for who looks and reads
// committed ones alone.
func TestInspectReadCommitted(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "a owns both", func() bool { return len(a.owns()) == 2 })
		r.produce(9, 0, 1)
		until(t, "all is committed", func() bool { return r.committed(topic, 0) == 9 && r.committed(topic, 1) == 9 })
		r.kafka.ControlKey(int16(kmsg.ListOffsets), func(q kmsg.Request) (kmsg.Response, error, bool) {
			r.kafka.KeepControl()
			req := q.(*kmsg.ListOffsetsRequest)
			if req.IsolationLevel == 0 {
				return nil, nil, false
			}
			resp := q.ResponseKind().(*kmsg.ListOffsetsResponse)
			for _, rt := range req.Topics {
				one := kmsg.NewListOffsetsResponseTopic()
				one.Topic = rt.Topic
				for _, p := range rt.Partitions {
					rp := kmsg.NewListOffsetsResponseTopicPartition()
					rp.Partition, rp.Offset = p.Partition, 4 // where the transaction begins
					one.Partitions = append(one.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, one)
			}
			return resp, nil, true
		})
		config := r.config()
		config.Consumer.IsolationLevel = sarama.ReadCommitted
		report := r.doctor(r.inspectorBy("", config))
		if len(report.Findings) > 0 || report.Partitions[0].Kafka.Waiting != 0 || report.Partitions[0].Kafka.End != 9 {
			t.Errorf("%+v, %+v", report.Findings, report.Partitions[0].Kafka)
		}
		quit(a)
	})
}

// Without Kafka, doctor still looks twice: a partition that is claimed a moment later is no problem.
func TestInspectLooksTwiceWithoutKafka(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", nil).start()
		until(t, "a owns both", func() bool { return len(a.owns()) == 2 })
		in, err := inspect.Open(t.Context(), inspect.Sources{
			Servers: []string{zktest.VirtualAddress}, Session: session.Options{Dial: r.zknet.Client("operator").Dial},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close(context.WithoutCancel(t.Context()))
		if err := r.zk.Delete(ownersPath + "/t:0"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		report, err := in.Look(t.Context(), group, inspect.Options{Window: window})
		if err != nil || len(report.Findings) > 0 || time.Since(began) < window {
			t.Errorf("after %v: %+v, %v", time.Since(began), report.Findings, err)
		}
		quit(a)
	})
}

// This group's members are looked at last before the write: one that joins while other chroots are listed is seen.
func TestResetLooksForMembersLast(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		r.used()
		in := r.inspector("")
		lists := 0
		r.zk.SetHook(func(q *zktest.Request) zktest.Action {
			if q.Client == "operator" && q.Path == "/" {
				if lists++; lists == 2 {
					mustCreate(r, membersPath+"/late")
				}
			}
			return zktest.Action{}
		})
		_, err := in.ResetOffsets(t.Context(), group, inspect.Reset{Topic: topic, To: target(t, "end"), Write: true})
		if !errors.Is(err, inspect.ErrInUse) || errors.Is(err, inspect.ErrChanged) {
			t.Errorf("got %v", err)
		}
	})
}
