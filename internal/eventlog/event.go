// Package eventlog has the event log of a consuming process, one JSON object a
// line, and the checker. The checker reads the logs of all members of a group and
// reports whether a partition ever had two owners, a message was lost, or a member
// committed an offset of a partition that it did not own.
//
// # Format
//
// Every line has t (CLOCK_MONOTONIC in nanoseconds, so that the logs of all
// processes of one machine compare), member and event; where they apply: topic,
// partition, token, offset, version, session, since.
//
// A partition is owned from "claimed" to the first of "released", "lost" and
// "untrusted"; one of these without a partition, or "left", ends everything its
// member owned. "untrusted" carries since, the moment at which trust ended: a
// process that was frozen writes the line late. "committed" carries since, the
// moment at which it was last found, before the request was sent, that it may be:
// its answer may come later than the end of what it was about.
//
// "message" means that a message was handed out, or entered the channel from which
// its handler takes messages; it may be taken out of there again when the partition
// is given up. "done" means that the handler has processed it.
//
// Logs need not have "done". If one of a group has, all members write it: what was handed
// out and not done by anybody is lost, only what is done may be committed, and after an orderly release
// the next owner begins exactly behind what is done. Otherwise handing out counts,
// and the next owner may begin before what was handed out.
//
// At most one message of each partition may be in the log after it was lost: one
// that was handed out in the moment before, by a process that was stopped then.
package eventlog

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// The events.
const (
	Joined    = "joined"    // the member znode stands
	Snapshot  = "snapshot"  // a new view was agreed on
	Claimed   = "claimed"   // a claim was acknowledged and verified
	Opened    = "opened"    // reading starts, at offset
	Message   = "message"   // the message at offset was handed to the handler, or entered its channel
	Done      = "done"      // the handler has processed the message at offset, and marks it next
	Revoking  = "revoking"  // the handler was told to finish
	Committed = "committed" // offset is stored; the next owner starts there
	Released  = "released"  // the claim's delete is about to be sent
	Lost      = "lost"      // the claim is gone, nothing may be committed
	Untrusted = "untrusted" // the session can't be proved alive since "since"
	Left      = "left"      // the member has gone
)

// Event is one line. Partition and Offset are pointers because zero is a value
// of both.
type Event struct {
	T         int64  `json:"t"`
	Member    string `json:"member"`
	Event     string `json:"event"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Token     int64  `json:"token,omitempty"`
	Offset    *int64 `json:"offset,omitempty"`
	Version   uint64 `json:"version,omitempty"`
	Session   string `json:"session,omitempty"`
	Since     int64  `json:"since,omitempty"`
}

// Writer writes events to w, one unbuffered Write a line, so that a process that
// is killed leaves whole lines. It may be used by several goroutines.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one line. Its time is taken under the writer's lock by now, so
// that the lines of one log are in the order of their times.
func (w *Writer) Write(e Event, now func() int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.T = now()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("eventlog: %w", err)
	}
	if _, err := w.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("eventlog: write: %w", err)
	}
	return nil
}

const maxLine = 1 << 20

// Read reads a log. A last line that a killed process left half written is
// dropped; any other line that can't be read is an error that names it.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	var bad error
	for n := 1; sc.Scan(); n++ {
		if bad != nil {
			return nil, bad
		}
		var e Event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			bad = fmt.Errorf("eventlog: line %d: %w", n, err)
			continue
		}
		events = append(events, e)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("eventlog: read: %w", err)
	}
	return events, nil
}
