package proxy

import "testing"

// Links are the ways of one client to several servers.
type Links []*Link

// To returns links to ZooKeeper servers.
func To(tb testing.TB, targets []string) Links {
	tb.Helper()
	var links Links
	for _, target := range targets {
		links = append(links, start(tb, &Link{target: target, frames: true}))
	}
	return links
}

// Addrs is where to connect to.
func (ls Links) Addrs() []string {
	var addrs []string
	for _, l := range ls {
		addrs = append(addrs, l.Addr())
	}
	return addrs
}

func (ls Links) each(f func(*Link)) {
	for _, l := range ls {
		f(l)
	}
}

// Cut does as [Link.Cut], with all links.
func (ls Links) Cut() { ls.each((*Link).Cut) }

// Refuse does as [Link.Refuse], with all links.
func (ls Links) Refuse() { ls.each((*Link).Refuse) }

// CutClients does as [Link.CutClients], with all links.
func (ls Links) CutClients() { ls.each((*Link).CutClients) }

// BlackHole does as [Link.BlackHole], with all links.
func (ls Links) BlackHole(d Direction) { ls.each(func(l *Link) { l.BlackHole(d) }) }

// Silence does as [Link.Silence], with all links.
func (ls Links) Silence() { ls.each((*Link).Silence) }

// Slow does as [Link.Slow], with all links.
func (ls Links) Slow(d Direction, s Speed) { ls.each(func(l *Link) { l.Slow(d, s) }) }

// Heal does as [Link.Heal], with all links.
func (ls Links) Heal() { ls.each((*Link).Heal) }

// LoseReply does as [Link.LoseReply], for the next request that passes any of the links.
func (ls Links) LoseReply(match func(Request) bool) <-chan struct{} {
	next := &loss{match: match, done: make(chan struct{})}
	ls.each(func(l *Link) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.losses = append(l.losses, next)
	})
	return next.done
}
