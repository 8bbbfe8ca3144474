package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/status"
)

func answerWith(rest string) string {
	return fmt.Sprintf(`{"version":%d,"group":"g","self":{"name":"m"}%s}`, status.Version, rest)
}

// An answer of many or of large values costs no more memory than one of them, and what is not kept of it is garbage at once.
func TestAnswersHaveBoundedMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		rest string
		want error
	}{
		"empty partitions": {`,"partitions":[{}` + strings.Repeat(",{}", 1<<20) + "]", nil},
		"foreign":          {`,"partitions":[{}` + strings.Repeat(`,{"topic":"t","partition":8,"offsets":{}}`, 90000) + "]", nil},
		"troubles":         {`,"troubles":[{}` + strings.Repeat(`,{"kind":"k"}`, 300000) + "]", nil},
		"names":            {`,"troubles":[{"about":[""` + strings.Repeat(`,""`, 1<<20) + "]}]", errTooLarge},
		"deep":             {`,"x":` + strings.Repeat("[", 1<<20), errNoStatus},
		"unknown":          {`,"x":[0` + strings.Repeat(",0", 1<<20) + "]", errTooLarge},
		"skipped":          {`,"members":[{}` + strings.Repeat(",{}", 1<<20) + "]", nil},
		"long":             {`,"members":[{}` + strings.Repeat(`,{"name":"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"}`, 80000) + "]", errTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			body := answerWith(tc.rest)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var most uint64
			g, err := readAnswer(&slowed{from: strings.NewReader(body), each: func() {
				runtime.GC()
				runtime.ReadMemStats(&after)
				most = max(most, after.HeapAlloc)
			}}, "g", "m", holders{{Topic: "t", ID: 7}: "m"})
			if !errors.Is(err, tc.want) || (g != nil) != (tc.want == nil) {
				t.Errorf("%v", err)
			}
			if held := int64(most) - int64(before.HeapAlloc); held > 2<<20 {
				t.Errorf("%d bytes were held while %d were read", held, len(body))
			}
			if g != nil && (len(g.Partitions) > 0 || len(g.Troubles) > maxTroubles) {
				t.Errorf("%d partitions, %d troubles are kept", len(g.Partitions), len(g.Troubles))
			}
		})
	}
}

// slowed calls each every few hundred kilobytes.
type slowed struct {
	from *strings.Reader
	each func()
	n    int
}

func (s *slowed) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if s.n += n; s.n > 300<<10 {
		s.n = 0
		s.each()
	}
	return n, err
}

// A member that has 2,000 partitions of its own, with names as long as Kafka takes, is heard.
func TestLargeAnswersAreRead(t *testing.T) {
	now, of, topic := time.Now(), holders{}, strings.Repeat("t", 249)
	g := statuswrite.Group("g", status.SourceMember, now)
	g.Self = &status.Self{Name: "m", Kafka: &status.Kafka{Reachable: true}}
	for i := range int32(2000) {
		g.Partitions = append(g.Partitions, status.Partition{
			Topic: topic, Partition: i, State: status.Owned, Planned: "member-with-a-name", Owner: "member-with-a-name", Since: &now, Token: 1 << 40, Previous: "member-with-another-name",
			Reason:  &status.Reason{Code: status.MemberGone, Names: []string{"member-with-another-name"}},
			Offsets: &status.Offsets{Position: 1 << 40, Committed: 1 << 40, Marked: 1 << 40, End: 1 << 40}, Times: &status.Times{Settle: 1.234567, Claim: 1.234567, Open: 1.234567, FirstMessage: 1.234567},
		})
		of[kiel.Partition{Topic: topic, ID: i}] = "m"
	}
	g.Troubles = append(g.Troubles, status.Trouble{Kind: "commit", About: []string{"t:1"}})
	body, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	said, err := readAnswer(bytes.NewReader(body), "g", "m", of)
	if err != nil || len(said.Partitions) != 2000 || said.Partitions[1999].Offsets.End != 1<<40 || len(said.Troubles) != 1 || !said.Self.Kafka.Reachable {
		t.Fatalf("of %d bytes: %v", len(body), err)
	}
	if len(body) > maxAnswer/2 {
		t.Errorf("a real answer has %d bytes: the bound is near", len(body))
	}
	t.Logf("%d bytes", len(body))
}
