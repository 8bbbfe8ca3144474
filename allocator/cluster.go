package allocator

import (
	"encoding/json"
	"fmt"

	"github.com/kielgo/kiel/internal/topiclist"
	"github.com/kielgo/kiel/party"
)

// cluster is what a record names as the member's cluster.
type cluster string

// IsCluster reports whether id can be Options.Cluster: it has 1 to MaxCluster visible ASCII characters.
func IsCluster(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= MaxCluster
}

// UnmarshalJSON takes what can't be an id for none. Such a record must not be a bad one, because members of versions that did not
// have the field take it for good, and all must compute the same mapping.
func (c *cluster) UnmarshalJSON(data []byte) error {
	var id string
	if json.Unmarshal(data, &id) != nil || !IsCluster(id) {
		id = ""
	}
	*c = cluster(id)
	return nil
}

// clusterOf returns the cluster that a member names with its record: "" if it names none, if no session owns its znode, so that
// it is no living member, and if somebody else has changed the record, which the member did not write then.
func clusterOf(p *party.Member, named cluster) cluster {
	if p.Session == 0 || p.Mzxid != p.Czxid {
		return ""
	}
	return named
}

// oldestNaming returns the index of the oldest member that names a cluster, and what it names; -1 if none does. read returns what
// the record of the member with an index names. The age of members is known if they name several clusters, see severalClusters.
func oldestNaming(members []party.Member, read func(i int) cluster) (oldest int, names cluster) {
	oldest = -1
	for i := range members {
		if oldest >= 0 && members[i].Czxid > members[oldest].Czxid {
			continue
		}
		if c := clusterOf(&members[i], read(i)); c != "" {
			oldest, names = i, c
		}
	}
	return oldest, names
}

// otherClusters returns the name of the oldest member that names a cluster, and the members that name another, if there are any.
func (in *inputs) otherClusters() (oldest string, others []string) {
	i, first := oldestNaming(in.members, func(i int) cluster { return in.read[i].cluster() })
	if i < 0 {
		return "", nil
	}
	return in.members[i].Name, in.names(func(p *party.Member, m *member) bool {
		c := clusterOf(p, m.cluster())
		return c != "" && c != first
	})
}

// admitTo returns party's Options.Admit of the member self, which names a cluster; nil if it names none.
func admitTo(self, names string) func(*party.View) error {
	if names == "" {
		return nil
	}
	read := newClusters()
	return func(v *party.View) error {
		named := read.of(v.Members)
		i, oldest := oldestNaming(v.Members, func(i int) cluster {
			if v.Members[i].Name == self && !v.Joined { // before the join a znode of this name is a former process's
				return ""
			}
			return named[i]
		})
		if i < 0 || oldest == cluster(names) {
			return nil
		}
		return fmt.Errorf("%w: member %q is of %q, and this member of %q", ErrOtherCluster, v.Members[i].Name, oldest, names)
	}
}

// severalClusters returns party's Options.Singly: it reports whether members name several clusters. Then it matters which of them
// is the oldest, and only the metadata of their znodes say that.
func severalClusters() func([]party.Member) bool {
	read := newClusters()
	return func(members []party.Member) bool {
		first := cluster("")
		for i, named := range read.of(members) {
			switch c := clusterOf(&members[i], named); {
			case c == "":
			case first == "":
				first = c
			case c != first:
				return true
			}
		}
		return false
	}
}

// clusters returns what records name. Members with one record share its data, which is parsed once.
type clusters struct {
	known map[*byte]readCluster // by the data's first byte
}

// readCluster is what a record names.
type readCluster struct {
	data  []byte
	names cluster
}

func newClusters() *clusters { return &clusters{} }

// of returns what the record of each member names.
func (c *clusters) of(members []party.Member) []cluster {
	named, next := make([]cluster, len(members)), make(map[*byte]readCluster)
	for i := range members {
		data := members[i].Data
		if len(data) == 0 {
			continue
		}
		r, ok := next[&data[0]]
		if !ok {
			r, ok = c.known[&data[0]]
		}
		if !ok || !sameSlice(r.data, data) {
			r = readCluster{data, clusterIn(data)}
		}
		named[i], next[&data[0]] = r.names, r
	}
	c.known = next
	return named
}

// clusterIn returns the cluster that a record names, "" if the record is a bad one.
func clusterIn(data []byte) cluster {
	r, _, _ := parseRecord(data, func([]string) (*topiclist.List, error) { return nil, nil }) //nolint:nilnil // topics don't matter
	return r.Cluster
}
