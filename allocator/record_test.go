package allocator

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/party"
)

func TestRecordOnTheWire(t *testing.T) {
	second := allocfn.Range()
	second.Version = 2
	for want, o := range map[string]Options{
		`{"v":1,"functions":["roundrobin/1"]}`: {},
		`{"v":1,"functions":["range/2","range/1"]}`: {
			Func: second, AlsoFuncs: []allocfn.Func{allocfn.Range()},
		},
		`{"v":1,"functions":["range/1","roundrobin/1"],"weight":3,"zone":"eu-1a","topics":["t","u"]}`: {
			Func: allocfn.Range(), AlsoFuncs: []allocfn.Func{allocfn.RoundRobin()}, Weight: 3, Zone: "eu-1a", Topics: []string{"t", "u"},
		},
		`{"v":1,"functions":["roundrobin/1"],"cluster":"MkU3OEVBNTcwNTJENDM2Qg"}`: {Cluster: "MkU3OEVBNTcwNTJENDM2Qg"},
		`{"v":1,"functions":["roundrobin/1"],"static":true}`:                      {Static: true},
	} {
		o, err := o.withDefaults()
		noerr.Must(t, err)
		data, err := newRecord(o).encode()
		if err != nil || string(data) != want {
			t.Errorf("got %s, %v, want %s", data, err, want)
		}
		r, ok, err := parseRecord(data, topiclist.Parse)
		r.asks = nil
		if err != nil || !ok || fmt.Sprint(r) != fmt.Sprint(newRecord(o)) {
			t.Errorf("read back %v, %t, %v", r, ok, err)
		}
	}
}

func TestParseRecord(t *testing.T) {
	for data, good := range map[string]bool{
		`{"v":1,"functions":["range"]}`:                   true,
		`{"v":1,"functions":["range/1","range/12"]}`:      true,
		`{"v":1,"functions":["range/0"]}`:                 false,
		`{"v":1,"functions":["range/01"]}`:                false,
		`{"v":1,"functions":["range/"]}`:                  false,
		`{"v":1,"functions":["range/1/1"]}`:               false,
		`{"v":1,"functions":["/1"]}`:                      false,
		`{"v":1,"functions":["range/1000001"]}`:           false,
		`{"v":1,"functions":["range"],"later":{"x":[1]}}`: true,
		`{"v":1,"functions":["range"],"weight":1000000}`:  true,
		`null`:                           false,
		`[]`:                             false,
		`{}`:                             false,
		`hello`:                          false,
		"\xff\xfe":                       false,
		`{"v":1}`:                        false,
		`{"v":2,"functions":["range"]}`:  false,
		`{"v":1,"functions":[]}`:         false,
		`{"v":1,"functions":["Range!"]}`: false,
		`{"v":1,"functions":["range"],"weight":-1}`:                      false,
		`{"v":1,"functions":["range"],"weight":1000001}`:                 false,
		`{"v":1,"functions":["range"],"weight":1e400}`:                   false,
		`{"v":1,"functions":["range"],"weight":1.5}`:                     false,
		`{"v":1,"functions":["range"],"zone":"a\u0000b"}`:                false,
		`{"v":1,"functions":["range"],"topics":["a/b"]}`:                 false,
		`{"v":1,"functions":["range"],"topics":["t","^a.*","!^ab"]}`:     true,
		`{"v":1,"functions":["range"],"topics":["^a("]}`:                 false,
		`{"v":1,"functions":["range"],"topics":["t","!^ab"]}`:            false,
		`{"v":1,"functions":["range"],"topics":["^` + fill(1000) + `"]}`: false,
		`{"v":1,"functions":["range"],"topics":["^(a{1000}){3}"]}`:       false,
		`{"v":1,"functions":["range"]} trailing`:                         false,
		`{"v":1,"functions":["range"`:                                    false,
		strings.Repeat("[", party.MaxRecord):                             false,
		strings.Repeat(" ", party.MaxRecord+1):                           false,
		`{"v":1,"functions":["` + longList(40) + `"]}`:                   false,
		`{"v":1,"functions":["range"],"zone":"` + fill(250) + `"}`:       false,
	} {
		_, ok, err := parseRecord([]byte(data), topiclist.Parse)
		if ok != good || (err == nil) != good || err != nil && !errors.Is(err, ErrBadRecord) {
			t.Errorf("%.60q: %t, %v", data, ok, err)
		}
	}
	if _, ok, err := parseRecord(nil, topiclist.Parse); ok || err != nil {
		t.Error("no data:", ok, err)
	}
}

// TestClusterInARecord is red if a text in place of a cluster makes a record bad that is good for members of versions which do
// not have the field: then members would compute different mappings.
func TestClusterInARecord(t *testing.T) {
	type oldRecord struct { // as versions without the field have it
		V         int      `json:"v"`
		Functions []string `json:"functions"`
		Weight    int      `json:"weight,omitempty"`
		Zone      string   `json:"zone,omitempty"`
		Topics    []string `json:"topics,omitempty"`
	}
	for value, want := range map[string]cluster{
		`"A"`: "A", `"a\u0041"`: "aA", `""`: "", `null`: "", `5`: "", `-1e400`: "", `true`: "", `["A"]`: "", `{"id":"A"}`: "",
		`"a b"`: "", `"\u0000"`: "", `"\ud800"`: "", `"` + fill(128) + `"`: cluster(fill(128)), `"` + fill(129) + `"`: "",
		`"` + fill(60000) + `"`: "",
	} {
		data := []byte(`{"v":1,"functions":["range/1"],"weight":2,"cluster":` + value + `,"zone":"z","topics":["t"]}`)
		r, ok, err := parseRecord(data, topiclist.Parse)
		var old oldRecord
		oldErr := json.Unmarshal(data, &old)
		if oldErr != nil || err != nil || !ok || r.Cluster != want {
			t.Errorf("%.60q: %q, %t, %v; without the field %v", value, r.Cluster, ok, err, oldErr)
		}
		if fmt.Sprint(old) != fmt.Sprint(oldRecord{r.V, r.Functions, r.Weight, r.Zone, r.Topics}) {
			t.Errorf("%.60q: read %v, without the field %v", value, r, old)
		}
		if got := clusterIn(data); got != want {
			t.Errorf("%.60q: before the join read as %q", value, got)
		}
	}
	o := Options{Cluster: strings.Repeat("<", MaxCluster), Topics: []string{fill(200)}}
	if data, err := newRecord(o).encode(); err != nil || len(data) > 2000 {
		t.Errorf("the largest id makes a record of %d bytes: %v", len(data), err)
	}
}

// Anything but true in place of static means that the member is not static, and makes no record bad, for the same reason.
func TestStaticInARecord(t *testing.T) {
	for value, want := range map[string]bool{`true`: true, `false`: false, `null`: false, `1`: false, `"true"`: false, `[true]`: false, `{}`: false} {
		data := []byte(`{"v":1,"functions":["range/1"],"static":` + value + `,"zone":"z"}`)
		r, ok, err := parseRecord(data, topiclist.Parse)
		if err != nil || !ok || bool(r.Static) != want || isStatic(data) != want {
			t.Errorf("%s: %t, %t, %t, %v", value, r.Static, isStatic(data), ok, err)
		}
	}
	for _, data := range []string{"", "static", `{"v":1}`, `[]`} {
		if isStatic([]byte(data)) {
			t.Errorf("%q is said to be a static member's", data)
		}
	}
}

func longList(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("f%d", i))
	}
	return strings.Join(names, `","`)
}

func fill(n int) string { return strings.Repeat("x", n) }

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"functions":["range"],"weight":2,"zone":"a","topics":["t"]}`))
	f.Add([]byte(`{"v":1,"functions":["range"],"topics":["t","^a{500}b{400}","!^(?i)[^a-z]{1000}(.|x)*"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, ok, err := parseRecord(data, topiclist.Parse)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(64*len(data)+2<<20) { // patterns take up to 2 MiB, however short
			t.Fatalf("%d bytes made it allocate %d", len(data), grown)
		}
		if ok && err != nil {
			t.Fatal("good and bad")
		}
		if ok {
			again, err := r.encode()
			if err != nil {
				return // longer when written by us
			}
			if _, ok, err := parseRecord(again, topiclist.Parse); !ok {
				t.Fatalf("%q became %q: %v", data, again, err)
			}
		}
	})
}

func TestChooseFunc(t *testing.T) {
	have := []allocfn.Func{allocfn.Range(), allocfn.RoundRobin()}
	for name, test := range map[string]struct {
		lists [][]string
		want  string
	}{
		"alone":                         {[][]string{{"range", "roundrobin"}}, "range"},
		"the first member decides":      {[][]string{{"roundrobin", "range"}, {"range", "roundrobin"}}, "roundrobin"},
		"what all can run":              {[][]string{{"range", "roundrobin"}, {"roundrobin"}}, "roundrobin"},
		"no members":                    {nil, "range"},
		"nothing in common":             {[][]string{{"range"}, {"roundrobin"}}, ""},
		"what we do not have":           {[][]string{{"sticky"}, {"sticky"}}, ""},
		"nothing that all three share":  {[][]string{{"range", "roundrobin"}, {"range"}, {"roundrobin"}}, ""},
		"first of several common":       {[][]string{{"x", "range", "roundrobin"}, {"roundrobin", "range"}}, "range"},
		"one that others prefer less":   {[][]string{{"range"}, {"x", "y", "range"}}, "range"},
		"of one version":                {[][]string{{"range/2", "range"}, {"range/1"}}, "range"},
		"another version":               {[][]string{{"range"}, {"range/2"}}, ""},
		"python among them, by default": {[][]string{{"range", "roundrobin"}, nil}, "roundrobin"},
	} {
		t.Run(name, func(t *testing.T) {
			var ms []party.Member
			for i, list := range test.lists {
				m := party.Member{Name: fmt.Sprintf("m%d", i)}
				if list != nil {
					m.Data = fmt.Appendf(nil, `{"v":1,"functions":["%s"]}`, strings.Join(list, `","`))
				}
				ms = append(ms, m)
			}
			members, _ := readMembers(ms, "roundrobin/1", &inputs{})
			for _, m := range members {
				if m.fault != nil {
					t.Fatal(m.fault)
				}
			}
			f, err := chooseFunc(members, have)
			if f.Name != test.want || (err == nil) != (test.want != "") || err != nil && !errors.Is(err, ErrFuncMismatch) {
				t.Errorf("got %q, %v, want %q", f.Name, err, test.want)
			}
		})
	}
}

func TestMismatchOfManyIsShort(t *testing.T) {
	var ms []member
	for i := range 1000 {
		ms = append(ms, member{Member: allocfn.Member{Name: fmt.Sprintf("m%03d", i)}, runs: []string{[]string{"range", "roundrobin"}[i%2]}})
	}
	_, err := chooseFunc(ms, []allocfn.Func{allocfn.Range()})
	if len(err.Error()) > 300 || !strings.Contains(err.Error(), `"m000"`) || !strings.Contains(err.Error(), "495 more") {
		t.Error(err)
	}
}
