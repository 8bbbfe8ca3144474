package datapath

import (
	"slices"
	"time"

	"github.com/kielgo/kiel/test/bench/functions"
)

// Sample is what one process used until it had read all messages of a topic.
type Sample struct {
	CPU     time.Duration // user and system time
	Allocs  int64         // objects allocated
	Bytes   int64         // bytes allocated
	Memory  int64         // most bytes resident; 0 where the system does not tell
	Counted int64         // messages that were handled in Elapsed: the last nine tenths
	Elapsed time.Duration
}

// Figure is what one client needs for a message of one cell: the median of each figure over the rounds.
type Figure struct {
	Cell
	Client   Client
	Messages int     // of the topic
	Rounds   int     // that were measured
	CPU      float64 // nanoseconds for a message, user and system time
	LeastCPU float64 // the same, of the best round and of the worst
	MostCPU  float64
	Allocs   float64 // objects allocated for a message
	Bytes    float64 // bytes allocated for a message
	Rate     float64 // messages per second
	Memory   int64   // most bytes resident
}

// Figures is the file of one run.
type Figures struct {
	Machine functions.Machine
	Kafka   string // version
	Figures []Figure
}

// Round is one client's samples of one round.
type Round struct {
	Start Sample // of a topic with one message in each partition
	Full  Sample // of the cell's topic
}

// Summarize returns the medians of a client's rounds over a topic of so many messages. What the client uses to start, join and
// read one message of each partition is not counted for messages.
func Summarize(cell Cell, client Client, messages int, rounds []Round) Figure {
	each := func(figure func(Round) float64) []float64 {
		var all []float64
		for _, r := range rounds {
			all = append(all, figure(r))
		}
		return all
	}
	median := func(figure func(Round) float64) float64 { return Median(each(figure)) }
	n := float64(messages - cell.Partitions)
	cpu := func(r Round) float64 { return float64(r.Full.CPU-r.Start.CPU) / n }
	return Figure{
		Cell: cell, Client: client, Messages: messages, Rounds: len(rounds),
		CPU: median(cpu), LeastCPU: slices.Min(each(cpu)), MostCPU: slices.Max(each(cpu)),
		Allocs: median(func(r Round) float64 { return float64(r.Full.Allocs-r.Start.Allocs) / n }),
		Bytes:  median(func(r Round) float64 { return float64(r.Full.Bytes-r.Start.Bytes) / n }),
		Rate:   median(func(r Round) float64 { return float64(r.Full.Counted) / r.Full.Elapsed.Seconds() }),
		Memory: int64(median(func(r Round) float64 { return float64(r.Full.Memory) })),
	}
}

// Median returns the median of values, of which there is one at least.
func Median(values []float64) float64 {
	all := slices.Sorted(slices.Values(values))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// Of returns the figure of a client and a cell, if there is one.
func (f Figures) Of(cell Cell, client Client) (Figure, bool) {
	i := slices.IndexFunc(f.Figures, func(one Figure) bool { return one.Cell == cell && one.Client == client })
	if i < 0 {
		return Figure{}, false
	}
	return f.Figures[i], true
}

// File is where Figures are kept in the folder testdata.
const File = "datapath.json"
