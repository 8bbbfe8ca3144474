package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/statuswrite"
	"github.com/kielgo/kiel/session"
)

const pkg = "inspect"

// patience is how long ZooKeeper and Kafka have to answer unless Sources says otherwise.
const patience = 10 * time.Second

// ErrNoChroot says that the servers have no znode of the chroot's name. Nothing was created.
var ErrNoChroot = errors.New("no such chroot")

// errNotAsked says that the Sources name no brokers.
var errNotAsked = errors.New("no brokers are given")

// Sources say where a group is to be looked at.
type Sources struct {
	Servers []string        // of ZooKeeper, as for session.New
	Session session.Options // of the sessions; the Chroot is that of the members
	Brokers []string        // Kafka's bootstrap servers; none: Kafka is not asked
	Config  *sarama.Config  // how to speak to Kafka; nil is sarama's default
	Members bool            // ask the members that say where they answer /status
	Local   bool            // also those at loopback and link-local addresses
	Wait    time.Duration   // how long each source has to answer. Default: 10 s
	Flags   []string        // what each Finding's Command ends with: the flags of kiel that lead to these sources, without credentials
}

// Inspector looks at groups.
type Inspector struct {
	from  Sources
	asker *asker
	root  *session.Session // without a chroot; nil if ZooKeeper does not answer
	zk    *session.Session // in the chroot: root if there is none
	zkErr error            // why zk is nil
}

// Open connects to ZooKeeper. Servers that do not answer are no error: then every Look says so. Open returns an error if the
// Sources are not valid, for [ErrNoChroot], and for session.ErrAuthFailed. Close must be called.
func Open(ctx context.Context, from Sources) (*Inspector, error) {
	from.Wait = cmp.Or(from.Wait, patience)
	if from.Config == nil {
		from.Config = sarama.NewConfig()
	}
	if from.Session.Chroot == "/" {
		from.Session.Chroot = ""
	}
	in := &Inspector{from: from, asker: newAsker(from.Local)}
	if _, err := session.New(from.Servers, from.Session); err != nil { // it connects to nothing
		return nil, operr.New(pkg, "open", "", err)
	}
	err := in.connect(ctx)
	switch {
	case err == nil:
		return in, nil
	case errors.Is(err, session.ErrAuthFailed), errors.Is(err, ErrNoChroot), ctx.Err() != nil:
		_ = in.Close(context.WithoutCancel(ctx))
		return nil, operr.New(pkg, "open", "", err)
	default:
		_ = in.Close(context.WithoutCancel(ctx))
		in.root, in.zk, in.zkErr = nil, nil, err
		return in, nil
	}
}

// connect makes the sessions. One in a chroot that is missing would create it, so one without a chroot looks first.
func (in *Inspector) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, in.from.Wait)
	defer cancel()
	if in.root, err = session.Start(ctx, in.from.Servers, in.outside()); err != nil {
		return err
	}
	if in.from.Session.Chroot == "" {
		in.zk = in.root
		return nil
	}
	inc, err := in.root.Incarnation(ctx)
	if err != nil {
		return err
	}
	exists, _, err := inc.Exists(ctx, in.from.Session.Chroot)
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("%w: %s", ErrNoChroot, in.from.Session.Chroot)
	}
	in.zk, err = session.Start(ctx, in.from.Servers, in.from.Session)
	return err
}

// outside returns the options of a session without a chroot. Its proofs of life read the chroot: "/" may be closed to this user.
func (in *Inspector) outside() session.Options {
	opts := in.from.Session
	if opts.Chroot != "" {
		opts.Chroot, opts.CheckPath = "", session.Join(opts.Chroot, opts.CheckPath)
	}
	return opts
}

// Close ends the connections.
func (in *Inspector) Close(ctx context.Context) error {
	var errs []error
	if in.zk != nil && in.zk != in.root {
		errs = append(errs, in.zk.Close(ctx))
	}
	if in.root != nil {
		errs = append(errs, in.root.Close(ctx))
	}
	return errors.Join(errs...)
}

// Groups returns the names of the groups in the chroot, sorted. It waits for ZooKeeper for Sources.Wait at most; errors are the
// session's.
func (in *Inspector) Groups(ctx context.Context) (groups []string, err error) {
	err = in.read(ctx, func(ctx context.Context, inc *session.Incarnation) error {
		groups = nil
		names, _, err := inc.Children(ctx, groupsPath)
		if err != nil && !errors.Is(err, session.ErrNoNode) {
			return err
		}
		for _, name := range names {
			if group, ok := kiel.GroupOfZnode(name); ok && kiel.CheckGroup(group) == nil {
				groups = append(groups, group)
			}
		}
		return nil
	})
	if err != nil {
		return nil, operr.New(pkg, "list groups", "", err)
	}
	slices.Sort(groups)
	return groups, nil
}

const groupsPath = "/kiel/groups"

// groupPath returns the path of a group's znode, followed by elem.
func groupPath(group string, elem ...string) string {
	return session.Join(append([]string{groupsPath, kiel.GroupZnode(group)}, elem...)...)
}

// read calls f in an incarnation, and again if the incarnation ends meanwhile, within Sources.Wait.
func (in *Inspector) read(ctx context.Context, f func(context.Context, *session.Incarnation) error) error {
	return read(ctx, in.zk, in.zkErr, in.from.Wait, f)
}

func read(ctx context.Context, s *session.Session, missing error, wait time.Duration, f func(context.Context, *session.Incarnation) error) error {
	if s == nil {
		return missing
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		inc, err := s.Incarnation(ctx)
		if err == nil {
			err = f(ctx, inc)
		}
		if !session.Retryable(err) || ctx.Err() != nil {
			return err
		}
	}
}

// servers tries each server by itself: it must accept a session, and have a quorum acknowledge a transaction.
func (in *Inspector) servers(ctx context.Context) []Server {
	ctx, cancel := context.WithTimeout(ctx, in.from.Wait)
	defer cancel()
	found := make([]Server, len(in.from.Servers))
	var all sync.WaitGroup
	for i, address := range in.from.Servers {
		all.Go(func() {
			found[i] = Server{Address: statuswrite.Name(address)}
			s, err := session.Start(ctx, []string{address}, in.outside())
			if err != nil {
				found[i].Error = shown(err)
				return
			}
			found[i].OK = true
			_ = s.Close(ctx)
		})
	}
	all.Wait()
	return found
}

// chroot returns the chroot as a Report has it.
func (in *Inspector) chroot() string { return cmp.Or(in.from.Session.Chroot, "/") }

// shown returns the text of an error as a Report has it.
func shown(err error) string {
	if err == nil {
		return ""
	}
	return statuswrite.Text(operr.Text(err))
}
