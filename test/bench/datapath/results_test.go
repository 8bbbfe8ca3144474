package datapath_test

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/test/bench/datapath"
	"github.com/kielgo/kiel/test/bench/functions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSummarize(t *testing.T) {
	cell := datapath.Cell{Size: 100, Partitions: 10, Compression: "none"}
	var rounds []datapath.Round
	for _, i := range []int64{3, 1, 8} {
		rounds = append(rounds, datapath.Round{
			Start: datapath.Sample{CPU: time.Second, Allocs: 500, Bytes: 700, Memory: 1},
			Full: datapath.Sample{
				CPU: time.Second + time.Duration(i*9900), Allocs: 500 + 990*i, Bytes: 700 + 1980*i, Memory: 100 * i,
				Counted: 900, Elapsed: time.Duration(i) * time.Second,
			},
		})
	}
	got := datapath.Summarize(cell, datapath.Franz, 1000, rounds)
	want := datapath.Figure{
		Cell: cell, Client: datapath.Franz, Messages: 1000, Rounds: 3,
		CPU: 30, LeastCPU: 10, MostCPU: 80, Allocs: 3, Bytes: 6, Rate: 300, Memory: 300,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	folder := t.TempDir()
	if err := functions.WriteFile(folder, datapath.File, datapath.Figures{Figures: []datapath.Figure{got}}); err != nil {
		t.Fatal(err)
	}
	all, err := functions.ReadFile[datapath.Figures](folder, datapath.File)
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := all.Of(cell, datapath.Franz); !ok || f != want {
		t.Errorf("read %+v, %v", f, ok)
	}
	if _, ok := all.Of(cell, datapath.SaramaGroup); ok {
		t.Error("a figure of a client that was not measured")
	}
}

// TestCells holds the goal's cell to be one of those that are measured.
func TestCells(t *testing.T) {
	cells := datapath.Cells()
	if len(cells) != 18 || !slices.Contains(cells, datapath.Goal()) {
		t.Errorf("cells are %v", cells)
	}
}
