package kafkaconn

import (
	"time"

	"github.com/IBM/sarama"
)

// MaxControlWait bounds the wait for an answer about offsets or metadata, and the time to open a connection for it.
const MaxControlWait = 10 * time.Second

// ControlConfig returns the configuration of a client that asks for metadata and offsets, and commits. No request on its
// connections waits for messages.
func ControlConfig(c sarama.Config, d *Dialer) *sarama.Config {
	SetPrivate(&c, d)
	c.Net.ReadTimeout = min(c.Net.ReadTimeout, MaxControlWait)
	c.Net.WriteTimeout = min(c.Net.WriteTimeout, MaxControlWait)
	c.Net.DialTimeout = min(c.Net.DialTimeout, MaxControlWait)
	return &c
}

// SetPrivate makes c the configuration of a client of this library: the client connects through d and keeps the metadata of the
// topics alone that it is asked about.
func SetPrivate(c *sarama.Config, d *Dialer) {
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
		case d.Closed():
			return 0
		case backoff != nil:
			return backoff(retries, maxRetries)
		default:
			return wait
		}
	}
}
