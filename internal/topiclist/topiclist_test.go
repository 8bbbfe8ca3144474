package topiclist

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func TestAsks(t *testing.T) {
	for list, tests := range map[string]struct{ asks, refuses string }{
		"orders":                           {"orders", "order orders-eu"},
		`^orders-.*`:                       {"orders- orders-eu orders-eu.v2", "orders my-orders-eu Orders-eu"},
		`^orders`:                          {"orders", "orders-eu order"}, // the whole name
		`^orders-.* !^orders-test.*`:       {"orders-eu orders-tes", "orders-test orders-test-1 orders"},
		`^orders-.* !^.*test`:              {"orders-test-1", "orders-test"},
		`^a.* ^b.* !^.*x !^.*y`:            {"a b az", "ax by c"},
		`^a.* !^a.* ab`:                    {"ab", "aa a"}, // a name always counts
		`^.*`:                              {"a _schemas a__b .a ...", "__consumer_offsets __transaction_state __x"},
		`^.* __consumer_offsets`:           {"__consumer_offsets", "__transaction_state"},
		`^[^a]*`:                           {"b", "a b:c . .. b/c \u00e9 b\nc"}, // what can't be a topic's name
		`^a|b`:                             {"a b", "ab ba"},
		`^(?i)orders`:                      {"ORDERS orders", "ORDER"},
		`^a+?`:                             {"a aaa", "b"},
		`^a|ab`:                            {"a ab", "abb"}, // the longest of the matches that begin first
		`^(a|ab)(c|bcd)`:                   {"ac abc abcd", "ab abcdd"},
		`^\Qa.b\E.*`:                       {"a.bc", "axbc"},
		`^\Qa.b`:                           {"a.b", "a.bc"},
		`^orders-(eu|us)-[0-9]{1,3}\.v\d+`: {"orders-eu-12.v1", "orders-eu-1234.v1 orders-eu-12.v"},
		`^$ ^`:                             {"", "a"},
	} {
		l, err := Parse(strings.Fields(list))
		if err != nil {
			t.Errorf("%s: %v", list, err)
			continue
		}
		for topic := range strings.FieldsSeq(tests.asks) {
			if !l.Asks(topic) {
				t.Errorf("%s does not ask for %q", list, topic)
			}
		}
		for _, topic := range append(strings.Split(tests.refuses, " "), "", strings.Repeat("a", 250)) {
			if l.Asks(topic) {
				t.Errorf("%s asks for %q", list, topic)
			}
		}
	}
}

func TestParse(t *testing.T) {
	l, err := Parse([]string{"^b.*", "u", "!^bb", "t", "u", "^b.*"})
	if err != nil || !slices.Equal(l.Entries, []string{"!^bb", "^b.*", "t", "u"}) || !slices.Equal(l.Names, []string{"t", "u"}) || !l.HasPatterns() {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := Parse([]string{"t"}); err != nil || l.HasPatterns() || HasPatterns(l.Entries) {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := Parse(nil); err != nil || l.HasPatterns() || l.Asks("t") {
		t.Errorf("%+v, %v", l, err)
	}
	if err := errorOf(Parse(slices.Repeat([]string{"^a"}, 200))); err != nil {
		t.Errorf("one pattern, written 200 times: %v", err)
	}
}

func errorOf(_ *List, err error) error { return err }

// A list may come from anybody. An error names what is wrong, shortly and in printable characters.
func TestParseRefuses(t *testing.T) {
	many := func(n int) (list []string) {
		for i := range n {
			list = append(list, "^"+strings.Repeat("a", i))
		}
		return list
	}
	for what, test := range map[string]struct {
		list []string
		says string
	}{
		"no name":                    {[]string{""}, "empty"},
		"a bad name":                 {[]string{"a/b"}, "a/b"},
		"a pattern without its sign": {[]string{"a.*"}, `"a.*"`},
		"an exclusion without ^":     {[]string{"^a", "!b"}, `"!b"`},
		"an exclusion alone":         {[]string{"!^a"}, "no pattern to exclude topics from"},
		"an exclusion beside a name": {[]string{"a", "!^a"}, "no pattern to exclude topics from"},
		"no pattern":                 {[]string{"^a("}, `topic pattern "^a(": missing closing )`},
		"a group that is not closed": {[]string{"^a)|(b"}, "unexpected )"},
		"too long":                   {[]string{"^" + strings.Repeat("a", MaxPattern)}, "it has 1001 bytes, more than 1000"},
		"not ASCII":                  {[]string{"^caf\u00e9"}, "byte 4"},
		"a control character":        {[]string{"^a\x1b[31m"}, "byte 2"},
		"not UTF-8":                  {[]string{"^\xff"}, "byte 1"},
		"a class of Unicode":         {[]string{`^\pL`}, `\p is not allowed`},
		"the opposite of one":        {[]string{`^a\PL`}, `\P is not allowed`},
		"a range of Unicode":         {[]string{`^(?i)[B-\x{1e942}]`}, `\x is not allowed`},
		"an octal number":            {[]string{`^(?i)[B-\777]`}, `\7 is not allowed`},
		"a named group":              {[]string{`^(?P<n>a)`}, "(?P is not allowed"},
		"a newly named group":        {[]string{`^(?<n>a)`}, "(?< is not allowed"},
		"what RE2 does not have":     {[]string{`^(?!a)b`}, "invalid or unsupported Perl syntax"},
		"a back reference":           {[]string{`^(a)\1`}, `\1 is not allowed`},
		"too many repetitions":       {[]string{`^a{1001}`}, "invalid repeat count"},
		"nested repetitions":         {[]string{`^((a{50}){50}){50}`}, "invalid repeat count"},
		"too many steps":             {[]string{`^(abc){1000}`}, "steps, more than 1000"},
		"too many steps in all":      {[]string{"^a{500}", "^b{400}", "^c{400}"}, "more than 1000 steps"},
		"too many patterns":          {many(MaxPatterns + 1)[:], "more than"},
		"too many exclusions":        {append(slices.Repeat([]string{"^x"}, 1), exclusions(MaxPatterns)...), "more than 100"},
	} {
		l, err := Parse(test.list)
		if l != nil || !errors.Is(err, kiel.ErrInvalidName) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want what says %q", what, err, test.says)
		}
		if err != nil && (len(err.Error()) > 500 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) })) {
			t.Errorf("%s: %q", what, err)
		}
	}
	noerr.Want(t, errorOf(Parse(append(exclusions(MaxPatterns-1), "^x"))))
}

// exclusions returns n short patterns.
func exclusions(n int) (list []string) {
	for i := range n {
		list = append(list, "!^"+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	return list
}

// A list that fills a record is read in no time, whatever its patterns are made of.
func TestParseQuickly(t *testing.T) {
	for _, part := range []string{
		`[B-\x{1e942}]`, `[\x{0}-\x{10fffe}]`, `[\001-\777]`, `[\x01-\xff]`, `[^a-z]`, `\W`, `[[:^word:]]`, `[^\W\D\S]`, `(a|b)`, `a|b|`, "(((((", "a*?", "[!-~]",
	} {
		const size = 64 << 10
		list := []string{}
		for i := range size / MaxPattern {
			begin := fmt.Sprintf("^(?i)%d", i)
			n := (MaxPattern - len(begin) - 2) / len(part)
			list = append(list, begin+strings.Repeat(part, n))
			if inner, ok := strings.CutPrefix(part, "["); ok && !strings.HasPrefix(inner, "[") && inner[0] != '^' { // all in one class
				list[i] = begin + "[" + strings.Repeat(strings.TrimSuffix(inner, "]"), n) + "]"
			}
		}
		const tries = 3 // a machine with other work is late now and then
		var took time.Duration
		var err error
		for try := 0; try == 0 || try < tries && took > 2*time.Second; try++ {
			began := time.Now()
			err = errorOf(Parse(list))
			took = time.Since(began)
		}
		if took > 2*time.Second {
			t.Errorf("%s: %v, %v", part, took, err)
		}
	}
}

// The steps of a pattern are those of its program, or more.
func TestSteps(t *testing.T) {
	for _, expr := range []string{"^a{500}b{400}", "^(a?){200}", `^(?i)[a-z]{800}(.|x)*`, "^((a|b|cd)*e+){75}", "^(a{2,10}){40}", "^" + strings.Repeat("a|bc|", 140)} {
		_, n, err := compile(expr)
		if err != nil {
			t.Errorf("%.40s: %v", expr, err)
			continue
		}
		if insts := instructions(t, expr); insts > n+n/2+10 || n > 2*insts {
			t.Errorf("%.40s: %d steps, %d instructions", expr, n, insts)
		}
	}
}

// FuzzParse: nothing that is read makes it fail otherwise than by an error, and a topic is found if the pattern, taken as the
// whole of an expression, matches it.
func FuzzParse(f *testing.F) {
	f.Add("^orders-.*", "orders-eu")
	f.Add(`^a|\Qb`, "ab")
	f.Add("^(a|ab)(c|bcd)*?", "abcd")
	f.Add(`^(?i)a{2,5}$|x`, "AAa")
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		l, err := Parse([]string{pattern})
		if err != nil || !l.HasPatterns() {
			return
		}
		if strings.Contains(pattern, `\Q`) || kiel.CheckTopic(topic) != nil || strings.HasPrefix(topic, "__") {
			return // a quotation may not be closed
		}
		if want := regexp.MustCompile(`\A(?:` + pattern + `)\z`).MatchString(topic); l.Asks(topic) != want {
			t.Errorf("%q finds %q: %t", pattern, topic, !want)
		}
	})
}

// instructions returns the size of a pattern's program.
func instructions(t *testing.T, expr string) int {
	t.Helper()
	tree, err := syntax.Parse(expr, syntax.Perl)
	noerr.Must(t, err)
	prog, err := syntax.Compile(tree.Simplify())
	noerr.Must(t, err)
	return len(prog.Inst)
}
