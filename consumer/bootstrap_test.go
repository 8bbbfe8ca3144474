package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
)

// slowClient is a client of the user that looks for the coordinator for a time.
type slowClient struct {
	sarama.Client
	takes time.Duration
}

func (c slowClient) RefreshCoordinator(string) error {
	time.Sleep(c.takes)
	return nil
}

// Close waits for the user's client while it looks for brokers, so that the program may close the client then, but not for long:
// nothing ends that look.
func TestCloseWaitsForTheUsersClient(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{
		closingGrace / 2: closingGrace / 2,
		time.Minute:      closingGrace,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil, nil)
			r.group.brokers = &bootstrap{group: "g", client: slowClient{takes: takes}}
			r.leave(nil)
			close(r.done)
			r.group.brokers.ask()
			began := time.Now()
			if err := r.group.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("the client takes %v: closed after %v, want %v", takes, took, want)
			}
			time.Sleep(takes)
		})
	}
}
