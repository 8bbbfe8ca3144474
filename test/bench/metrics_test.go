package bench_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/bench/datapath"
)

// mostMetrics is what everything that is measured may cost, as a part of what the same costs without.
const mostMetrics = 0.03

// enoughRounds is from how many rounds on a median is compared with mostMetrics.
const enoughRounds = 5

// TestCostOfMetrics measures what a message, and a member that has nothing to do, cost with metrics that are registered and asked
// for, beside the same without. The two take turns. With -rounds of 5 or more it fails when metrics cost more than 3 %, in the
// median and in the best rounds, since other programs only ever make a round slower; with fewer they work, and no figure means
// anything.
func TestCostOfMetrics(t *testing.T) {
	r := newDataPathRig(t)
	measured := *rounds >= enoughRounds
	perPartition := func(cell datapath.Cell) int {
		if measured {
			return cell.PerPartition()
		}
		return 5000
	}
	all := []datapath.Cell{datapath.Goal()}
	if measured {
		all = append(all, datapath.Cell{Size: 1000, Partitions: 8, Compression: "zstd"}, datapath.Cell{Size: 100, Partitions: 200, Compression: "none"})
		all = matching(t, *cells, all)
	}
	for _, cell := range all {
		t.Run(cell.String(), func(t *testing.T) {
			n := perPartition(cell)
			small, large := r.fill(t, cell, n)
			for _, client := range matching(t, *clients, []datapath.Client{datapath.Kiel, datapath.KielSarama}) {
				t.Run(string(client), func(t *testing.T) {
					compare(t, measured, "ns for a message", func(more ...string) float64 {
						used := r.read(t, client, cell, large, n, more...).CPU - r.read(t, client, cell, small, 1, more...).CPU
						return float64(used) / float64((n-1)*cell.Partitions)
					})
				})
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		members, span := 4, time.Second
		if measured {
			members, span = 40, 30*time.Second
		}
		r.kafka.CreateTopic("idle", int32(members))
		args := []string{"-topic", "idle", "-idle", fmt.Sprint(members), "-for", span.String()}
		compare(t, measured, "µs in a second of an idle member", func(more ...string) float64 {
			sample, _ := r.run(t, "idle", append(slices.Clone(args), more...))
			return float64(sample.CPU.Microseconds()) / sample.Elapsed.Seconds() / float64(members)
		})
	})
}

// compare reports what measure returns with metrics and without, and by how much more that is; judged, it must not be much.
func compare(t *testing.T, judged bool, unit string, measure func(more ...string) float64) {
	t.Helper()
	var off, on, ratios []float64
	for round := range *rounds {
		var figures [2]float64 // without, with
		for i := range figures {
			with := (round + i) % 2
			figures[with] = measure(fmt.Sprintf("-metrics=%v", with == 1))
		}
		off, on, ratios = append(off, figures[0]), append(on, figures[1]), append(ratios, figures[1]/figures[0]-1)
	}
	more, least := datapath.Median(ratios), slices.Min(on)/slices.Min(off)-1
	t.Logf("%s, medians of %d rounds: %.1f without (%.1f – %.1f), %.1f with (%.1f – %.1f), %+.1f %%; the best rounds %+.1f %%",
		unit, *rounds, datapath.Median(off), slices.Min(off), slices.Max(off), datapath.Median(on), slices.Min(on), slices.Max(on), 100*more, 100*least)
	if judged && min(more, least) > mostMetrics {
		t.Errorf("metrics cost %.1f %%, in the best rounds %.1f %%, at most %.0f %% is allowed", 100*more, 100*least, 100*mostMetrics)
	}
}
