package bench_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/test/bench/functions"
)

var keep = flag.Bool("keep", false, "measure allocation functions at all sizes and the data path in all cells, and write the figures to testdata, for test/cmd/plots")

// goals are what plans may take at functions.Sizes, in milliseconds.
var goals = []float64{0.09, 1.3, 10, 90, 120}

// TestAllocationTimes times the allocation functions beside those of Kafka clients; see package functions for what is timed. With
// one round it is the smallest size only.
func TestAllocationTimes(t *testing.T) {
	sizes := functions.Sizes()
	if *rounds == 1 && !*keep {
		sizes = sizes[:1]
	}
	file := functions.Times{Machine: machine(t)}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, s := range sizes {
		times, err := functions.TimeAll(functions.Contestants(), s, *rounds)
		if err != nil {
			t.Fatal(err)
		}
		file.Times = append(file.Times, times...)
		fmt.Fprintf(w, "%d × %d, topics of %d\tmin\tmedian\trounds\tallocations\tMB\t\n",
			s.Members, s.Partitions, s.TopicSize)
		for _, r := range times {
			fmt.Fprintf(w, "%s %s\t%.3f ms\t%.3f ms\t%d\t%d\t%.2f\t\n", r.Library, r.Name,
				float64(r.Min)/1e6, float64(r.Median)/1e6, r.Rounds, r.Allocs, float64(r.Bytes)/1e6)
			if r.Library == "kiel" && r.Name == "Balanced" {
				t.Attr(fmt.Sprintf("balanced_%dx%d", s.Members, s.Partitions),
					fmt.Sprintf("%.3f ms, median %.3f ms, goal %v ms", float64(r.Min)/1e6, float64(r.Median)/1e6, goals[i]))
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v\n%s", file.Machine, &table)
	if *keep {
		write(t, functions.TimesFile, file)
	}
}

// machine says what we run on.
func machine(t *testing.T) functions.Machine {
	t.Helper()
	m := functions.Machine{
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Cores: runtime.GOMAXPROCS(0),
		Date: time.Now().UTC().Format(time.DateOnly), Versions: make(map[string]string),
	}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if model := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(data); model != nil {
			m.CPU = string(model[1])
		}
	}
	gomod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"github.com/twmb/franz-go", "github.com/IBM/sarama"} {
		version := regexp.MustCompile(regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(gomod)
		if version == nil {
			t.Fatalf("go.mod does not require %s", module)
		}
		m.Versions[path.Base(module)] = string(version[1])
	}
	return m
}

// moveGoals are what functions may move at functions.MoveSizes, as a multiple of the least, when one joins and when one leaves.
var moveGoals = map[string][][2]float64{
	"Balanced":        {{1.25, 1.22}, {1.9, 1.9}, {3.2, 4.7}},
	"Ordinal":         {{1, 1}, {1, 1}, {1, 1}},
	functions.FranzGo: {{1, 1}, {1, 1}, {1, 1}},
}

// even returns the functions with which the numbers of partitions of two members must differ by at most one: of all partitions,
// and of those of one topic.
func even() (total, topic map[string]bool) {
	total, topic = map[string]bool{functions.FranzGo: true}, make(map[string]bool)
	for _, f := range allocfn.All() {
		total[f.Title], topic[f.Title] = f.Even, f.EvenInTopics
	}
	return total, topic
}

// TestAllocationMovement measures what allocation functions move when one member joins and when one leaves, and how even they
// are, and that testdata, of which the documentation is made, says the same. With one round it is done for the smallest groups
// only.
func TestAllocationMovement(t *testing.T) {
	most := math.MaxInt
	if *rounds == 1 && !*keep {
		most = functions.Small
	}
	file, err := functions.MeasureMovements(functions.Functions(), most)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmembers\tpartitions\tseeds\tjoin: times the least\tworst\tleave\tworst\tspread\tof a topic\t")
	for _, m := range file.Moves {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.3f\t%.2f\t%.3f\t%.2f\t%d\t%d\t\n", m.Function, m.Members, m.Partitions, m.Seeds,
			times(m.Join.Mean), times(m.Join.Worst), times(m.Leave.Mean), times(m.Leave.Worst), m.Spread, m.TopicSpread)
		for i, s := range functions.MoveSizes() {
			goals := moveGoals[m.Function]
			if s.Members != m.Members || goals == nil {
				continue
			}
			if times(m.Join.Mean) > goals[i][0] || times(m.Leave.Mean) > goals[i][1] {
				t.Errorf("%s, %d × %d: moved %.3f and %.3f times the least, want at most %v",
					m.Function, m.Members, m.Partitions, times(m.Join.Mean), times(m.Leave.Mean), goals[i])
			}
			t.Attr(fmt.Sprintf("%s_%dx%d", strings.ReplaceAll(strings.ToLower(m.Function), " ", "_"), m.Members, m.Partitions),
				fmt.Sprintf("join %.3f, worst %.2f; leave %.3f, worst %.2f", times(m.Join.Mean), times(m.Join.Worst),
					times(m.Leave.Mean), times(m.Leave.Worst)))
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &table)
	inTotal, inTopic := even()
	for _, m := range append(file.Moves, file.Curve...) {
		if inTotal[m.Function] && m.Spread > 1 {
			t.Errorf("%s, %d × %d: members differ by %d, want at most 1", m.Function, m.Members, m.Partitions, m.Spread)
		}
		if inTopic[m.Function] && m.TopicSpread > 1 {
			t.Errorf("%s, %d × %d: in a topic members differ by %d, want at most 1", m.Function, m.Members, m.Partitions, m.TopicSpread)
		}
	}
	if *keep {
		write(t, functions.MovementFile, file)
		return
	}
	kept, err := functions.ReadFile[functions.Movements]("testdata", functions.MovementFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range functions.Stale(&kept, file) {
		t.Errorf("measured, but not in testdata/movement.json; if the functions were to change, run make figures: %s", fault)
	}
}

// write keeps figures in testdata.
func write(t *testing.T, file string, figures any) {
	t.Helper()
	if err := functions.WriteFile("testdata", file, figures); err != nil {
		t.Fatal(err)
	}
}

func times(thousandths int) float64 { return float64(thousandths) / 1000 }
