package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/status"
)

// The bounds of the search for a group in other chroots.
const (
	maxChroots = 500 // below one znode
	maxAges    = 100 // members whose age is read, of each chroot
)

// sibling is another chroot in which a group of the same name has members.
type sibling struct {
	chroot string
	since  time.Time // when the first of its members joined; zero if that is not known
}

// chroots returns their names.
func chroots(all []sibling) []string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.chroot
	}
	return names
}

// siblings returns the chroots of these servers, besides this one, in which a group of the name has members. It looks below the root and
// beside this chroot. unseen are the znodes that it may not list, and those of which there are too many.
func (in *Inspector) siblings(ctx context.Context, group string) (found []sibling, unseen []string, err error) {
	err = read(ctx, in.root, in.zkErr, in.from.Wait, func(ctx context.Context, inc *session.Incarnation) error {
		s := &search{ctx: ctx, inc: inc, group: group, own: cmp.Or(in.from.Session.Chroot, "/")}
		err := s.run()
		found, unseen = s.found, s.unseen
		return err
	})
	return found, unseen, err
}

// search is one search for a group in other chroots.
type search struct {
	ctx        context.Context //nolint:containedctx // of the call that it is
	inc        *session.Incarnation
	group, own string
	found      []sibling
	unseen     []string
}

func (s *search) run() error {
	candidates := []string{"/"}
	for _, parent := range slices.Compact([]string{"/", session.Join(s.own[:strings.LastIndexByte(s.own, '/')])}) {
		names, err := s.list(parent)
		if err != nil {
			return err
		}
		if more := len(names) - maxChroots; more > 0 {
			s.unseen = append(s.unseen, fmt.Sprintf("%d znodes below %s", more, status.Shown(parent)))
		}
		for _, name := range names[:min(len(names), maxChroots)] {
			candidates = append(candidates, session.Join(parent, name))
		}
	}
	slices.Sort(candidates)
	for _, chroot := range slices.Compact(candidates) {
		if chroot == s.own {
			continue
		}
		path := session.Join(chroot, groupPath(s.group), "members")
		names, err := s.list(path)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			since, err := s.oldest(path, names)
			if err != nil {
				return err
			}
			s.found = append(s.found, sibling{status.Shown(chroot), since})
		}
	}
	return nil
}

// list returns the names of a znode's children, none if there is no such znode, or if it may not be listed.
func (s *search) list(path string) ([]string, error) {
	names, err := children(s.ctx, s.inc, path)
	if errors.Is(err, session.ErrNoAuth) {
		s.unseen = append(s.unseen, status.Shown(path))
		return nil, nil
	}
	return names, err
}

// oldest returns when the first of these children was created.
func (s *search) oldest(path string, names []string) (at time.Time, err error) {
	for _, name := range names[:min(len(names), maxAges)] {
		exists, stat, err := s.inc.Exists(s.ctx, session.Join(path, name))
		if err != nil {
			return at, err
		}
		if created := status.Millis(stat.Ctime); exists && created != nil && (at.IsZero() || created.Before(at)) {
			at = *created
		}
	}
	return at, nil
}
