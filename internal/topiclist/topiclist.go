// Package topiclist reads a member's list of topics: names, patterns that find topics, and patterns that exclude topics which
// others find. All members of a group must read a list alike, whatever version of Go they were built with. So the syntax of
// patterns is part of the format of a member's record.
package topiclist

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/kielgo/kiel"
)

// Limits of a list. Matching a topic takes at most some 10 ns for each byte of its name and each step of each pattern, so the
// worst list takes 2.5 s for 1,000 topics with the longest of names; an allocation function may take 5 s. An everyday pattern has
// about as many steps as bytes, and most names end it at their first bytes.
const (
	MaxPattern  = 1000 // bytes of a pattern
	MaxPatterns = 100  // patterns of a list, with those that exclude
	maxSteps    = 1000 // steps of all patterns of a list
)

// internalPrefix begins the names of Kafka's own topics, such as __consumer_offsets. No pattern finds them.
const internalPrefix = "__"

// List is a list of topics. It never changes.
type List struct {
	Entries []string // the entries, sorted, each once
	Names   []string // the entries that are names, sorted

	find, exclude []*regexp.Regexp
}

// isPattern reports whether an entry is a pattern, and whether that excludes topics. No topic's name begins like a pattern.
func isPattern(entry string) (expr string, excludes, ok bool) {
	if expr, ok := strings.CutPrefix(entry, "!"); ok && strings.HasPrefix(expr, "^") {
		return expr, true, true
	}
	return entry, false, strings.HasPrefix(entry, "^")
}

// HasPatterns reports whether one of the entries is a pattern.
func HasPatterns(entries []string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool { _, _, ok := isPattern(entry); return ok })
}

// Parse reads entries, and stops at the first invalid one. The error wraps kiel.ErrInvalidName.
func Parse(entries []string) (*List, error) {
	l := &List{Entries: slices.Compact(slices.Sorted(slices.Values(entries)))}
	steps := 0
	for _, entry := range l.Entries {
		expr, excludes, ok := isPattern(entry)
		if !ok {
			if err := kiel.CheckTopic(entry); err != nil {
				return nil, err
			}
			l.Names = append(l.Names, entry)
			continue
		}
		re, n, err := compile(expr)
		steps += n
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: topic pattern %.120q: %w", kiel.ErrInvalidName, entry, err)
		case steps > maxSteps:
			return nil, fmt.Errorf("%w: topic pattern %.120q: with those before it, it takes more than %d steps", kiel.ErrInvalidName, entry, maxSteps)
		case excludes:
			l.exclude = append(l.exclude, re)
		default:
			l.find = append(l.find, re)
		}
		if len(l.find)+len(l.exclude) > MaxPatterns {
			return nil, fmt.Errorf("%w: more than %d topic patterns", kiel.ErrInvalidName, MaxPatterns)
		}
	}
	if len(l.exclude) > 0 && len(l.find) == 0 {
		return nil, fmt.Errorf("%w: there are exclusions, but no pattern to exclude topics from: no entry begins with ^", kiel.ErrInvalidName)
	}
	return l, nil
}

// HasPatterns reports whether the list finds topics by patterns.
func (l *List) HasPatterns() bool { return len(l.find) > 0 }

// Asks reports whether the list asks for a topic: by its name, or by a pattern.
func (l *List) Asks(topic string) bool {
	_, named := slices.BinarySearch(l.Names, topic)
	return named || l.Finds(topic)
}

// Finds reports whether a pattern finds a topic, and none excludes it. Patterns never find names that Kafka does not allow, nor
// Kafka's own topics.
func (l *List) Finds(topic string) bool {
	return len(l.find) > 0 && !strings.HasPrefix(topic, internalPrefix) && kiel.CheckTopic(topic) == nil &&
		matchesAny(l.find, topic) && !matchesAny(l.exclude, topic)
}

func matchesAny(patterns []*regexp.Regexp, topic string) bool {
	return slices.ContainsFunc(patterns, func(re *regexp.Regexp) bool {
		at := re.FindStringIndex(topic) // the first match, and of those that begin there the longest
		return at != nil && at[0] == 0 && at[1] == len(topic)
	})
}

// compile returns a pattern and its number of steps. It allocates no memory for a pattern with too many steps.
func compile(expr string) (*regexp.Regexp, int, error) {
	if err := check(expr); err != nil {
		return nil, 0, err
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, 0, why(err)
	}
	n := steps(tree)
	if n > maxSteps {
		return nil, n, fmt.Errorf("it takes %d steps, more than %d", n, maxSteps)
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, n, why(err)
	}
	re.Longest()
	return re, n, nil
}

// check refuses expressions that versions of Go may read differently: classes of Unicode, which grow, and names of groups, whose
// syntax has grown. It refuses runes by their numbers, too: a class of many beyond ASCII, with (?i), takes half a second to
// compile.
func check(expr string) error {
	if len(expr) > MaxPattern {
		return fmt.Errorf("it has %d bytes, more than %d", len(expr), MaxPattern)
	}
	for i := range len(expr) {
		if expr[i] <= ' ' || expr[i] > '~' {
			return fmt.Errorf("byte %d is not a printable character of ASCII", i)
		}
		if i > 0 && expr[i-1] == '\\' && (expr[i] >= '0' && expr[i] <= '7' || expr[i] == 'x') {
			return fmt.Errorf("%s is not allowed", expr[i-1:i+1])
		}
	}
	for _, refused := range []string{`\p`, `\P`, "(?P", "(?<"} {
		if strings.Contains(expr, refused) {
			return fmt.Errorf("%s is not allowed", refused)
		}
	}
	return nil
}

// why returns the reason of a syntax error without the pattern.
func why(err error) error {
	if wrong, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("%s: %.60q", wrong.Code, wrong.Expr)
	}
	return err
}

// steps returns about how many instructions a pattern is compiled to, and at most [maxSteps] and one.
func steps(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpAlternate:
		n += len(re.Sub) // a jump to each
	case syntax.OpRepeat:
		n = n*max(re.Max, re.Min) + max(re.Max-re.Min, 0) + 1 // a jump to each that may be left out
	default:
		n++
	}
	return min(n, maxSteps+1)
}
