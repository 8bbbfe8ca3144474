// Package eventlog has the format of a consuming process's event log, one JSON object a line, and a checker. The checker reads
// the logs of all members of a group and reports whether a partition ever had two owners, a message was lost, or a member
// committed an offset of a partition that it did not own.
//
// # Format
//
// Each line has t, at, member and event, and some have topic, partition, token, offset, version, session and since. t is
// CLOCK_MONOTONIC in nanoseconds, so that the logs of all processes of one machine compare; at is the time of day, for people.
//
// A member owns a partition from "claimed" to the first of "releasing", "lost" and "untrusted". One of these without a partition,
// or "left", ends all that the member owns. In "untrusted", since is when trust ended: a process that was frozen writes the line
// late. In "committed", since is when the commit was last authorized before its request was sent: the answer may come after the
// end of the ownership.
//
// "message" means that a message was handed out, or entered the channel from which its handler takes messages; it may be taken
// out of the channel again when the partition is revoked or lost. "done" means that the handler has processed the message.
//
// Logs need not have "done". If one log of a group has it, all members must write it: then a message that was handed out and
// never done is lost, only messages that are done may be committed, and after an orderly release the next owner starts exactly
// behind the last message that was done. Without "done", a message counts as processed when it is handed out, and the next owner
// may start before the last such message.
//
// After the loss of a partition the log may have at most one more of its messages: one that was handed out right before, by a
// process that was stopped in between.
package eventlog

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// The events.
const (
	Joined    = "joined"    // the member's znode was created
	Snapshot  = "snapshot"  // this member acts on a new mapping
	Claimed   = "claimed"   // a claim was acknowledged and verified
	Opened    = "opened"    // reading starts, at offset
	Message   = "message"   // the message at offset was handed to the handler, or entered its channel
	Done      = "done"      // the handler has processed the message at offset, and marks it next
	Revoking  = "revoking"  // the partition was revoked: the handler is to finish
	Committed = "committed" // offset is stored; the next owner starts there
	Releasing = "releasing" // the request that deletes the claim is about to be sent
	Lost      = "lost"      // the claim was lost: nothing may be committed
	Untrusted = "untrusted" // the session can't be proved alive since "since"
	Left      = "left"      // the member has left
)

// earlierReleasing is what earlier versions call Releasing.
const earlierReleasing = "released"

// Event is one line of the log. Partition and Offset are pointers because zero is a value of both.
type Event struct {
	T         int64  `json:"t"`
	At        string `json:"at,omitempty"` // in UTC, to the millisecond
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

// Writer writes events, each with one unbuffered Write, so that a process that is killed leaves whole lines. Several goroutines
// may use it.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one line, with the time that now returns. It calls now under the writer's lock, so that the lines of one log are
// in the order of their times.
func (w *Writer) Write(e Event, now func() int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.T, e.At = now(), time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("eventlog: %w", err)
	}
	if _, err := w.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("eventlog: write: %w", err)
	}
	return nil
}

// maxLine is the length of the longest line that Read accepts, in bytes.
const maxLine = 1 << 20

// Read reads a log. It drops a last line that can't be parsed, because a killed process may leave one. Another line that can't be
// parsed is an error, which names it.
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
		if e.Event == earlierReleasing {
			e.Event = Releasing
		}
		events = append(events, e)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("eventlog: read: %w", err)
	}
	return events, nil
}
