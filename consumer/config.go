package consumer

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/kafkaconn"
	"github.com/kielgo/kiel/consumer/internal/topics"
)

// configPage is the page that says how each field of sarama.Config is used.
const configPage = "docs/sarama-config.md"

// copyConfig returns a validated copy of the user's configuration, or the default one.
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

// isEager reports whether a group of sarama with this configuration ends its sessions at each rebalance: unless all its
// strategies support the cooperative protocol, and only that is common to all. Validate has refused strategies without a common
// protocol.
func isEager(c *sarama.Config) bool {
	strategies := strategiesOf(c)
	for _, s := range strategies {
		p, ok := s.(sarama.RebalanceProtocolBalanceStrategy)
		if !ok || !slices.Contains(p.SupportedProtocols(), sarama.RebalanceProtocolCooperative) {
			return true
		}
	}
	return len(strategies) == 0
}

// strategiesOf returns the strategies that a group of sarama has. Rebalance.Strategy, which is deprecated, counts before
// GroupStrategies.
func strategiesOf(c *sarama.Config) []sarama.BalanceStrategy {
	if s := c.Consumer.Group.Rebalance.Strategy; s != nil {
		return []sarama.BalanceStrategy{s}
	}
	return c.Consumer.Group.Rebalance.GroupStrategies
}

// warnConfig logs one warning that names the fields of the configuration that are set and are not honoured.
func warnConfig(log *slog.Logger, config *sarama.Config, from policy) {
	if fields := unhonoured(config, from); len(fields) > 0 {
		log.Warn("fields of sarama's Config are not honoured", "fields", strings.Join(fields, "; "), "see", configPage)
	}
}

// notHonoured collects the fields of a configuration that are set and are not honoured, each with its value and with what to use
// instead. A field is set if its value is not sarama's default.
type notHonoured []string

// note adds a field.
func (n *notHonoured) note(field string, value any, instead string) {
	*n = append(*n, fmt.Sprintf("%s=%v: %s", field, value, instead))
}

// unhonoured returns the fields of c that are set and not honoured.
func unhonoured(c *sarama.Config, from policy) []string {
	var n notHonoured
	d := sarama.NewConfig()
	n.network(c, d)
	n.group(c, d)
	n.reading(c, d)
	n.offsets(c, d, from)
	return n
}

// duration adds a field whose value is neither sarama's default nor honoured.
func duration(n *notHonoured, field string, value, byDefault time.Duration, honoured bool, instead string) {
	if value != byDefault && !honoured {
		n.note(field, value, instead)
	}
}

func (n *notHonoured) network(c, d *sarama.Config) {
	const most = kafkaconn.MaxControlWait
	bounded := fmt.Sprintf("%v at most", most)
	duration(n, "Net.DialTimeout", c.Net.DialTimeout, d.Net.DialTimeout, c.Net.DialTimeout <= most, bounded)
	duration(n, "Net.ReadTimeout", c.Net.ReadTimeout, d.Net.ReadTimeout, c.Net.ReadTimeout <= most,
		bounded+" for metadata and offsets; a connection that fetches ends when no byte comes for 5s while an answer is due, or for as long as this says if the broker is slow")
	duration(n, "Net.WriteTimeout", c.Net.WriteTimeout, d.Net.WriteTimeout, c.Net.WriteTimeout <= fetch.MaxWriteTimeout,
		fmt.Sprintf("%s, %v on connections that fetch", bounded, fetch.MaxWriteTimeout))
	every := c.Metadata.RefreshFrequency
	duration(n, "Metadata.RefreshFrequency", every, d.Metadata.RefreshFrequency, every > 0 && every <= topics.WatchEvery,
		fmt.Sprintf("topics are looked at once in %v at least", topics.WatchEvery))
}

func (n *notHonoured) group(c, d *sarama.Config) {
	g, was := &c.Consumer.Group, &d.Consumer.Group
	duration(n, "Consumer.Group.Session.Timeout", g.Session.Timeout, was.Session.Timeout, false,
		"Timeout of session.Options says how long a member may be silent; with NewGroup it is in Options.Session")
	duration(n, "Consumer.Group.Heartbeat.Interval", g.Heartbeat.Interval, was.Heartbeat.Interval, false,
		"the session proves itself alive six times in its timeout")
	if g.Rebalance.Strategy != nil && isEager(c) {
		n.note("Consumer.Group.Rebalance.Strategy", strategyNames([]sarama.BalanceStrategy{g.Rebalance.Strategy}), "Options.Func divides the partitions")
	}
	if names := strategyNames(g.Rebalance.GroupStrategies); names != strategyNames(was.Rebalance.GroupStrategies) && isEager(c) {
		n.note("Consumer.Group.Rebalance.GroupStrategies", names, "Options.Func and AlsoFuncs divide the partitions")
	}
	if g.Rebalance.Retry.Max != was.Rebalance.Retry.Max {
		n.note("Consumer.Group.Rebalance.Retry.Max", g.Rebalance.Retry.Max, "a member goes on until it has joined")
	}
	duration(n, "Consumer.Group.Rebalance.Retry.Backoff", g.Rebalance.Retry.Backoff, was.Rebalance.Retry.Backoff, false, "pauses are fixed")
	if len(g.Member.UserData) > 0 {
		n.note("Consumer.Group.Member.UserData", fmt.Sprintf("%d bytes", len(g.Member.UserData)), "members know Options.Name, Weight and Zone of each other")
	}
}

// strategyNames returns the names of balance strategies as one short text.
func strategyNames(strategies []sarama.BalanceStrategy) string {
	names := make([]string, len(strategies))
	for i, s := range strategies {
		if s != nil {
			names[i] = s.Name()
		}
	}
	return fmt.Sprintf("%.200q", names)
}

func (n *notHonoured) reading(c, d *sarama.Config) {
	r, was := &c.Consumer, &d.Consumer
	const again = "a partition is tried again after 20ms to 5s, without end"
	duration(n, "Consumer.Retry.Backoff", r.Retry.Backoff, was.Retry.Backoff, false, again)
	if r.Retry.BackoffFunc != nil {
		n.note("Consumer.Retry.BackoffFunc", "func", again)
	}
	if r.Retry.Max != was.Retry.Max {
		n.note("Consumer.Retry.Max", r.Retry.Max, again)
	}
	if r.Fetch.Default != was.Fetch.Default && r.Fetch.Default < fetch.MinFetch {
		n.note("Consumer.Fetch.Default", r.Fetch.Default, fmt.Sprintf("%d at least", fetch.MinFetch))
	}
	if r.Fetch.Max != was.Fetch.Max {
		n.note("Consumer.Fetch.Max", r.Fetch.Max, "messages of any size are read, as far as sarama.MaxResponseSize allows; Options.BufferBytes bounds the memory")
	}
	duration(n, "Consumer.MaxProcessingTime", r.MaxProcessingTime, was.MaxProcessingTime, false,
		"a slow handler holds up no other partition, however slow it is")
}

func (n *notHonoured) offsets(c, d *sarama.Config, from policy) {
	o, was := &c.Consumer.Offsets, &d.Consumer.Offsets
	duration(n, "Consumer.Offsets.CommitInterval", o.CommitInterval, was.CommitInterval, false,
		"sarama ignores it too; use Consumer.Offsets.AutoCommit.Interval or Options.CommitInterval")
	if o.Initial != was.Initial && from.from == Latest {
		n.note("Consumer.Offsets.Initial", o.Initial, from.option+" says where a new group starts, here "+from.String())
	}
	duration(n, "Consumer.Offsets.Retention", o.Retention, was.Retention, !c.Version.IsAtLeast(sarama.V2_1_0_0),
		"Kafka looks at it only if Version is older than 2.1; use its offsets.retention.minutes")
	if o.Retry.Max != was.Retry.Max {
		n.note("Consumer.Offsets.Retry.Max", o.Retry.Max, "a commit is tried six times, and again with the next one")
	}
}
