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
	resultFenced = "fenced" // not sent, because the claim was lost
	resultError  = "error"
)

// Values of the label kind of late errors and marks.
const (
	lateError = "error" // an error after Close was called
	lateMark  = "mark"  // a mark of a partition that is not open
)

// Values of the label reason of offset resets.
const (
	reasonNone       = "none"         // no offset was committed
	reasonOutOfRange = "out_of_range" // Kafka does not have the committed offset
	reasonTruncated  = "truncated"    // an unclean leader election has truncated the log
	reasonRecreated  = "recreated"    // the committed offset is of a topic that was deleted
)

// Values of the label action of a handler's errors: what follows the error.
const (
	actionSession = "session" // the call of Consume or Run ends
	actionReopen  = "reopen"  // the partition is opened again
	actionReport  = "report"  // nothing but a report: the partition, or the call, was ending
)

// metrics counts what happens. States, such as the lag, are read by gauges at each scrape.
type metrics struct {
	observed bool // the metrics are registered; without it nothing is sampled

	messages      *prometheus.CounterVec
	bytes         *prometheus.CounterVec
	handling      *prometheus.HistogramVec
	delay         *prometheus.HistogramVec
	handlerErrors *prometheus.CounterVec
	fetchErrors   *prometheus.CounterVec
	commits       *prometheus.CounterVec
	commitTime    *prometheus.HistogramVec
	resets        *prometheus.CounterVec
	discords      *prometheus.CounterVec
	heldBack      *prometheus.GaugeVec
	stuck         *prometheus.CounterVec
	missing       *prometheus.GaugeVec
	mismatches    prometheus.Counter
	dropped       prometheus.Counter
	ignored       *prometheus.CounterVec
	gauges        *gauges
}

func newMetrics(set *promreg.Set) *metrics {
	shown := newGauges(set.Labels())
	m := &metrics{
		messages: shown.received(set, "kiel_consumer_messages_total",
			"Messages that handlers have received; what stands in the channel of sarama's API does not count.", "topic"),
		bytes: shown.received(set, "kiel_consumer_bytes_total", "Bytes of keys and values that handlers have received.", "topic"),
		handling: histograms(set, "kiel_consumer_handler_duration_seconds",
			"Time that handlers of Run took for what they were handed, in seconds: from the hand-out of a message, or of a batch with Batches, "+
				"until they asked for the next. With sarama's interfaces it is the time from the mark before, or from the moment when the message came "+
				"into an empty channel if that was later, until its own mark. At most one message in 10 ms is measured for each partition: every one "+
				"that takes longer is.",
			[]float64{.00001, .0001, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}, "topic"),
		delay: histograms(set, "kiel_consumer_message_age_seconds",
			"Time from a message's timestamp to its hand-out, in seconds, of messages that have a timestamp. Of each partition one in "+
				"10 ms is measured.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}, "topic"),
		handlerErrors: counters(set, "kiel_consumer_handler_errors_total",
			"Errors and panics of handlers, by what followed: the call of Consume or Run ended (session), the partition was opened again "+
				"(reopen), or nothing but a report, since the partition or the call was about to end (report).", "topic", "action"),
		fetchErrors: counters(set, "kiel_consumer_fetch_errors_total",
			"Failures to fetch a partition, by reason. Each partition of a request that fails counts one.", "reason"),
		commits: counters(set, "kiel_consumer_commits_total",
			"Offsets committed, one per partition, by result; fenced ones were not sent because the claim was lost.", "result"),
		commitTime: histograms(set, "kiel_consumer_commit_duration_seconds", "Time that committing offsets took, in seconds, retries included.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "result"),
		resets: counters(set, "kiel_consumer_offset_resets_total", "Start positions that came from a policy, by reason.", "topic", "reason"),
		discords: counters(set, "kiel_consumer_foreign_offsets_total",
			"Stored offsets of open partitions that neither this member nor a former owner has stored, by reason. Each audit counts each partition.",
			"reason"),
		heldBack: promreg.Add(set, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_consumer_held_back_partitions", ConstLabels: set.Labels(),
			Help: "Partitions of which no message is handed out because one has not been marked for 30 s.",
		}, []string{"topic"})),
		stuck: counters(set, "kiel_consumer_fetch_resets_total",
			"Partitions fetched anew because they had stood still for 30 s though there was something to read.", "topic"),
		missing: promreg.Add(set, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kiel_consumer_missing_topics", ConstLabels: set.Labels(),
			Help: "1 while this member waits for a topic that Kafka does not have any more.",
		}, []string{"topic"})),
		mismatches: counters(set, "kiel_consumer_topic_mismatches_total",
			"Partitions assigned to this member and not claimed, because it does not consume their topic.").WithLabelValues(),
		dropped: counters(set, "kiel_consumer_errors_dropped_total", "Errors that nobody read from Errors in time.").WithLabelValues(),
		ignored: counters(set, "kiel_consumer_ignored_total",
			"Errors after the beginning of Close, which are not sent to Errors, and marks of partitions that are not open.", "kind"),
		gauges: promreg.Add(set, shown),
	}
	m.showZeros()
	return m
}

// counters returns counters by labels, which it adds to a set.
func counters(set *promreg.Set, name, help string, labels ...string) *prometheus.CounterVec {
	return promreg.Add(set, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: set.Labels()}, labels))
}

// histograms returns histograms by one label, which it adds to a set.
func histograms(set *promreg.Set, name, help string, buckets []float64, label string) *prometheus.HistogramVec {
	return promreg.Add(set, prometheus.NewHistogramVec(promreg.Native(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: set.Labels(), Buckets: buckets,
	}), []string{label}))
}

// showZeros creates the series whose labels are known, so that each counts from 0.
func (m *metrics) showZeros() {
	for _, reason := range fetch.Reasons() {
		m.fetchErrors.WithLabelValues(string(reason))
	}
	for _, result := range []string{resultOK, resultFenced, resultError} {
		m.commits.WithLabelValues(result)
	}
	for _, result := range []string{resultOK, resultError} {
		m.commitTime.WithLabelValues(result)
	}
	for _, discord := range offsets.Discords() {
		m.discords.WithLabelValues(string(discord))
	}
	for _, kind := range []string{lateError, lateMark} {
		m.ignored.WithLabelValues(kind)
	}
}

// of returns the metrics of a topic, which its partitions share.
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

// forget deletes the series of a topic that was removed, and of which no partition is open.
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

// handlerFailed counts an error of a handler by the action that follows.
func (m *metrics) handlerFailed(topic, action string) {
	m.handlerErrors.WithLabelValues(labelOf(topic), action).Inc()
}

// committed counts the commit of one partition's offset, with its result and duration.
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
