package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/internal/pause"
)

const (
	maxLine       = 1 << 20 // bytes of a line, Kafka's own default limit of a message
	progressEvery = 5 * time.Second
)

// order is a made-up message.
type order struct {
	Order    int64   `json:"order"`
	Customer string  `json:"customer"`
	Amount   float64 `json:"amount"`
}

// Run writes the messages and prints how many Kafka has acknowledged.
func (c *produceCmd) Run(rc *runContext) error {
	if c.Rate < 0 || c.Count < 0 || c.Partitions < 1 {
		return connect.Usage(errors.New("--rate and --count must not be negative, --partitions must be at least 1"))
	}
	if err := checkTopics(c.Topic); err != nil {
		return err
	}
	var lines io.Reader
	switch c.File {
	case "":
	case "-":
		lines = rc.in
	default:
		f, err := os.Open(c.File)
		if err != nil {
			return connect.Usage(fmt.Errorf("can't read the lines: %w", err))
		}
		defer f.Close() //nolint:errcheck // it is only read
		lines = f
	}
	if c.Keyed && lines == nil {
		return connect.Usage(errors.New("--keyed needs a file, or - for standard input"))
	}

	config, logger := connect.KafkaConfig("kiel-demo"), newLogger(rc.console, false)
	if err := c.Secure(config, warning(logger)); err != nil {
		return err
	}
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	producer, err := unlessTold(rc, func() (sarama.AsyncProducer, error) { return c.connect(rc, config) })
	if err != nil || producer == nil {
		return err
	}

	topics := strings.Join(c.Topic, ", ")
	results, sent := make(chan tally, 1), make(chan int64, 1)
	go func() { results <- watchProducer(producer, sent, logger, topics) }()
	var n int64
	var feedErr error
	if lines != nil {
		n, feedErr = c.feedLines(rc, lines, producer.Input())
	} else {
		n = c.feedOrders(rc, producer.Input())
	}
	sent <- n // what was taken is still sent and acknowledged
	t := <-results
	logger.InfoContext(rc, "produced all", "messages", t.acked, "topics", topics)
	if t.failed > 0 {
		return errors.Join(feedErr, fmt.Errorf("%d messages were not acknowledged, the first: %w", t.failed, t.first))
	}
	return feedErr
}

// connect returns a producer of topics that exist.
func (c *produceCmd) connect(ctx context.Context, config *sarama.Config) (sarama.AsyncProducer, error) {
	client, err := sarama.NewClient(c.Kafka, config)
	if err != nil {
		return nil, kafkaError(c.Kafka, err)
	}
	for _, topic := range c.Topic {
		if err := createTopic(ctx, client, topic, c.Partitions); err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	if err := client.Close(); err != nil {
		return nil, fmt.Errorf("start a producer: %w", err)
	}
	producer, err := sarama.NewAsyncProducer(c.Kafka, config)
	if err != nil {
		return nil, kafkaError(c.Kafka, err)
	}
	return producer, nil
}

// unlessTold calls f, which can't be interrupted, and returns nothing when ctx ends first: the process is about to end, and f
// with it.
func unlessTold[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, nil
	}
}

type tally struct {
	acked, failed int64
	first         error
}

// watchProducer counts what Kafka answers. Once it is told how many messages there are it closes the producer when all of them
// are answered, not before: a producer that is closing drops what it would have to send again.
func watchProducer(p sarama.AsyncProducer, sent <-chan int64, logger *slog.Logger, topics string) tally {
	var t tally
	all := int64(-1)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	ok, bad := p.Successes(), p.Errors()
	for ok != nil || bad != nil {
		if t.acked+t.failed == all {
			all = -1
			p.AsyncClose()
		}
		select {
		case all = <-sent:
		case _, open := <-ok:
			if !open {
				ok = nil
				continue
			}
			t.acked++
		case e, open := <-bad:
			if !open {
				bad = nil
				continue
			}
			if t.failed++; t.first == nil {
				t.first = e.Err
			}
		case <-tick.C:
			logger.Info("produced so far", "messages", t.acked, "topics", topics)
		}
	}
	return t
}

// feedLines sends one message a line. A line that can't be sent ends it with an error that names the line; those before it are
// sent.
func (c *produceCmd) feedLines(ctx context.Context, r io.Reader, input chan<- *sarama.ProducerMessage) (taken int64, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	n := int64(0)
	for (c.Count == 0 || n < c.Count) && sc.Scan() {
		n++
		m := &sarama.ProducerMessage{Topic: c.topic(n - 1)}
		if c.Keyed {
			key, value, found := strings.Cut(sc.Text(), "\t")
			if !found {
				return n - 1, fmt.Errorf("line %d has no tab between key and value (--keyed); the %d lines before it were sent", n, n-1)
			}
			m.Key, m.Value = sarama.StringEncoder(key), sarama.StringEncoder(value)
		} else {
			m.Value = sarama.StringEncoder(sc.Text())
		}
		select {
		case input <- m:
		case <-ctx.Done():
			return n - 1, nil
		}
	}
	if err := sc.Err(); err != nil {
		return n, fmt.Errorf("line %d: %w; the %d lines before it were sent", n+1, err, n)
	}
	return n, nil
}

// topic is where the n-th message goes.
func (c *produceCmd) topic(n int64) string { return c.Topic[n%int64(len(c.Topic))] }

// feedOrders makes orders up at the asked rate and returns how many were taken.
func (c *produceCmd) feedOrders(ctx context.Context, input chan<- *sarama.ProducerMessage) (taken int64) {
	start := time.Now()
	n := int64(0)
	for ; c.Count == 0 || n < c.Count; n++ {
		if c.Rate > 0 {
			due := start.Add(time.Duration(float64(n) / c.Rate * float64(time.Second)))
			if pause.Sleep(ctx, time.Until(due)) != nil {
				return n
			}
		}
		select {
		case input <- orderMessage(c.topic(n), n):
		case <-ctx.Done():
			return n
		}
	}
	return n
}

func orderMessage(topic string, n int64) *sarama.ProducerMessage {
	customer := "customer-" + strconv.Itoa(rand.IntN(1000))
	value, err := json.Marshal(order{Order: n, Customer: customer, Amount: float64(rand.IntN(10000)) / 100})
	if err != nil {
		panic(err) // a struct of numbers and a string always marshals
	}
	return &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(customer), Value: sarama.ByteEncoder(value)}
}

func kafkaError(servers []string, err error) error {
	return fmt.Errorf("can't reach Kafka at %s (is it running? try 'demo-consumer servers' in another terminal): %w", strings.Join(servers, ","), err)
}

// createTopic makes the topic when it is missing.
func createTopic(ctx context.Context, client sarama.Client, topic string, partitions int32) error {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return fmt.Errorf("ask for topics: %w", err)
	}
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
	err = admin.CreateTopic(topic, detail, false)
	if te, ok := errors.AsType[*sarama.TopicError](err); ok && te.Err == sarama.ErrTopicAlreadyExists {
		err = nil
	}
	if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	// Kafka answers before all brokers know the topic.
	for range 50 {
		if err = client.RefreshMetadata(topic); err == nil {
			return nil
		}
		if _ = pause.Sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
	}
	return fmt.Errorf("topic %s: %w", topic, err)
}
