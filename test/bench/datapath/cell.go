package datapath

import (
	"fmt"
	"slices"
)

// A Client names one way of reading a topic.
type Client string

// The clients, in the order of tables.
const (
	PartitionConsumer Client = "sarama-partition" // sarama's PartitionConsumer, without a group
	SaramaGroup       Client = "sarama-group"     // sarama's ConsumerGroup
	Franz             Client = "franz-go"         // a group of franz-go
	Kiel              Client = "kiel"             // package consumer through Group.Run
	KielSarama        Client = "kiel-sarama"      // package consumer through sarama's interfaces
)

// Clients returns all clients.
func Clients() []Client { return []Client{PartitionConsumer, SaramaGroup, Franz, Kiel, KielSarama} }

// Title is the client's name for readers.
func (c Client) Title() string {
	switch c {
	case PartitionConsumer:
		return "sarama, PartitionConsumer"
	case SaramaGroup:
		return "sarama, group"
	case Franz:
		return "franz-go, group"
	case Kiel:
		return "kiel"
	case KielSarama:
		return "kiel, sarama's API"
	default:
		return string(c)
	}
}

// Commits says whether the client commits offsets.
func (c Client) Commits() bool { return c != PartitionConsumer }

// A Cell is a topic that all clients read.
type Cell struct {
	Size        int    // bytes of a message's value
	Partitions  int    // of the topic
	Compression string // one of [Compressions]
}

// Compressions returns the codecs of the cells.
func Compressions() []string { return []string{"none", "lz4", "zstd"} }

// Sizes returns the sizes of the cells' values, in bytes.
func Sizes() []int { return []int{100, 1000} }

// Partitions returns the cells' numbers of partitions.
func Partitions() []int { return []int{1, 8, 200} }

// Cells returns all cells.
func Cells() []Cell {
	var cells []Cell
	for _, size := range Sizes() {
		for _, partitions := range Partitions() {
			for _, compression := range Compressions() {
				cells = append(cells, Cell{size, partitions, compression})
			}
		}
	}
	return cells
}

// Goal returns the cell for which consumer has goals.
func Goal() Cell { return Cell{100, 8, "none"} }

// String returns the cell's name, as in "100x8-lz4".
func (c Cell) String() string { return fmt.Sprintf("%dx%d-%s", c.Size, c.Partitions, c.Compression) }

// PerPartition returns how many messages each partition has when the cell is measured: together 4,000,000 of 100 B, or 1,000,000
// of 1,000 B.
func (c Cell) PerPartition() int {
	all := 4_000_000
	if c.Size >= slices.Max(Sizes()) {
		all = 1_000_000
	}
	return all / c.Partitions
}
