package consumer

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/internal/testonly/assert"
	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// configRow is a row of the page about sarama.Config.
type configRow struct{ field, byDefault, here string }

// The words of the column "here".
const (
	honoured = "honoured"
	bounded  = "bounded"
	named    = "named"
	differs  = "differs"
	nothing  = "nothing"
)

// configRows reads the tables of the page.
func configRows(t *testing.T) []configRow {
	t.Helper()
	text, err := os.ReadFile("../" + configPage)
	noerr.Must(t, err)
	var rows []configRow
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if field := strings.TrimSpace(cells[0]); len(cells) == 4 && strings.HasPrefix(field, "`") {
			rows = append(rows, configRow{strings.Trim(field, "`"), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
		}
	}
	return rows
}

// leaves returns the exported fields of a struct and of the structs in it, each with its path. A struct that shows no fields is a
// leaf.
func leaves(t reflect.Type, path string) map[string][]int {
	all := map[string][]int{}
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		name := path + f.Name
		if f.Type.Kind() == reflect.Struct {
			below := leaves(f.Type, name+".")
			for n, index := range below {
				all[n] = append([]int{f.Index[0]}, index...)
			}
			if len(below) > 0 {
				continue
			}
		}
		all[name] = f.Index
	}
	return all
}

// compareRows returns what is wrong with rows as a description of the fields of a struct: each has one row. A row "A.*" is one
// for all fields of A.
func compareRows(rows []configRow, t reflect.Type) (faults []string) {
	fields := slices.Sorted(maps.Keys(leaves(t, "")))
	matches := func(row, field string) bool {
		prefix, all := strings.CutSuffix(row, "*")
		return row == field || all && strings.HasPrefix(field, prefix)
	}
	for _, f := range fields {
		n := 0
		for _, r := range rows {
			if matches(r.field, f) {
				n++
			}
		}
		if n != 1 {
			faults = append(faults, fmt.Sprintf("%s has %d rows", f, n))
		}
	}
	for _, r := range rows {
		if !slices.ContainsFunc(fields, func(f string) bool { return matches(r.field, f) }) {
			faults = append(faults, r.field+" is no field")
		}
	}
	return faults
}

// Each field of sarama.Config has one row in the page, with sarama's default. A field that a new sarama adds fails here.
func TestConfigPageHasAllFields(t *testing.T) {
	rows := configRows(t)
	for _, fault := range compareRows(rows, reflect.TypeFor[sarama.Config]()) {
		t.Error(fault)
	}
	words := []string{honoured, bounded, named, differs, nothing}
	fields, defaults := leaves(reflect.TypeFor[sarama.Config](), ""), reflect.ValueOf(*sarama.NewConfig())
	for _, r := range rows {
		if !slices.Contains(words, r.here) {
			t.Errorf("%s: %q is none of %q", r.field, r.here, words)
		}
		if index := fields[r.field]; index != nil {
			if want := showDefault(defaults.FieldByIndex(index)); r.byDefault != want {
				t.Errorf("%s: the page says that the default is %s, sarama says %s", r.field, r.byDefault, want)
			}
		}
	}
}

// showDefault returns a default as the page shows it.
func showDefault(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case []sarama.BalanceStrategy:
		return strings.Trim(strategyNames(x), `[]"`)
	case fmt.Stringer:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			return "a new one"
		}
		return "nil"
	case reflect.String:
		return fmt.Sprintf("%q", v)
	case reflect.Slice, reflect.Func, reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
	default:
	}
	return fmt.Sprint(v)
}

// The comparison finds what a new sarama may change.
func TestConfigComparisonFindsFaults(t *testing.T) {
	type grown struct {
		Kept  int
		Group struct {
			Timeout time.Duration
			Added   bool // by a new version
		}
		Producer struct{ A, B int }
		Other    struct{ A int }
	}
	got := compareRows([]configRow{
		{field: "Kept"}, {field: "Group.Timeout"}, {field: "Group.Timeout"}, {field: "Removed"}, {field: "Producer.*"}, {field: "Admin.*"},
	}, reflect.TypeFor[grown]())
	want := []string{"Group.Added has 0 rows", "Group.Timeout has 2 rows", "Other.A has 0 rows", "Removed is no field", "Admin.* is no field"}
	assert.Slices(t, got, want, "found")
}

// otherValue returns a value for a field that is not its default, and that sarama accepts if the field is named in the page.
func otherValue(t *testing.T, field string, v reflect.Value) reflect.Value {
	t.Helper()
	if x, ok := map[string]any{
		"Net.TLS.Config":                           &tls.Config{MinVersion: tls.VersionTLS13},
		"Net.LocalAddr":                            &net.TCPAddr{},
		"Net.Proxy.Dialer":                         &net.Dialer{},
		"Net.SASL.TokenProvider":                   struct{ sarama.AccessTokenProvider }{},
		"Consumer.Interceptors":                    []sarama.ConsumerInterceptor{nil},
		"Consumer.Offsets.Initial":                 sarama.OffsetOldest,
		"Consumer.Offsets.Retention":               48 * time.Hour,
		"Consumer.Fetch.Default":                   int32(1000),
		"Consumer.IsolationLevel":                  sarama.ReadCommitted,
		"Version":                                  sarama.V3_6_0_0,
		"MetricRegistry":                           sarama.NewConfig().MetricRegistry,
		"Metadata.Retry.BackoffFunc":               func(int, int) time.Duration { return 0 },
		"Consumer.Retry.BackoffFunc":               func(int) time.Duration { return 0 },
		"Metadata.RefreshFrequency":                time.Duration(0),
		"Consumer.Group.InstanceId":                "secret-free",
		"Consumer.Group.Member.UserData":           []byte("geheim"),
		"Consumer.Group.Rebalance.Strategy":        sarama.NewBalanceStrategySticky(),
		"Consumer.Group.Rebalance.GroupStrategies": []sarama.BalanceStrategy{sarama.NewBalanceStrategyRoundRobin()},
	}[field]; ok {
		return reflect.ValueOf(x)
	}
	other := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Bool:
		other.SetBool(!v.Bool())
	case reflect.Int64:
		other.SetInt(v.Int() + int64(time.Second))
	case reflect.Int, reflect.Int16, reflect.Int32:
		other.SetInt(v.Int() + 1)
	case reflect.String:
		other.SetString("x" + v.String())
	case reflect.Func:
		other.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { panic("not called") }))
	default:
		t.Fatalf("%s: which other value has a %s?", field, v.Type())
	}
	return other
}

// A field that the page calls named or bounded is named in the warning when it is set, and no other field is.
func TestConfigPageAgreesWithWarning(t *testing.T) {
	fields := leaves(reflect.TypeFor[sarama.Config](), "")
	for _, r := range configRows(t) {
		index := fields[r.field]
		if index == nil {
			continue // a row for many fields
		}
		config := sarama.NewConfig()
		v := reflect.ValueOf(config).Elem().FieldByIndex(index)
		v.Set(otherValue(t, r.field, v).Convert(v.Type()))
		got := unhonoured(config, policy{from: Earliest})
		if r.here != named && r.here != bounded {
			if len(got) > 0 {
				t.Errorf("%s is %s, and the warning names %q", r.field, r.here, got)
			}
			continue
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], r.field+"=") || strings.HasSuffix(got[0], ": ") {
			t.Errorf("%s is %s, and the warning names %q", r.field, r.here, got)
			continue
		}
		logs := newWarned(t, Options{Config: config})
		if n := strings.Count(logs, "not honoured"); n != 1 || !strings.Contains(logs, r.field+"=") || strings.Contains(logs, "geheim") {
			t.Errorf("%s: New logged %s", r.field, logs)
		}
	}
}

// newWarned returns what New logs.
func newWarned(t *testing.T, opts Options) string {
	t.Helper()
	logs := logtest.Capture(t)
	s := idleSession(t)
	if _, err := New(s, []string{"nowhere.invalid:9092"}, "g", opts); err != nil {
		t.Fatal(err)
	}
	return logs.String()
}

// The warning names no field that is within the bounds or says the same as an option.
func TestConfigWithinBounds(t *testing.T) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = 10*time.Second, 10*time.Second, 5*time.Second
	config.Metadata.RefreshFrequency = time.Minute
	config.Consumer.Fetch.Default = 16384
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.Retention = 48 * time.Hour
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	assert.Equal(t, newWarned(t, Options{Config: config}), "", "New logged")
	if got := unhonoured(config, policy{from: Latest, option: "Options.StartAt"}); len(got) != 1 || !strings.HasPrefix(got[0], "Consumer.Offsets.Initial=-2: ") {
		t.Errorf("OffsetOldest with StartAt Latest: %q", got)
	}
	assert.Equal(t, newWarned(t, Options{}), "", "without a Config New logged")
}

// One warning names all fields, and separates them, so that a reader sees where one ends.
func TestConfigWarningIsOne(t *testing.T) {
	config := sarama.NewConfig()
	config.Consumer.Group.Member.UserData = []byte("a")
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Net.DialTimeout = time.Minute
	logs := newWarned(t, Options{Config: config})
	for _, part := range []string{`Consumer.Group.Member.UserData=`, "; Consumer.Group.Heartbeat.Interval=1s", "Net.DialTimeout=1m0s: 10s at most", "Options.Name", configPage} {
		if !strings.Contains(logs, part) {
			t.Errorf("%q is missing in %s", part, logs)
		}
	}
	if n := strings.Count(logs, "\n"); n != 1 || !strings.Contains(logs, "level=WARN") {
		t.Errorf("New logged %d lines: %s", n, logs)
	}
}
