package party

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/kielgo/kiel/internal/defaultlog"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/internal/seqnode"
	"github.com/kielgo/kiel/session"
)

// partyWord is part of the name of each child that is a member of a KazooParty.
const partyWord = "__party__"

// KazooOptions configure a [KazooParty] or a [ShallowParty]. The zero value works.
type KazooOptions struct {
	// Identifier is the identifier by which other members know this one. It is UTF-8; several members may have the same. Default:
	// empty.
	Identifier string

	// Logger receives the log. The line "still waiting" names the znode for which a Join waits: after about half a minute, and
	// then whenever the time has doubled. With nil, warnings and errors go to slog.Default() and the rest is dropped; a Logger
	// with slog.DiscardHandler drops all.
	Logger *slog.Logger
}

// KazooParty is kazoo's Party: any number of members under one znode, each known by an identifier, which is the data of its
// znode.
//
//	<path>                    persistent, empty, created when missing, never deleted
//	<path>/<guid>__party__    a member: ephemeral, data: the identifier in UTF-8
//
// Each KazooParty has one GUID, as in kazoo. Children whose name does not have the word __party__ are no members.
//
// A member joins again by itself after its session has expired, under the same name; kazoo's does not. If the expired session
// still owns a znode of that name, the member waits until that znode is gone, because it would vanish with that session. No lost
// reply and no caller that gives up leaves a znode behind: the znode is removed in the background, for as long as its session
// lives. A membership does not keep the session open; it ends with the session.
//
// Not guaranteed: that two programs see the same members at the same time, or that a member works. An identifier in the list
// means that its session has not expired.
//
// All methods may be called from any goroutine. From Join to Leave, or to the end of the session, one goroutine looks after the
// member's znode.
type KazooParty struct{ m membership }

// NewKazooParty returns a handle on the party at path. It checks its arguments and sends nothing. The session must run for the
// other methods to succeed.
func NewKazooParty(s *session.Session, path string, opts KazooOptions) (*KazooParty, error) {
	p := &KazooParty{}
	if err := p.m.init(s, path, opts, seqnode.NewGUID()+partyWord); err != nil {
		return nil, err
	}
	return p, nil
}

// Node returns the path of this member's znode, whether the znode exists or not.
func (p *KazooParty) Node() string { return p.m.node }

// Join creates this member's znode and returns when the znode exists. From then on until [KazooParty.Leave] the znode is created
// again whenever it is gone: in each new ZooKeeper session, and after somebody has deleted it. If ctx ends first, the error wraps
// the cause, and the znode is removed in the background, unless another goroutine still waits in Join. If the servers refuse the
// znode, Join returns that error, and a znode that may exist is removed in the background. Join of a member returns nil at once.
// Join after a Leave, or after a refusal, first waits until the old znode is gone.
//
// As in kazoo, a znode of this member's name that no session owns counts as this member's, and Leave deletes it.
func (p *KazooParty) Join(ctx context.Context) error { return p.m.join(ctx) }

// Leave ends the membership and deletes this member's znode. It returns nil when the znode is proved gone or its ZooKeeper
// session is over, and at once if there is no membership. After the end of the session's Run the znode is gone within one session
// timeout. If ctx ends first, the removal goes on in the background and the error wraps the cause.
func (p *KazooParty) Leave(ctx context.Context) error { return p.m.leave(ctx) }

// IsMember reports whether this member's znode was seen in the incarnation of the session that is trusted now. It never blocks.
func (p *KazooParty) IsMember() bool { return p.m.isMember() }

// Members returns the identifiers of the members, sorted. It lists an identifier as often as members have it. A party whose znode
// is missing has no members; Members does not create the znode. It sends a request for each member.
func (p *KazooParty) Members(ctx context.Context) ([]string, error) {
	return p.m.members(ctx, 0, p.identifiers)
}

// WaitForMembers waits until there are at least n members, and returns their identifiers as [KazooParty.Members] does. If ctx
// ends first, the error wraps the cause and says how many members there were.
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

// ShallowParty is kazoo's ShallowParty: like [KazooParty], but the identifier is in the name of the znode, so that one request
// returns all members.
//
//	<path>                        persistent, empty, created when missing, never deleted
//	<path>/<guid>-<identifier>    a member: ephemeral, data: the identifier in UTF-8
//
// As in kazoo each child is a member. Its identifier is what follows the first "-" in its name, or the whole name if it has no
// "-".
type ShallowParty struct{ m membership }

// NewShallowParty returns a handle on the party at path. It checks its arguments and sends nothing. The identifier must be
// allowed in the name of a znode.
func NewShallowParty(s *session.Session, path string, opts KazooOptions) (*ShallowParty, error) {
	if strings.Contains(opts.Identifier, "/") {
		return nil, operr.New("party", "", "", fmt.Errorf("option Identifier: %q has a /, which the name of a znode can't have", opts.Identifier))
	}
	p := &ShallowParty{}
	if err := p.m.init(s, path, opts, seqnode.NewGUID()+"-"+opts.Identifier); err != nil {
		return nil, err
	}
	return p, nil
}

// Node is [KazooParty.Node].
func (p *ShallowParty) Node() string { return p.m.node }

// Join is [KazooParty.Join].
func (p *ShallowParty) Join(ctx context.Context) error { return p.m.join(ctx) }

// Leave is [KazooParty.Leave].
func (p *ShallowParty) Leave(ctx context.Context) error { return p.m.leave(ctx) }

// IsMember is [KazooParty.IsMember].
func (p *ShallowParty) IsMember() bool { return p.m.isMember() }

// Members is [KazooParty.Members], but sends one request for all members.
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

// ShallowIdentifier returns the identifier in the name of a ShallowParty's child.
func ShallowIdentifier(child string) string {
	if _, identifier, ok := strings.Cut(child, "-"); ok {
		return identifier
	}
	return child
}

// init checks the arguments of both kinds' constructors, and sets the fields. name is the name of this member's znode.
func (m *membership) init(s *session.Session, path string, opts KazooOptions, name string) error {
	if s == nil {
		return operr.New("party", "", "", errors.New("session is nil"))
	}
	if err := session.CheckPath(path); err != nil {
		return operr.New("party", "", "", err)
	}
	if !utf8.ValidString(opts.Identifier) {
		return operr.New("party", "", "", fmt.Errorf("option Identifier: %q is not valid UTF-8", opts.Identifier))
	}
	node := session.Join(path, name)
	if err := session.CheckPath(node); err != nil {
		return operr.New("party", "option Identifier", "", err)
	}
	opts.Logger = defaultlog.Or(opts.Logger)
	m.sess, m.path, m.node, m.data = s, path, node, []byte(opts.Identifier)
	m.log = opts.Logger.With("component", "party", "path", node)
	return nil
}
