package consumer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/consumer/internal/fetch"
	"github.com/kielgo/kiel/consumer/internal/offsets"
	"github.com/kielgo/kiel/internal/promreg"
)

// Values of the label result of commits.
const (
	resultOK     = "ok"
	resultFenced = "fenced" // refused by us, because the claim was not ours any more
	resultError  = "error"
)

// Values of the label kind of what came too late.
const (
	lateError = "error" // after the beginning of Close
	lateMark  = "mark"  // after its partition was closed
)

// Values of the label reason of offset resets.
const (
	reasonNone       = "none" // nothing was committed
	reasonOutOfRange = "out_of_range"
	reasonTruncated  = "truncated" // an unclean leader election has cut the log off
	reasonRecreated  = "recreated" // what was committed is of a deleted topic
)

// Values of the label action of errors of handlers: what follows.
const (
	actionSession = "session" // the call of Consume or Run ends
	actionReopen  = "reopen"  // the partition is opened again
	actionReport  = "report"  // nothing else: the partition, or the call, was about to end
)

// metrics are counted where things happen. What is a state, not a count, is read by gauges at the time of a scrape.
type metrics struct {
	observed bool // they are registered: somebody may look at what is sampled

	messages      *prometheus.CounterVec
	bytes         *prometheus.CounterVec
	handling      *prometheus.HistogramVec
	delay         *prometheus.HistogramVec
	handlerErrors *prometheus.CounterVec
	fetchErrors   *prometheus.CounterVec
	commits       *prometheus.CounterVec
	commitTime    *prometheus.HistogramVec
	resets        *prometheus.CounterVec
	heldBack      *prometheus.GaugeVec
	stuck         *prometheus.CounterVec
	missing       *prometheus.GaugeVec
	mismatches    prometheus.Counter
	dropped       prometheus.Counter
	late          *prometheus.CounterVec
	gauges        *gauges
}

func newMetrics(set *promreg.Set) *metrics {
	labels := set.Labels()
	m := &metrics{
		messages: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_messages_total", ConstLabels: labels,
			Help: "Messages handed to handlers.",
		}, []string{"topic"})),
		bytes: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_bytes_total", ConstLabels: labels,
			Help: "Bytes of keys and values handed to handlers.",
		}, []string{"topic"})),
		handling: promreg.Add(set, prometheus.NewHistogramVec(promreg.Native(prometheus.HistogramOpts{
			Name: "kiel_consumer_handler_duration_seconds", ConstLabels: labels,
			Help: "Time that handlers of Run took for what they were handed, in seconds: from the hand-out of a message, or of a batch with Batches, " +
				"until they asked for the next. With sarama's interfaces it is the time between two receives from Messages, as far as the channel " +
				"was full. Of each partition one in 10 ms is measured, which is each one that takes longer.",
			Buckets: []float64{.00001, .0001, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		}), []string{"topic"})),
		delay: promreg.Add(set, prometheus.NewHistogramVec(promreg.Native(prometheus.HistogramOpts{
			Name: "kiel_consumer_delay_seconds", ConstLabels: labels,
			Help: "Time from a message's timestamp to its hand-out, in seconds, of messages that have a timestamp. Of each partition one in " +
				"10 ms is measured.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400},
		}), []string{"topic"})),
		handlerErrors: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_handler_errors_total", ConstLabels: labels,
			Help: "Errors and panics of handlers, by what followed: the call of Consume or Run ended (session), the partition was opened again " +
				"(reopen), or nothing but a report, since the partition or the call was about to end (report).",
		}, []string{"topic", "action"})),
		fetchErrors: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_fetch_errors_total", ConstLabels: labels,
			Help: "Failures to fetch a partition, by reason. Each partition of a request that fails has one.",
		}, []string{"reason"})),
		commits: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_commits_total", ConstLabels: labels,
			Help: "Offsets committed, one per partition, by result; fenced ones were not sent because the claim was lost.",
		}, []string{"result"})),
		commitTime: promreg.Add(set, prometheus.NewHistogramVec(promreg.Native(prometheus.HistogramOpts{
			Name: "kiel_consumer_commit_duration_seconds", ConstLabels: labels,
			Help:    "Time that committing offsets took, in seconds, retries included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}), []string{"result"})),
		resets: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_offset_resets_total", ConstLabels: labels,
			Help: "Start positions that came from a policy, by reason.",
		}, []string{"topic", "reason"})),
		heldBack: promreg.Add(set, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_consumer_held_back_partitions", ConstLabels: labels,
			Help: "Partitions of which no message is handed out because one has not been marked for 30 s.",
		}, []string{"topic"})),
		stuck: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_fetch_resets_total", ConstLabels: labels,
			Help: "Partitions fetched anew because they had stood still for 30 s though there was something to read.",
		}, []string{"topic"})),
		missing: promreg.Add(set, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_consumer_missing_topics", ConstLabels: labels,
			Help: "Members that wait for a topic which Kafka does not have any more.",
		}, []string{"topic"})),
		mismatches: promreg.Add(set, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_consumer_topic_mismatches_total", ConstLabels: labels,
			Help: "Partitions assigned to this member and not claimed, because it does not consume their topic.",
		})),
		dropped: promreg.Add(set, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kiel_consumer_errors_dropped_total", ConstLabels: labels,
			Help: "Errors that nobody read from Errors in time.",
		})),
		late: promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kiel_consumer_late_total", ConstLabels: labels,
			Help: "Errors after the beginning of Close, which are not sent to Errors, and marks of partitions that are not open.",
		}, []string{"kind"})),
		gauges: promreg.Add(set, newGauges(labels)),
	}
	for _, reason := range fetch.Reasons() {
		m.fetchErrors.WithLabelValues(string(reason))
	}
	for _, result := range []string{resultOK, resultFenced, resultError} {
		m.commits.WithLabelValues(result)
	}
	for _, result := range []string{resultOK, resultError} {
		m.commitTime.WithLabelValues(result)
	}
	for _, kind := range []string{lateError, lateMark} {
		m.late.WithLabelValues(kind)
	}
	return m
}

// of returns the metrics that the partitions of a topic share.
func (m *metrics) of(topic string) partitionMetrics {
	label := labelOf(topic)
	out := partitionMetrics{
		messages: m.messages.WithLabelValues(label), bytes: m.bytes.WithLabelValues(label), heldBack: m.heldBack.WithLabelValues(label),
	}
	for _, action := range []string{actionSession, actionReopen, actionReport} {
		m.handlerErrors.WithLabelValues(label, action)
	}
	if m.observed {
		out.handling, out.delay = m.handling.WithLabelValues(label), m.delay.WithLabelValues(label)
	}
	return out
}

// forget deletes the series of a topic that is gone, and of which no partition is open.
func (m *metrics) forget(topic string) {
	label := labelOf(topic)
	of := prometheus.Labels{"topic": label}
	for _, vec := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{m.messages, m.bytes, m.handling, m.delay, m.handlerErrors, m.resets, m.heldBack, m.stuck, m.missing} {
		vec.DeletePartialMatch(of)
	}
	m.gauges.forget(label)
}

// failedToFetch counts a failure to fetch a partition.
func (m *metrics) failedToFetch(reason fetch.Reason) {
	m.fetchErrors.WithLabelValues(string(reason)).Inc()
}

// handlerFailed counts an error of a handler.
func (m *metrics) handlerFailed(topic, action string) {
	m.handlerErrors.WithLabelValues(labelOf(topic), action).Inc()
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
