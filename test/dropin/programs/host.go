package programs

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

// Host is what a program is given.
type Host struct {
	Group   sarama.ConsumerGroup
	Topic   string
	Process func(*sarama.ConsumerMessage)                                // what the program does with a message
	Report  func(error)                                                  // is called with each error from Errors
	Setup   func(sarama.ConsumerGroupSession)                            // is called in Setup
	Claimed func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) // is called when a plain handler's ConsumeClaim begins
	Pause   time.Duration                                                // between two sessions of a program that makes one
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
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		for err := range h.Group.Errors() {
			h.Report(err)
		}
	}()
	var failed error
	for ctx.Err() == nil {
		failed = h.Group.Consume(ctx, []string{h.Topic}, handler)
		if failed != nil {
			break
		}
		between()
	}
	if ctx.Err() != nil && errors.Is(failed, context.Canceled) {
		failed = nil // sarama's error when ctx ends before it has joined
	}
	err := errors.Join(failed, h.Group.Close())
	<-reported
	return err
}
