package consumer_test

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLeaderThatSettles: that a partition has no leader for a moment, as when its topic is new, is no error, as with sarama:
// opening is tried again as often as Config.Metadata.Retry.Max allows before that is reported.
func TestLeaderThatSettles(t *testing.T) {
	for name, c := range map[string]struct {
		fails  int // tries, each of which asks twice
		err    *kerr.Error
		report bool
	}{
		"as often as allowed": {fails: 3, err: kerr.NotLeaderForPartition},
		"no leader":           {fails: 3, err: kerr.LeaderNotAvailable},
		"for longer":          {fails: 4, err: kerr.NotLeaderForPartition, report: true},
		"something else":      {fails: 1, err: kerr.UnknownServerError, report: true},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, 1, func(t *testing.T, r *rig) {
				r.produce(10, 0)
				fault := r.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: topic, Err: c.err, Count: 2 * c.fails})
				a := r.member("a", nil).start()
				until(t, "all messages", func() bool { return total(a) == 10 })
				fault.Remove()
				errs := a.errors()
				if (len(errs) > 0) != c.report {
					t.Errorf("errors: %v, want some: %t", errs, c.report)
				}
				for _, err := range errs {
					if _, ok := errors.AsType[*sarama.ConsumerError](err); !ok {
						t.Errorf("%T: %v", err, err)
					}
				}
				a.leave()
			})
		})
	}
}
