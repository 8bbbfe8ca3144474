package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// Limits on what a user's configuration may ask for.
const (
	// maxWait bounds a long poll. A partition that is opened while its broker's
	// poll is under way waits for the end of the poll.
	maxWait = 100 * time.Millisecond
	// maxControlWait bounds the wait for an answer about offsets or metadata,
	// and for a connection on which to ask.
	maxControlWait = 10 * time.Second
)

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

// controlConfig is the configuration of the client that asks for metadata and
// offsets and commits. Nothing on its connections waits for messages.
func controlConfig(c sarama.Config, d *dialer) *sarama.Config {
	privateConfig(&c, d)
	c.Net.ReadTimeout = min(c.Net.ReadTimeout, maxControlWait)
	c.Net.WriteTimeout = min(c.Net.WriteTimeout, maxControlWait)
	c.Net.DialTimeout = min(c.Net.DialTimeout, maxControlWait)
	return &c
}

// fetchConfig is the configuration of the client that fetches.
func fetchConfig(c sarama.Config, d *dialer) *sarama.Config {
	privateConfig(&c, d)
	c.Consumer.MaxWaitTime = min(c.Consumer.MaxWaitTime, maxWait)
	// What reads the fetched messages takes every one within patience, so that
	// one slow partition does not hold up the others of its broker. The
	// interceptors run when a message is handed out, not when it is fetched.
	c.Consumer.MaxProcessingTime = max(c.Consumer.MaxProcessingTime, 4*patience)
	c.Consumer.Interceptors = nil
	c.Consumer.Fetch.Max = 0        // with a limit, sarama skips what is larger
	c.Metadata.RefreshFrequency = 0 // the other client knows; see pollClient
	return &c
}

func privateConfig(c *sarama.Config, d *dialer) {
	c.Metadata.Full = false
	c.Metadata.AllowAutoTopicCreation = false
	c.Consumer.Return.Errors = true
	c.Consumer.Group.InstanceId = ""
	c.Net.Proxy.Enable = true
	c.Net.Proxy.Dialer = d
	backoff := c.Metadata.Retry.BackoffFunc
	wait := c.Metadata.Retry.Backoff
	c.Metadata.Retry.BackoffFunc = func(retries, maxRetries int) time.Duration {
		switch {
		case d.closed():
			return 0
		case backoff != nil:
			return backoff(retries, maxRetries)
		default:
			return wait
		}
	}
}
