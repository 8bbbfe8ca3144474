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
	// maxLines is how many partitions may open in one change so that each is logged at Info. Above that each is logged at Debug;
	// ownership and the allocator log their number.
	maxLines = 16
	// maxNamed is how many partitions one line names.
	maxNamed = 5
	// startsWithin is how long starts by policy, or at copied offsets, are gathered for one line.
	startsWithin = time.Second
)

// origin says where a partition's start position comes from.
type origin string

// The origins.
const (
	fromCommitted origin = "committed"
	fromPolicy    origin = "policy" // no offset was committed, or only one of another topic of the same name
	fromReset     origin = "reset"  // Kafka does not have the committed offset
	fromSetup     origin = "setup"  // the user's Setup has marked or reset the position
	fromCopied    origin = "copied" // the committed offset was copied from another Kafka cluster
)

// openLog logs which partitions were opened and where they start.
type openLog struct {
	log *slog.Logger

	mu      sync.Mutex
	version uint64                      // the version of the plan under which a claim was opened last
	loud    bool                        // maxLines partitions of that plan, at most, were not open
	tokens  map[kiel.Partition]int64    // the tokens of the claims that are held and were opened
	starts  map[policyStart]*someStarts // the starts that were not logged yet
	timer   *time.Timer                 // fires when starts is to be logged; nil when there are none
}

// policyStart is the reason for which partitions start by policy, and the policy. Its zero value is a start at copied offsets.
type policyStart struct {
	reason string
	policy From
}

// someStarts are partitions that start alike: the first maxNamed, and the number of all.
type someStarts struct {
	first []string
	count int
}

func newOpenLog(log *slog.Logger) *openLog {
	return &openLog{log: log, tokens: map[kiel.Partition]int64{}, starts: map[policyStart]*someStarts{}}
}

// opened logs that a partition was opened under a claim. The line is at Info at the first opening of the claim, if waiting
// returns maxLines at most. waiting returns how many partitions of the plan are to be opened, and is called once for each plan.
func (l *openLog) opened(p kiel.Partition, claim ownedClaim, waiting func() int, args ...any) {
	log := l.log.Debug
	if l.isLoud(p, claim, waiting) {
		log = l.log.Info
	}
	log("opened", append([]any{"partition", p.String(), "token", claim.Token()}, args...)...)
}

// isLoud returns whether the opening of a partition is to be logged at Info.
func (l *openLog) isLoud(p kiel.Partition, claim ownedClaim, waiting func() int) bool {
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

// forget drops the token of a partition whose claim has ended.
func (l *openLog) forget(p kiel.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tokens, p)
}

// startsByPolicy logs that a partition starts at an offset that a policy has chosen. Starts within startsWithin share a line.
func (l *openLog) startsByPolicy(p kiel.Partition, offset int64, reason string, policy From) {
	l.gather(policyStart{reason, policy}, p, offset)
}

// startsByCopy logs that a partition starts at an offset that was copied from another cluster. Starts within startsWithin share a
// line.
func (l *openLog) startsByCopy(p kiel.Partition, offset int64) { l.gather(policyStart{}, p, offset) }

// gather adds a start to those that are to be logged.
func (l *openLog) gather(key policyStart, p kiel.Partition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// flush logs the gathered starts.
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
		if key == (policyStart{}) {
			l.log.Warn("partitions start at offsets that were committed in another Kafka cluster", "partitions", s.count, "first", names)
			continue
		}
		l.log.Warn("partitions start where a policy says, not at a committed offset",
			"reason", key.reason, "policy", key.policy.String(), "partitions", s.count, "first", names)
	}
}
