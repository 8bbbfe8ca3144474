package kiel

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/operr"
)

// ErrInvalidPartition says that an item of a set is not "topic:id". Such an item is assigned to no member; the program that wrote
// it must repair it.
var ErrInvalidPartition = errors.New("not topic:id")

// badItem returns the error of an item that is not "topic:id".
func badItem(item, why string) error {
	return operr.New("kiel", "item", quote(item, maxQuotedItem), fmt.Errorf("%w: %s", ErrInvalidPartition, why))
}

// Partition is one partition of a Kafka topic.
type Partition struct {
	Topic string
	ID    int32
}

// String returns the partition as "topic:id", the form that it has in the group's set and names its znodes.
func (p Partition) String() string {
	return p.Topic + ":" + strconv.Itoa(int(p.ID))
}

// ParsePartition reads an item of a set. An item is a name, one ':' and a number from 0 to 2^31-1; the name is not empty and
// holds no other ':' (a Kafka topic can't). Everything else is an error that wraps [ErrInvalidPartition] and names the item.
//
// The number is what Python's int() reads, because the Python members of a group allocate and consume what it reads: "t:01",
// "t:+1", "t: 1", "t:1_0" and "t:١" are partitions 1, 1, 1, 10 and 1 of t. No program should write those; [Partition.String]
// writes them as t:1 and t:10. For the same reason ParsePartition does not apply Kafka's rules to names.
func ParsePartition(item string) (Partition, error) {
	p, _, err := parsePartition(item)
	return p, err
}

// reading is what an item of a set means to a Python member.
type reading int

const (
	unreadable reading = iota // kiel's default function raises
	counted                   // a partition with an id or a topic that Kafka does not have
	odd                       // a partition, but not written as String writes it
	plain                     // as String writes it
)

func parsePartition(item string) (Partition, reading, error) {
	topic, number, ok := strings.Cut(item, ":")
	if !ok || strings.Contains(number, ":") {
		return Partition{}, unreadable, badItem(item, "it must have one colon")
	}
	id, how := parseNumber(number)
	switch {
	case how == unreadable:
		return Partition{}, how, badItem(item, "the id is not a decimal number")
	case how == counted:
		return Partition{}, how, badItem(item, "the id is not in 0 to 2147483647")
	case topic == "":
		return Partition{}, counted, badItem(item, "the topic is empty")
	}
	return Partition{Topic: topic, ID: id}, how, nil
}

// parseNumber reads s as Python's int(s) does.
func parseNumber(s string) (int32, reading) {
	if s != "" && len(s) <= 10 && (s[0] != '0' || s == "0") {
		if n, err := strconv.ParseUint(s, 10, 31); err == nil {
			return int32(n), plain
		}
	}
	s = strings.TrimSpace(s)
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	var n int64
	digit := false // the last rune was one; an underscore stands between two
	for _, r := range s {
		if r == '_' && digit {
			digit = false
			continue
		}
		d, ok := digitValue(r)
		if !ok {
			return 0, unreadable
		}
		digit = true
		n = min(10*n+d, 1<<31)
	}
	switch {
	case !digit:
		return 0, unreadable
	case n == 1<<31, negative && n != 0:
		return 0, counted
	}
	return int32(n), odd
}

// zeros returns the zeros of all scripts in Unicode 14, which Python 3.11 knows. It does not use unicode.Nd, which changes with
// the release of Go: members of two releases must read an item alike.
func zeros() []rune {
	return []rune{
		0x0660, 0x06f0, 0x07c0, 0x0966, 0x09e6, 0x0a66, 0x0ae6, 0x0b66, 0x0be6, 0x0c66, 0x0ce6, 0x0d66,
		0x0de6, 0x0e50, 0x0ed0, 0x0f20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90,
		0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
		0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730,
		0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec,
		0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
	}
}

// digitValue returns the value of a decimal digit of any script. Unicode keeps the ten digits of a script in one run, beginning
// with its zero.
func digitValue(r rune) (int64, bool) {
	if '0' <= r && r <= '9' {
		return int64(r - '0'), true
	}
	if r < utf8.RuneSelf {
		return 0, false
	}
	all := zeros()
	i, found := slices.BinarySearch(all, r)
	if found {
		return 0, true
	}
	if i == 0 || r > all[i-1]+9 {
		return 0, false
	}
	return int64(r - all[i-1]), true
}

// ParsePartitions reads the items of a set and returns its partitions in kiel's order, their places, and the bad items, which are
// assigned to no member.
//
// The order is that of the items' texts as they are written, byte by byte (equal to Python's order of str). While every item is
// written as [Partition.String] writes it, that is the order of [SortPartitions], and places is nil.
//
// Otherwise places[k] is the place of partitions[k] among the items that a Python member counts; it goes into allocfn.Input
// beside the partitions. An item whose number is out of range ("t:-1"), one without a topic, and a partition that is written in a
// second way ("t:01" beside "t:1"; the first in order counts) are in bad, but keep their place, so that the other items go to the
// same members as in Python. An item that is not a name and a number at all ("t", "t:x", "a:b:1") makes kiel's default function
// raise: Python members then keep their last mapping, and there is nothing to agree with. Such an item is in bad and has no
// place.
//
// Equal items count once. The items are not changed; they need not be sorted. [ParsePartition] returns why an item is bad; if it
// returns no error, the item is a double.
func ParsePartitions(items []string) (partitions []Partition, places []int32, bad []string) {
	if !slices.IsSorted(items) {
		items = slices.Sorted(slices.Values(items))
	}
	partitions = make([]Partition, 0, len(items))
	places = make([]int32, 0, len(items))
	asWritten := true
	var seen map[Partition]bool // made when there may be doubles: from the first odd item on
	var place int32
	for i, item := range items {
		if i > 0 && item == items[i-1] {
			continue
		}
		p, how, err := parsePartition(item)
		if how == unreadable {
			bad = append(bad, item)
			continue
		}
		asWritten = asWritten && how == plain
		if how == odd && seen == nil {
			seen = make(map[Partition]bool, len(items))
			for _, p := range partitions {
				seen[p] = true
			}
		}
		switch {
		case err != nil || seen[p]:
			bad = append(bad, item)
		default:
			if n := len(partitions); n > 0 && partitions[n-1].Topic == p.Topic {
				p.Topic = partitions[n-1].Topic // one string per topic
			}
			partitions = append(partitions, p)
			places = append(places, place)
			if seen != nil {
				seen[p] = true
			}
		}
		place++
	}
	if asWritten {
		places = nil
	}
	return partitions, places, bad
}
