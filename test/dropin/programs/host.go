package programs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// Host is what a program is given.
type Host struct {
	// Make makes the member's group. config is the program's; nil is one of the test's. What the servers, and the time that a
	// test has, ask for is changed in it.
	Make    func(config *sarama.Config) (sarama.ConsumerGroup, error)
	Brokers []string
	Member  string                                                       // a name that no other member has, in any test
	Topic   string                                                       // and the group's name
	Process func(*sarama.ConsumerMessage)                                // what the program does with a message
	Report  func(error)                                                  // is called with each error from Errors
	Setup   func(sarama.ConsumerGroupSession)                            // is called in Setup
	Claimed func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) // is called when a plain handler's ConsumeClaim begins
	Pause   time.Duration                                                // between two sessions of a program that makes one
}

// Message returns the message that has a value: the test's messages say in their values where they are.
func (h Host) Message(value []byte) *sarama.ConsumerMessage {
	m := &sarama.ConsumerMessage{Topic: h.Topic, Value: value}
	if _, err := fmt.Sscanf(string(value), "%d/%d", &m.Partition, &m.Offset); err != nil {
		h.Report(fmt.Errorf("a message with the value %q: %w", value, err))
	}
	return m
}

// Program consumes until ctx ends, closes the group, and returns nil if all went well. It leaves no goroutine.
type Program func(ctx context.Context, h Host) error

// Programs are the programs of this package by name.
func Programs() map[string]Program {
	return map[string]Program{"traced": Traced, "processor": Processor, "subscriber": Subscriber, "example": Example}
}

// consume calls Consume until ctx ends or the group is closed, and reports what comes to Errors. Then it closes the group.
// between is called after each Consume.
func consume(ctx context.Context, h Host, handler sarama.ConsumerGroupHandler, between func()) error {
	group, err := h.Make(nil)
	if err != nil {
		return err
	}
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		for err := range group.Errors() {
			h.Report(err)
		}
	}()
	var failed error
	for ctx.Err() == nil {
		failed = group.Consume(ctx, []string{h.Topic}, handler)
		if failed != nil {
			break
		}
		between()
	}
	if ctx.Err() != nil && errors.Is(failed, context.Canceled) {
		failed = nil // sarama's error when ctx ends before it has joined
	}
	err = errors.Join(failed, group.Close())
	<-reported
	return err
}
