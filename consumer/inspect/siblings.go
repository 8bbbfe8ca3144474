package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/session"
)

// The bounds of the search for a group in other chroots.
const (
	maxChroots = 500 // below one znode
	maxAges    = 100 // members whose age is read, of each chroot
	searchers  = 16  // chroots that are looked at at a time
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

// siblings returns the chroots of these servers, besides this one, in which a group of the name has members. It looks below the
// root and beside this chroot, at a few znodes at a time, for Sources.Wait. unseen says what it may not list, and for what there
// was no room or time.
func (in *Inspector) siblings(ctx context.Context, group string) (found []sibling, unseen []string, err error) {
	err = read(ctx, in.root, in.zkErr, in.from.Wait, func(ctx context.Context, inc *session.Incarnation) error {
		s := &search{inc: inc, group: group, own: cmp.Or(in.from.Session.Chroot, "/")}
		err := s.run(ctx)
		found, unseen = s.found, s.unseen
		return err
	})
	return found, unseen, err
}

// search is one search for a group in other chroots.
type search struct {
	inc        *session.Incarnation
	group, own string
	found      []sibling
	unseen     []string
}

func (s *search) run(ctx context.Context) error {
	candidates, err := s.candidates(ctx)
	if err != nil {
		return err
	}
	looked, next := make([]looked, len(candidates)), atomic.Int64{}
	var all sync.WaitGroup
	for range min(searchers, len(candidates)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(candidates)); i = next.Add(1) - 1 {
				looked[i] = s.look(ctx, candidates[i])
			}
		})
	}
	all.Wait()
	return s.sum(ctx, candidates, looked)
}

// candidates returns the znodes that may be chroots, sorted.
func (s *search) candidates(ctx context.Context) ([]string, error) {
	all := []string{"/"}
	for _, parent := range slices.Compact([]string{"/", session.Join(s.own[:strings.LastIndexByte(s.own, '/')])}) {
		names, err := children(ctx, s.inc, parent)
		if errors.Is(err, session.ErrNoAuth) {
			s.unseen = append(s.unseen, refused(parent))
			continue
		}
		if err != nil {
			return nil, err
		}
		if more := len(names) - maxChroots; more > 0 {
			s.unseen = append(s.unseen, fmt.Sprintf("%d znodes below %s", more, statuswrite.Name(parent)))
		}
		for _, name := range names[:min(len(names), maxChroots)] {
			all = append(all, session.Join(parent, name))
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(chroot string) bool { return chroot == s.own }), nil
}

func refused(path string) string { return statuswrite.Name(path) + " (this user may not list it)" }

// looked is what a look at one chroot has found.
type looked struct {
	members bool      // it has members of the group
	since   time.Time // when the first of them joined; zero if that is not known
	err     error
}

func (s *search) look(ctx context.Context, chroot string) (found looked) {
	path := session.Join(chroot, groupPath(s.group), "members")
	names, err := children(ctx, s.inc, path)
	if err != nil || len(names) == 0 {
		return looked{err: err}
	}
	found.members = true
	found.since, found.err = s.oldest(ctx, path, names)
	return found
}

// sum puts together what was found. What there was no time for is unseen.
func (s *search) sum(ctx context.Context, candidates []string, all []looked) error {
	late := 0
	for i, l := range all {
		switch {
		case l.err == nil:
		case errors.Is(l.err, session.ErrNoAuth):
			s.unseen = append(s.unseen, refused(session.Join(candidates[i], groupPath(s.group), "members")))
		case ctx.Err() == nil:
			return l.err
		case !l.members:
			late++
		}
		if l.members {
			s.found = append(s.found, sibling{statuswrite.Name(candidates[i]), l.since})
		}
	}
	if late > 0 {
		s.unseen = append(s.unseen, fmt.Sprintf("%d of %d znodes, for want of time", late, len(all)))
	}
	return nil
}

// oldest returns when the first of these children was created.
func (s *search) oldest(ctx context.Context, path string, names []string) (at time.Time, err error) {
	for _, name := range names[:min(len(names), maxAges)] {
		exists, stat, err := s.inc.Exists(ctx, session.Join(path, name))
		if err != nil {
			return at, err
		}
		if created := statuswrite.Millis(stat.Ctime); exists && created != nil && (at.IsZero() || created.Before(at)) {
			at = *created
		}
	}
	return at, nil
}
