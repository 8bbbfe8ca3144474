package consumer

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kielgo/kiel"
)

const (
	// maxLines is how many partitions of one change are logged one by one. Of more, each has a line at Debug; ownership and the
	// allocator log how many they are.
	maxLines = 16
	// maxNamed is how many partitions one line names.
	maxNamed = 5
	// startsWithin is how long partitions that start by policy are gathered for one line.
	startsWithin = time.Second
)

// origin says where a partition's start position comes from.
type origin string

// The origins.
const (
	fromCommitted origin = "committed"
	fromPolicy    origin = "policy" // none was committed, or not of this topic
	fromReset     origin = "reset"  // Kafka does not have the committed one
	fromSetup     origin = "setup"  // the user's Setup has marked or reset it
)

// openLog logs which partitions were opened and where they start.
type openLog struct {
	log *slog.Logger

	mu      sync.Mutex
	version uint64                      // of the plan under which a claim was opened last
	loud    bool                        // the claims of that plan that were not open are few
	tokens  map[kiel.Partition]int64    // of the claims that stand and were opened
	starts  map[policyStart]*someStarts // not logged yet
	timer   *time.Timer                 // until they are; nil when there are none
}

// policyStart is why partitions start where a policy says, and the policy.
type policyStart struct {
	reason string
	policy From
}

// someStarts are partitions that start by policy: the first ones, and how many there are.
type someStarts struct {
	first []string
	count int
}

func newOpenLog(log *slog.Logger) *openLog {
	return &openLog{log: log, tokens: map[kiel.Partition]int64{}, starts: map[policyStart]*someStarts{}}
}

// opened logs that a partition was opened under a claim: at Info when that is the first time, and waiting, which is asked once for each
// plan, counts no more than maxLines partitions that are to be opened.
func (l *openLog) opened(p kiel.Partition, claim holder, waiting func() int, args ...any) {
	log := l.log.Debug
	if l.isLoud(p, claim, waiting) {
		log = l.log.Info
	}
	log("opened", append([]any{"partition", p.String(), "token", claim.Token()}, args...)...)
}

// isLoud returns whether the opening of a partition is to be logged at Info.
func (l *openLog) isLoud(p kiel.Partition, claim holder, waiting func() int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token, ok := l.tokens[p]; ok && token == claim.Token() {
		return false
	}
	l.tokens[p] = claim.Token()
	if version := claim.Version(); l.version != version {
		l.version, l.loud = version, waiting() <= maxLines
	}
	return l.loud
}

// forget lets go of a partition whose claim has ended: the next one has another token.
func (l *openLog) forget(p kiel.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tokens, p)
}

// startsByPolicy logs that a partition starts at an offset that a policy has chosen, together with others within startsWithin.
func (l *openLog) startsByPolicy(p kiel.Partition, offset int64, reason string, policy From) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := policyStart{reason, policy}
	s := l.starts[key]
	if s == nil {
		s = &someStarts{}
		l.starts[key] = s
	}
	if s.count++; s.count <= maxNamed {
		s.first = append(s.first, fmt.Sprintf("%s at %d", p, offset))
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(startsWithin, l.flush)
	}
}

// flush logs the starts that were gathered.
func (l *openLog) flush() {
	l.mu.Lock()
	starts := l.starts
	l.starts = map[policyStart]*someStarts{}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(starts), func(a, b policyStart) int {
		return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.policy, b.policy))
	}) {
		s := starts[key]
		names := strings.Join(s.first, ", ")
		if more := s.count - len(s.first); more > 0 {
			names = fmt.Sprintf("%s and %d more", names, more)
		}
		l.log.Warn("partitions start where a policy says, not at a committed offset",
			"reason", key.reason, "policy", key.policy.String(), "partitions", s.count, "first", names)
	}
}
