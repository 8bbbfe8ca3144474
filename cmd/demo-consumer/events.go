package main

import (
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/eventlog"
)

// logClock gives moments in the time of the event log.
var logClock = sync.OnceValue(func() eventlog.Clock { return eventlog.NewClock(monotonic) })

// logEvent turns what a consumer observed into a line of the event log.
func logEvent(member string, e consumer.Event) eventlog.Event {
	line := eventlog.Event{Member: member, Event: string(e.Kind), Version: e.Version, Token: e.Token}
	if e.Session != 0 {
		line.Session = fmt.Sprintf("0x%x", e.Session)
	}
	if e.Partition >= 0 && e.Topic != "" {
		line.Topic, line.Partition = e.Topic, &e.Partition
	}
	switch line.Event {
	case eventlog.Opened, eventlog.Message, eventlog.Committed:
		line.Offset = &e.Offset
	}
	if !e.Since.IsZero() {
		line.Since = logClock().Of(e.Since)
	}
	return line
}

// logDone is the line that says that a handler has done with a message.
func logDone(member string, m *sarama.ConsumerMessage) eventlog.Event {
	return eventlog.Event{Member: member, Event: eventlog.Done, Topic: m.Topic, Partition: &m.Partition, Offset: &m.Offset}
}
