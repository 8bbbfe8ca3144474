package attacks_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/proxy"
)

// site is a group on real servers. Each member has links of its own to those that it is told of.
type site struct {
	*group
	addrs []string
	links map[string]proxy.Links
}

func newSite(t *testing.T, name string, addrs []string) *site {
	return &site{group: newGroup(t, name, members.Monotonic), addrs: addrs, links: map[string]proxy.Links{}}
}

// on leads a member's servers, all unless it says otherwise, through links.
func (s *site) on(name string, o options) options {
	s.t.Helper()
	if s.links[name] == nil {
		if o.servers == nil {
			o.servers = s.addrs
		}
		s.links[name] = proxy.To(s.t, o.servers)
	}
	o.servers = s.links[name].Addrs()
	if o.ownership.StopTimeout == 0 {
		o.ownership.StopTimeout = 5 * time.Second
	}
	return o.seeded()
}

// member starts a member.
func (s *site) member(name string, o options) *member {
	s.t.Helper()
	return s.join(name, s.on(name, o))
}

func (s *site) hold(name string) { s.links[name].BlackHole(proxy.Both) }

func (s *site) heal() {
	for _, links := range s.links {
		links.Heal()
	}
}

func (s *site) close() *outcome {
	s.heal()
	return s.end()
}

// proofs returns a channel of the moments at which proofs of life pass links; one is kept while nobody reads.
func (s *site) proofs(links proxy.Links) <-chan int64 {
	passed := make(chan int64, 1)
	links.LoseReply(func(r proxy.Request) bool {
		if r.Op == proxy.OpMulti && r.First == proxy.OpCheck {
			select {
			case passed <- s.now():
			default:
			}
		}
		return false // it is only looked at
	})
	return passed
}

// groupOf returns the name of a group for a test.
func groupOf(t *testing.T) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
}
