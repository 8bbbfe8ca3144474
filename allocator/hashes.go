package allocator

import (
	"fmt"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocfn"
)

// hash is a hash of 48 bits, so that a gauge can show it exactly. It is never 0. All processes hash equal values alike: another
// way to hash would set off the alert KielMappingsDiffer while members of two versions are in a group.
type hash uint64

// String returns the hash in 12 hexadecimal digits, "" for none.
func (h hash) String() string {
	if h == 0 {
		return ""
	}
	return fmt.Sprintf("%012x", uint64(h))
}

// short makes a hash of a sum.
func short(sum uint64) hash { return hash(max(sum>>16, 1)) }

// mix adds a number to a sum, whose bits all depend on all bits of both: the last steps are those of splitmix64.
func mix(sum, n uint64) uint64 {
	sum = sum*0x9e3779b97f4a7c15 + n + 0x632be59bd9b4e019
	sum = (sum ^ sum>>30) * 0xbf58476d1ce4e5b9
	sum = (sum ^ sum>>27) * 0x94d049bb133111eb
	return sum ^ sum>>31
}

// mixText adds a text to a sum: its bytes as FNV-1a has them, and its length.
func mixText(sum uint64, text string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return mix(mix(sum, h), uint64(len(text)))
}

// hashes has the hashes of a mapping and of its inputs. Members that have read the same have the same hash of the inputs; then
// the function must give the same mapping to all.
type hashes struct {
	mapping hash // the partitions, and the names of their owners
	inputs  hash // all that the function is given, and its ID

	partitions, zones uint64 // sums, which the mapping that follows takes over if it has the same ones
}

// hashesOf returns the hashes of a mapping. before is the mapping before it.
func hashesOf(m, before *mapping) (h hashes) {
	known := before.hashes.inputs != 0
	if known && sameSlice(m.in.Partitions, before.in.Partitions) && sameSlice(m.in.Places, before.in.Places) {
		h.partitions = before.hashes.partitions
	} else {
		h.partitions = sumOfPartitions(m.in.Partitions, m.in.Places)
	}
	if known && m.occasion.zones == before.occasion.zones {
		h.zones = before.hashes.zones
	} else {
		h.zones = sumOfZones(m.in.Zones)
	}
	h.inputs = short(sumOfMembers(mixText(mix(h.partitions, h.zones), m.fn), m.in.Members))
	h.mapping = short(sumOfOwners(h.partitions, m))
	return h
}

// sumOfMembers adds all that the function is given about members to a sum. Members that ask for the same topics share the list.
func sumOfMembers(sum uint64, members []allocfn.Member) uint64 {
	type list struct {
		first *string
		n     int
	}
	lists := make(map[list]uint64)
	for i := range members {
		m := &members[i]
		sum = mixText(mix(mixText(sum, m.Name), uint64(m.Weight)), m.Zone)
		if len(m.Topics) == 0 {
			sum = mix(sum, 0)
			continue
		}
		key := list{&m.Topics[0], len(m.Topics)}
		topics, ok := lists[key]
		if !ok {
			topics = uint64(len(m.Topics))
			for _, topic := range m.Topics {
				topics = mixText(topics, topic)
			}
			lists[key] = topics
		}
		sum = mix(sum, topics)
	}
	return sum
}

func sumOfPartitions(partitions []kiel.Partition, places []int32) uint64 {
	sum, topic := uint64(len(partitions)), uint64(0)
	for i := range partitions {
		if i == 0 || partitions[i].Topic != partitions[i-1].Topic {
			topic = mixText(0, partitions[i].Topic)
		}
		sum = mix(sum, topic+uint64(partitions[i].ID))
	}
	for _, place := range places {
		sum = mix(sum, uint64(place))
	}
	return sum
}

// sumOfZones adds up the sums of the entries, whose order does not matter so.
func sumOfZones(zones map[kiel.Partition]string) (all uint64) {
	for p, zone := range zones {
		all += mixText(mix(mixText(0, p.Topic), uint64(p.ID)), zone)
	}
	return all
}

// sumOfOwners adds the names of the members and the owner of each partition to the sum of the partitions.
func sumOfOwners(sum uint64, m *mapping) uint64 {
	for _, name := range m.members {
		sum = mixText(sum, name)
	}
	for _, owner := range m.owner {
		sum = mix(sum, uint64(owner))
	}
	return sum
}
