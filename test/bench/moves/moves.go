// Package moves says what the figures of moved partitions are: how long partitions stand still when a fifth member joins a group
// of four and leaves again, in groups of several clients. TestMoves of test/bench measures them, test/cmd/plots makes the table
// and the picture of docs/hand-over.md from them.
package moves

import (
	"slices"
	"time"

	"github.com/kielgo/kiel/test/bench/functions"
)

// Client is whose group it is.
type Client string

// The clients.
const (
	Kiel              Client = "kiel-run"
	KielEager         Client = "kiel-eager"
	SaramaEager       Client = "sarama-eager"
	SaramaCooperative Client = "sarama-cooperative"
	FranzCooperative  Client = "franz-go-cooperative"
	FranzServer       Client = "franz-go-server"
)

// Clients returns all clients, ours first.
func Clients() []Client {
	return []Client{Kiel, KielEager, SaramaEager, SaramaCooperative, FranzCooperative, FranzServer}
}

// Title returns the client's name for people.
func (c Client) Title() string {
	return map[Client]string{
		Kiel: "kiel, Run", KielEager: "kiel, Consume, eager", SaramaEager: "sarama, eager", SaramaCooperative: "sarama, cooperative",
		FranzCooperative: "franz-go, cooperative", FranzServer: "franz-go, KIP-848",
	}[c]
}

// The changes of a group.
const (
	Join  = "join"
	Leave = "leave"
)

// Spread is the median and the worst of many times.
type Spread struct {
	Median, Worst time.Duration
}

// SpreadOf returns the spread of times, of which there is one at least.
func SpreadOf(times []time.Duration) Spread {
	all := slices.Sorted(slices.Values(times))
	return Spread{Median: (all[(len(all)-1)/2] + all[len(all)/2]) / 2, Worst: all[len(all)-1]}
}

// Figure is what one change of one client's group cost.
type Figure struct {
	Client           Client
	Change           string
	Moved            int    // partitions, in all rounds
	Everywhere       Spread // from the call that starts or stops the member until the last partition that moves has its first message
	Gap              Spread // between two messages of a partition that moves
	Stays            Spread // the longest gap of each partition that stays with its owner
	Repeated, Missed int64  // messages of partitions that moved
}

// Figures is the file of one run.
type Figures struct {
	Machine    functions.Machine
	Kafka      string // version
	ZooKeeper  string
	Partitions int
	Every      time.Duration // from one message of a partition to the next
	Rounds     int
	Figures    []Figure
}

// Find returns the figure of a client and a change, if there is one.
func (f Figures) Find(c Client, change string) (Figure, bool) {
	i := slices.IndexFunc(f.Figures, func(one Figure) bool { return one.Client == c && one.Change == change })
	if i < 0 {
		return Figure{}, false
	}
	return f.Figures[i], true
}

// File is where Figures are kept in the folder testdata.
const File = "moves.json"
