package functional

import (
	"slices"
	"strings"
	"testing"
)

// small is a file with all that Generate changes.
const small = `//go:build functional

package sarama

import (
	"testing"
)

type noop struct{}

func (noop) Setup(ConsumerGroupSession) error { return nil }

type member struct {
	*ConsumerMessage
	claims map[string]int
}

func TestFuncOne(t *testing.T) {
	checkKafkaVersion(t, "1.0")
	_ = member{ConsumerMessage: &ConsumerMessage{}}
}

func (m *member) Setup(s ConsumerGroupSession) error { return nil }

func (m *member) WaitForClaims() {
	m.waitFor(func() (interface{}, error) {
		return m.claims, nil
	})
}

func (m *member) WaitForState(expected int32) {
	m.waitFor(func() (interface{}, error) {
		return int32(1), nil
	})
}

func (m *member) waitFor(func() (interface{}, error)) {}
`

func TestGenerate(t *testing.T) {
	source, err := Generate("small_test.go", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"TestFuncOne"}; !slices.Equal(source.Tests, want) {
		t.Errorf("tests %v, want %v", source.Tests, want)
	}
	was, is := strings.Split(small, "\n"), strings.Split(string(source.Text), "\n")
	if len(was) != len(is) {
		t.Fatalf("%d lines, want %d:\n%s", len(is), len(was), source.Text)
	}
	want := map[string]string{
		"//go:build functional": "// Code generated from sarama's small_test.go. DO NOT EDIT.",
		"package sarama":        "package suite",
		"import (":              `import ( "github.com/IBM/sarama"`,
		"func (noop) Setup(ConsumerGroupSession) error { return nil }": "func (noop) Setup(sarama.ConsumerGroupSession) error { return nil }",
		"	*ConsumerMessage":                                                   "	*sarama.ConsumerMessage",
		`	checkKafkaVersion(t, "1.0")`:                                        `	CheckKafkaVersion(t, "1.0")`,
		"	_ = member{ConsumerMessage: &ConsumerMessage{}}":                    "	_ = member{ConsumerMessage: &sarama.ConsumerMessage{}}",
		"func (m *member) Setup(s ConsumerGroupSession) error { return nil }": "func (m *member) Setup(s sarama.ConsumerGroupSession) error { Joined(m, s); return nil }",
		"		return int32(1), nil":                                              "		return Reached(expected, int32(1)), nil",
	}
	claims := slices.Index(was, "		return m.claims, nil")
	for i := range was {
		expected, changed := want[was[i]]
		switch {
		case i >= claims-1 && i <= claims+1: // one line moves there
		case changed && is[i] != expected, !changed && is[i] != was[i]:
			t.Errorf("line %d: %s", i+1, is[i])
		}
	}
	if !strings.Contains(string(source.Text), "return Claims(m), nil") {
		t.Errorf("claims are not read live:\n%s", source.Text)
	}
}

func TestGenerateRefuses(t *testing.T) {
	for name, c := range map[string]struct{ old, text, says string }{
		"an unknown helper": {"checkKafkaVersion", "resetProxies", "resetProxies: package suite has nothing"},
		"a renamed import":  {`"testing"`, `check "testing"`, "import"},
		"no imports":        {"import (\n\t\"testing\"\n)", "", "no list of imports"},
		"no live claims":    {"WaitForClaims", "AwaitClaims", "WaitForClaims: changed 0, want 1"},
		"two of a name":     {"func (m *member) WaitForClaims", "func (m *other) WaitForState(expected int32) {\n\tm.waitFor(func() (interface{}, error) {\n\t\treturn int32(1), nil\n\t})\n}\nfunc (m *member) WaitForClaims", "WaitForState: changed 2, want 1"},
		"not Go":            {"package sarama", "", "expected 'package'"},
	} {
		_, err := Generate("small_test.go", []byte(strings.Replace(small, c.old, c.text, 1)))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
