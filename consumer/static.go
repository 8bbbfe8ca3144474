package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/kielgo/kiel/ownership"
)

// errStopped is the cause with which a static member leaves because the program has asked for an orderly stop.
var errStopped = fmt.Errorf("%w (%w)", context.Canceled, ownership.ErrKeep)

// errNotInOrder is the reason for which a membership that was to stay is ended after all.
var errNotInOrder = errors.New("the program's code has not returned in its time")

// stopOrderly makes the member leave because the program has asked for an orderly stop. The membership of a static member then
// stays, if all goes well.
func (m *membership) stopOrderly() {
	if m.group.settings.Static {
		m.leave(errStopped)
		return
	}
	m.leave(nil)
}

// endTenure lets the membership of a static member stay that has left in order, until the ZooKeeper session has timed out. err is
// the member's error. All claims are released.
func (m *membership) endTenure(err error) {
	if !m.owner.Kept() {
		return
	}
	if err != nil || m.driver.gaveUp() {
		m.group.zk.GiveUp(cmp.Or(err, errNotInOrder))
		return
	}
	m.group.zk.LetExpire()
}
