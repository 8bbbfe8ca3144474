package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
)

// maxWait bounds a long poll, whatever the user's configuration asks for. A
// partition that is opened while its broker's poll is under way waits for the end
// of the poll.
const maxWait = 100 * time.Millisecond

// copyConfig returns a validated copy of the user's configuration, or the
// default one.
func copyConfig(user *sarama.Config) (*sarama.Config, error) {
	if user == nil {
		user = sarama.NewConfig()
		user.ClientID = "kiel"
		user.Version = sarama.V3_6_0_0
	}
	c := *user
	c.Consumer.Interceptors = slices.Clone(c.Consumer.Interceptors)
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("option Config: %w", err)
	}
	if !c.Version.IsAtLeast(minVersion()) {
		return nil, fmt.Errorf("option Config.Version: %s is older than %s", c.Version, minVersion())
	}
	return &c, nil
}

// fetchConfig is the configuration of the client that fetches.
func fetchConfig(c sarama.Config, d *kafkaconn.Dialer) *sarama.Config {
	kafkaconn.SetPrivate(&c, d)
	c.Consumer.MaxWaitTime = min(c.Consumer.MaxWaitTime, maxWait)
	// What reads the fetched messages takes every one within patience, so that
	// one slow partition does not hold up the others of its broker. The
	// interceptors run when a message is about to be handed out, not when it is
	// fetched.
	c.Consumer.MaxProcessingTime = max(c.Consumer.MaxProcessingTime, 4*patience)
	c.Consumer.Interceptors = nil
	c.Consumer.Fetch.Max = 0        // with a limit, sarama skips what is larger
	c.Metadata.RefreshFrequency = 0 // the other client knows; see pollClient
	return &c
}
