package zktest

import "time"

// deadline is a time at which a channel is closed. The network's mutex guards all fields.
type deadline struct {
	net     *Network
	timer   *time.Timer
	at      time.Time     // the time; zero is never
	expired chan struct{} // closed when the time has come
	over    bool          // whether expired is closed
}

func (d *deadline) init(n *Network) { d.net, d.expired = n, make(chan struct{}) }

// set moves the deadline. A Read or Write that waits already waits for the new one.
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

// fire is the timer's function. The deadline may have been moved meanwhile.
func (d *deadline) fire() {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if !d.at.IsZero() && time.Until(d.at) <= 0 {
		d.pass()
	}
}

// pass closes expired, once.
func (d *deadline) pass() {
	if !d.over {
		d.over = true
		close(d.expired)
	}
}

// stop stops the timer for good.
func (d *deadline) stop() {
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
}
