package sim_test

// opened notes the offset at which a handler begins.
func (m *monitor) opened(t *term, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	part := m.parts[t.part]
	m.note("%s opens p%d at %d (processed %d, acknowledged %d)", t.p.id, t.part, off, part.processed, part.acked)
	t.opened, t.position = true, off
	if off > part.processed {
		m.violate("S5", "%s opens p%d at %d, but only what is before %d was processed", t.p.id, t.part, off, part.processed)
	}
	if off < part.acked && !part.strayed {
		m.violate("S6", "%s opens p%d at %d, but %d was committed", t.p.id, t.part, off, part.acked)
	}
	if n := int(part.processed - off); n > 0 {
		m.dups += n
		m.cov.hit("messages processed again")
	}
	m.rivals(t, "opens")
}

// asking says how a handler asks for trust before an effect.
type asking int

const (
	asks    asking = iota // right before it
	inHand                // and then its process stood still: nobody can prevent that one effect
	asksNot               // it has no manners
)

// processed is the effect of a message, if the handler still is trusted; it says whether it is.
func (m *monitor) processed(t *term, off int64, how asking) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	trusted := t.claim.Trusted()
	switch {
	case trusted:
		m.rivals(t, "processes a message of")
	case how == asks:
		m.cov.hit("no trust when a message was to be processed")
		return false
	case how == inHand:
		m.cov.hit("a message was in hand when the process stood still")
	default:
		m.violate("S1", "%s processes %d of p%d without trust", t.p.id, off, t.part)
	}
	if off != t.position {
		m.violate("S5", "%s processes %d of p%d, expected %d", t.p.id, off, t.part, t.position)
	}
	t.position = off + 1
	part := m.parts[t.part]
	part.processed = max(part.processed, off+1)
	part.saw(off)
	return true
}

// saw notes that a message was processed. What is lost is counted of this alone, whatever else is believed.
func (part *partState) saw(off int64) {
	for int(off/64) >= len(part.seen) {
		part.seen = append(part.seen, 0)
	}
	part.seen[off/64] |= 1 << (off % 64)
}

// hasSeen reports whether a message was processed.
func (part *partState) hasSeen(off int64) bool {
	return int(off/64) < len(part.seen) && part.seen[off/64]&(1<<(off%64)) != 0
}

// lostOf counts the messages before ends that nobody has processed.
func (m *monitor) lostOf(ends []int64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := 0
	for i, end := range ends {
		for off := range end {
			if !m.parts[i].hasSeen(off) {
				lost++
			}
		}
	}
	return lost
}

// sending is the moment at which a commit leaves its sender, if that still is trusted; it says whether it is.
func (m *monitor) sending(c *commit, how asking) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := c.term
	switch {
	case t.claim.Trusted():
		m.rivals(t, "commits")
	case how == asks:
		m.cov.hit("no trust when a commit was to be sent")
		return false
	default:
		m.violate("S4", "%s commits %d of p%d without trust", t.p.id, c.off, t.part)
	}
	c.unaware = m.excuses.covers(t)
	if c.off > t.position {
		m.violate("S4", "%s commits %d of p%d, has processed what is before %d", t.p.id, c.off, t.part, t.position)
	}
	return true
}

// stored notes that a commit arrives at Kafka, where another stands.
func (m *monitor) stored(c, last *commit, was int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	part := m.parts[c.part]
	if c.off > part.processed {
		m.violate("S5", "%s commits %d of p%d, processed is only what is before %d", c.p.id, c.off, c.part, part.processed)
	}
	c.stray = c.late || c.term.over || c.unaware || m.excuses.covers(c.term)
	if c.late || c.term.over {
		m.cov.hit("commit arrived late")
	}
	if c.off < was {
		if !c.stray && (last == nil || !last.stray) && !part.strayed {
			m.violate("S4", "%s moves the committed offset of p%d back from %d to %d", c.p.id, c.part, was, c.off)
		}
		m.cov.hit("late commit moved the offset back")
		m.strays++
		m.note("%s moves the committed offset of p%d back from %d to %d", c.p.id, c.part, was, c.off)
		part.strayed = true
	} else if c.off >= part.acked {
		if part.strayed {
			m.cov.hit("offset that was moved back was repaired")
		}
		part.strayed = false
	}
}

// acked notes that the sender of a commit knows that it is stored.
func (m *monitor) acked(c *commit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	part := m.parts[c.part]
	part.acked = max(part.acked, c.off)
}

// processedAll says whether all messages before ends were processed.
func (m *monitor) processedAll(ends []int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, end := range ends {
		if m.parts[i].processed < end {
			return false
		}
	}
	return true
}
