package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/promreg"
)

// Values of the label result of commits.
const (
	resultOK     = "ok"
	resultFenced = "fenced" // refused by us, because the claim was not ours any more
	resultError  = "error"
)

// Values of the label reason of offset resets.
const (
	reasonNone       = "none" // nothing was committed
	reasonOutOfRange = "out_of_range"
	reasonTruncated  = "truncated" // an unclean leader election has cut the log off
	reasonRecreated  = "recreated" // what was committed is of a deleted topic
)

type metrics struct {
	messages   *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	commits    *prometheus.CounterVec
	commitTime *prometheus.HistogramVec
	resets     *prometheus.CounterVec
	heldBack   *prometheus.GaugeVec
	stuck      *prometheus.CounterVec
	lag        *prometheus.GaugeVec
	behind     *prometheus.GaugeVec
	missing    *prometheus.GaugeVec
	mismatches prometheus.Counter
	dropped    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, group string) (*metrics, error) {
	if reg != nil {
		reg = prometheus.WrapRegistererWith(prometheus.Labels{"group": group}, reg)
	}
	m := &metrics{}
	err := errors.Join(
		register(reg, &m.messages, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_messages_total",
			Help: "Messages handed to handlers.",
		}, []string{"topic"})),
		register(reg, &m.bytes, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_bytes_total",
			Help: "Bytes of keys and values handed to handlers.",
		}, []string{"topic"})),
		register(reg, &m.commits, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_commits_total",
			Help: "Offsets committed, one per partition, by result; fenced ones were not sent because the claim was lost.",
		}, []string{"result"})),
		register(reg, &m.commitTime, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kiel_consumer_commit_duration_seconds",
			Help:    "Time that committing offsets took, in seconds, retries included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"result"})),
		register(reg, &m.resets, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_offset_resets_total",
			Help: "Start positions that came from a policy, by reason.",
		}, []string{"topic", "reason"})),
		register(reg, &m.heldBack, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_consumer_held_back_partitions",
			Help: "Partitions of which no message is handed out because one has not been marked for 30 s.",
		}, []string{"topic"})),
		register(reg, &m.stuck, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_fetch_resets_total",
			Help: "Partitions fetched anew because they had stood still for 30 s though there was something to read.",
		}, []string{"topic"})),
		register(reg, &m.lag, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_consumer_lag_messages",
			Help: "Offsets between the next message to hand out and the end of what may be read, of open partitions.",
		}, []string{"topic", "partition"})),
		register(reg, &m.behind, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_consumer_lag_seconds",
			Help: "Age of the next message to hand out, in seconds, of open partitions; 0 when none waits.",
		}, []string{"topic", "partition"})),
		register(reg, &m.missing, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_consumer_missing_topics",
			Help: "Members that wait for a topic which Kafka does not have any more.",
		}, []string{"topic"})),
		register(reg, &m.mismatches, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_consumer_topic_mismatches_total",
			Help: "Partitions assigned to this member and not claimed, because it does not consume their topic.",
		})),
		register(reg, &m.dropped, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_consumer_errors_dropped_total",
			Help: "Errors that nobody read from Errors in time.",
		})),
	)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	for _, result := range []string{resultOK, resultFenced, resultError} {
		m.commits.WithLabelValues(result)
	}
	return m, nil
}

func register[C prometheus.Collector](reg prometheus.Registerer, to *C, c C) error {
	got, err := promreg.Register(reg, c)
	*to = got
	return err
}

// of returns the metrics that the partitions of a topic share.
func (m *metrics) of(topic string) partitionMetrics {
	return partitionMetrics{
		messages: m.messages.WithLabelValues(topic), bytes: m.bytes.WithLabelValues(topic), heldBack: m.heldBack.WithLabelValues(topic),
	}
}

// committed counts one partition's part in a commit.
func (m *metrics) committed(err error, took time.Duration) {
	result := resultOK
	switch {
	case err == nil:
	case offsets.Fenced(err):
		result = resultFenced
	default:
		result = resultError
	}
	m.commits.WithLabelValues(result).Inc()
	if result != resultFenced {
		m.commitTime.WithLabelValues(result).Observe(took.Seconds())
	}
}
