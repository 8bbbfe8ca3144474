package party

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// partyWord is what makes a child a member of a KazooParty.
const partyWord = "__party__"

// KazooOptions of a [KazooParty] and a [ShallowParty]. The zero value works.
type KazooOptions struct {
	// Identifier is who we are, for those who look. It is UTF-8; several members
	// may have the same. Default: empty.
	Identifier string

	// Logger gets what happens, and, as "still waiting", for which znode a Join waits for
	// long: after about half a minute, and then whenever the time has doubled.
	// With nil, warnings and errors go to slog.Default() and the rest is dropped; a Logger with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// KazooParty is kazoo's Party: members of any number under one znode, each known by
// an identifier that is the data of its own znode.
//
//	<path>                    persistent, empty, made when missing, never deleted
//	<path>/<guid>__party__    a member: ephemeral, data: the identifier in UTF-8
//
// The GUID is one for each KazooParty, as in kazoo. Children whose name does not
// hold the word are no members.
//
// A member comes back by itself after an expired session, under the same name; kazoo's
// does not. A znode of that name that the session before still owns is waited for, so
// that the member does not vanish with it. No znode is orphaned, whatever reply is lost
// and whenever a caller gives up: it is removed in the background, for as long as its
// session lives. A membership does not keep the session open: it ends with it.
//
// Not guaranteed: that two look at the same members at the same time, or that a member
// works. That its identifier is there says that its session has not expired.
//
// All methods may be called from any goroutine. From Join to Leave, or the end of the
// session, there is one goroutine, which looks after our znode.
type KazooParty struct{ m membership }

// NewKazooParty returns a handle on the party at path. It checks its arguments and
// does no I/O. The session must be running for the other methods to succeed.
func NewKazooParty(s *session.Session, path string, opts KazooOptions) (*KazooParty, error) {
	p := &KazooParty{}
	if err := p.m.init(s, path, opts, seqnode.NewGUID()+partyWord); err != nil {
		return nil, err
	}
	return p, nil
}

// Node returns the path of our znode, be it there or not.
func (p *KazooParty) Node() string { return p.m.node }

// Join makes us a member and returns when our znode stands. From then on until
// [KazooParty.Leave] the znode is made again whenever it is gone: in each new
// ZooKeeper session, and after somebody deleted it. When ctx ends first the error
// wraps the cause, and what was made is removed in the background, unless another
// goroutine still waits in Join. A member that joins gets nil at once. One that
// left waits until its znode is gone.
//
// As in kazoo a znode of our name that belongs to no session is taken for ours,
// and deleted when we leave.
func (p *KazooParty) Join(ctx context.Context) error { return p.m.join(ctx) }

// Leave ends the membership and deletes our znode. It returns nil when that is
// proved gone or its ZooKeeper session is over, and at once when we are no member. Once
// the session's Run has ended it is gone within one session timeout.
// When ctx ends first, the removal goes on in the background and the error wraps
// the cause.
func (p *KazooParty) Leave(ctx context.Context) error { return p.m.leave(ctx) }

// IsMember reports whether our znode was seen in the incarnation of the session
// that is trusted now. It never blocks.
func (p *KazooParty) IsMember() bool { return p.m.isMember() }

// Members returns the identifiers of the members, sorted. Identifiers that several
// have come several times. A party whose znode is missing has none; looking
// creates nothing. It costs a request for each member.
func (p *KazooParty) Members(ctx context.Context) ([]string, error) {
	return p.m.members(ctx, 0, p.identifiers)
}

// WaitForMembers waits until there are at least n members, and returns their
// identifiers as [KazooParty.Members] does. When ctx ends first, the error wraps
// the cause and says how many there were.
func (p *KazooParty) WaitForMembers(ctx context.Context, n int) ([]string, error) {
	return p.m.members(ctx, n, p.identifiers)
}

// identifiers reads the identifiers of those children that are members.
func (p *KazooParty) identifiers(ctx context.Context, inc *session.Incarnation, children []string) ([]string, error) {
	var list []string
	for _, name := range children {
		if !strings.Contains(name, partyWord) {
			continue
		}
		data, _, err := inc.Get(ctx, session.Join(p.m.path, name))
		if errors.Is(err, session.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, strings.ToValidUTF8(string(data), ""))
	}
	return list, nil
}

// ShallowParty is kazoo's ShallowParty: like [KazooParty], but the identifier is in
// the name of the znode, so that one request tells all members.
//
//	<path>                        persistent, empty, made when missing, never deleted
//	<path>/<guid>-<identifier>    a member: ephemeral, data: the identifier in UTF-8
//
// As in kazoo each child is a member: its identifier is what follows the first "-"
// in its name, or the whole name when there is none.
type ShallowParty struct{ m membership }

// NewShallowParty returns a handle on the party at path. It checks its arguments
// and does no I/O. The identifier must be fit for the name of a znode.
func NewShallowParty(s *session.Session, path string, opts KazooOptions) (*ShallowParty, error) {
	if strings.Contains(opts.Identifier, "/") {
		return nil, fmt.Errorf("party: Identifier %q: a name of a znode has no /", opts.Identifier)
	}
	p := &ShallowParty{}
	if err := p.m.init(s, path, opts, seqnode.NewGUID()+"-"+opts.Identifier); err != nil {
		return nil, err
	}
	return p, nil
}

// Node returns the path of our znode, be it there or not.
func (p *ShallowParty) Node() string { return p.m.node }

// Join is [KazooParty.Join].
func (p *ShallowParty) Join(ctx context.Context) error { return p.m.join(ctx) }

// Leave is [KazooParty.Leave].
func (p *ShallowParty) Leave(ctx context.Context) error { return p.m.leave(ctx) }

// IsMember is [KazooParty.IsMember].
func (p *ShallowParty) IsMember() bool { return p.m.isMember() }

// Members is [KazooParty.Members], for one request.
func (p *ShallowParty) Members(ctx context.Context) ([]string, error) {
	return p.m.members(ctx, 0, shallowIdentifiers)
}

// WaitForMembers is [KazooParty.WaitForMembers].
func (p *ShallowParty) WaitForMembers(ctx context.Context, n int) ([]string, error) {
	return p.m.members(ctx, n, shallowIdentifiers)
}

func shallowIdentifiers(_ context.Context, _ *session.Incarnation, children []string) ([]string, error) {
	list := make([]string, 0, len(children))
	for _, name := range children {
		list = append(list, ShallowIdentifier(name))
	}
	return list, nil
}

// ShallowIdentifier returns the identifier that the name of a ShallowParty's child
// bears.
func ShallowIdentifier(child string) string {
	if _, identifier, ok := strings.Cut(child, "-"); ok {
		return identifier
	}
	return child
}

// init checks what both kinds have in common.
func (m *membership) init(s *session.Session, path string, opts KazooOptions, name string) error {
	if s == nil {
		return errors.New("party: the session is nil")
	}
	if err := session.CheckPath(path); err != nil {
		return fmt.Errorf("party: %w", err)
	}
	if !utf8.ValidString(opts.Identifier) {
		return fmt.Errorf("party: Identifier %q is no valid UTF-8", opts.Identifier)
	}
	node := session.Join(path, name)
	if err := session.CheckPath(node); err != nil {
		return fmt.Errorf("party: Identifier: %w", err)
	}
	opts.Logger = defaultlog.Or(opts.Logger)
	m.sess, m.path, m.node, m.data = s, path, node, []byte(opts.Identifier)
	m.log = opts.Logger.With("component", "party", "path", node)
	return nil
}
