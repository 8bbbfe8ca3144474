package zktest

import "time"

// deadline is a moment at which a channel closes. All of it is guarded by the network's mutex.
type deadline struct {
	net     *Network
	timer   *time.Timer
	at      time.Time     // zero = never
	expired chan struct{} // closes when the moment has come
	over    bool          // expired is closed
}

func (d *deadline) init(n *Network) { d.net, d.expired = n, make(chan struct{}) }

// set moves the deadline. A Read or Write that waits already keeps waiting, for the new one.
func (d *deadline) set(t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
	}
	if d.over {
		d.expired, d.over = make(chan struct{}), false
	}
	d.at = t
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	switch {
	case left <= 0:
		d.pass()
	case d.timer == nil:
		d.timer = time.AfterFunc(left, d.fire)
	default:
		d.timer.Reset(left)
	}
}

func (d *deadline) fire() {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if !d.at.IsZero() && time.Until(d.at) <= 0 {
		d.pass()
	}
}

func (d *deadline) pass() {
	if !d.over {
		d.over = true
		close(d.expired)
	}
}

// stop ends the timer for good.
func (d *deadline) stop() {
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
}
