package reporting

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
	"github.com/kielgo/kiel/internal/errlog"
	"github.com/kielgo/kiel/internal/statuswrite"
)

// StartsWithin is how long starts by policy, or at copied offsets, are gathered for one line.
const StartsWithin = time.Second

// Claim is what an OpenLog needs to know of the claim under which a partition is opened.
type Claim interface {
	Token() int64
	Version() uint64
}

// Origin says where a partition's start position comes from.
type Origin string

// The origins.
const (
	FromCommitted Origin = "committed"
	FromPolicy    Origin = "policy" // no offset was committed, or only one of another topic of the same name
	FromReset     Origin = "reset"  // Kafka does not have the committed offset
	FromSetup     Origin = "setup"  // the user's Setup has marked or reset the position
	FromCopied    Origin = "copied" // the committed offset was copied from another Kafka cluster
)

// OpenLog logs which partitions were opened and where they start.
type OpenLog struct {
	log *slog.Logger

	mu      sync.Mutex
	version uint64                   // the version of the plan under which a claim was opened last
	loud    bool                     // errlog.MaxLines partitions of that plan, at most, were not open
	tokens  map[kiel.Partition]int64 // the tokens of the claims that are held and were opened
	starts  map[Start]*someStarts    // the starts that were not logged yet, by what they have in common
	timer   *time.Timer              // fires when starts is to be logged; nil when there are none
}

// Start says why a partition starts where a policy says. Its zero value is a start at a copied offset.
type Start struct {
	Reason   string // why a policy chose the offset
	Policy   string // the policy
	Option   string // the option that says so; "" if it follows from the reason
	NewGroup bool   // the group had no offset on the topic, or is beginning on it
	Skipped  int64  // how many offsets before the start Kafka has; counted for a new group
}

// someStarts are partitions that start alike: the first statuswrite.MaxNames, the number of all, and how many offsets they skip.
type someStarts struct {
	first   []string
	count   int
	skipped int64
}

// NewOpenLog returns an OpenLog that logs to log.
func NewOpenLog(log *slog.Logger) *OpenLog {
	return &OpenLog{log: log, tokens: map[kiel.Partition]int64{}, starts: map[Start]*someStarts{}}
}

// Opened logs that a partition was opened under a claim. The line is at Info at the first opening of the claim, if waiting
// returns errlog.MaxLines at most. waiting returns how many partitions of the plan are to be opened, and is called once for each
// plan.
func (l *OpenLog) Opened(p kiel.Partition, claim Claim, waiting func() int, args ...any) {
	log := l.log.Debug
	if l.isLoud(p, claim, waiting) {
		log = l.log.Info
	}
	log("opened", append([]any{"partition", p.String(), "token", claim.Token()}, args...)...)
}

// isLoud reports whether the opening of a partition is to be logged at Info.
func (l *OpenLog) isLoud(p kiel.Partition, claim Claim, waiting func() int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token, ok := l.tokens[p]; ok && token == claim.Token() {
		return false
	}
	l.tokens[p] = claim.Token()
	if version := claim.Version(); l.version != version {
		l.version, l.loud = version, waiting() <= errlog.MaxLines
	}
	return l.loud
}

// Forget drops the token of a partition whose claim has ended.
func (l *OpenLog) Forget(p kiel.Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tokens, p)
}

// StartsByPolicy logs that a partition starts at an offset that a policy has chosen. Starts within StartsWithin share a line.
func (l *OpenLog) StartsByPolicy(p kiel.Partition, offset int64, why Start) { l.gather(why, p, offset) }

// StartsByCopy logs that a partition starts at an offset that was copied from another cluster. Starts within StartsWithin share a
// line.
func (l *OpenLog) StartsByCopy(p kiel.Partition, offset int64) { l.gather(Start{}, p, offset) }

// gather adds a start to those that are to be logged. Those of a new group share a line, whether they skip something or not.
func (l *OpenLog) gather(key Start, p kiel.Partition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	skipped := key.Skipped
	key.Skipped = 0
	s := l.starts[key]
	if s == nil {
		s = &someStarts{}
		l.starts[key] = s
	}
	s.skipped += skipped
	if s.count++; s.count <= statuswrite.MaxNames {
		s.first = append(s.first, fmt.Sprintf("%s at %d", p, offset))
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(StartsWithin, l.Flush)
	}
}

// Flush logs the gathered starts.
func (l *OpenLog) Flush() {
	l.mu.Lock()
	starts := l.starts
	l.starts = map[Start]*someStarts{}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(starts), func(a, b Start) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Option, b.Option))
	}) {
		l.logStarts(key, starts[key])
	}
}

// logStarts logs partitions that start alike.
func (l *OpenLog) logStarts(key Start, s *someStarts) {
	names := strings.Join(s.first, ", ")
	if more := s.count - len(s.first); more > 0 {
		names = fmt.Sprintf("%s and %d more", names, more)
	}
	switch {
	case key == (Start{}):
		l.log.Warn("partitions start at offsets that were committed in another Kafka cluster", "partitions", s.count, "first", names)
	case key.NewGroup && s.skipped > 0:
		l.log.Warn("new group starts behind messages that it skips",
			"policy", key.Policy, "option", key.Option, "skipped", s.skipped, "partitions", s.count, "first", names)
	case key.NewGroup:
		l.log.Info("new group starts", "policy", key.Policy, "option", key.Option, "partitions", s.count, "first", names)
	case key.Option != "":
		l.log.Warn("partitions start where a policy says, not at a committed offset",
			"cause", key.Reason, "policy", key.Policy, "option", key.Option, "partitions", s.count, "first", names)
	default:
		l.log.Warn("partitions start where a policy says, not at a committed offset",
			"cause", key.Reason, "policy", key.Policy, "partitions", s.count, "first", names)
	}
}
