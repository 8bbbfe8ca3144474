package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kielgo/kiel/status"
)

// The bounds of questions to members.
const (
	askWait   = time.Second // until an answer begins, and again until it is read
	maxAnswer = 16 << 20    // bytes
	askers    = 256         // questions at a time, of all looks of an Inspector
	readers   = 16          // answers that are read at a time
)

// Answer says whether a member has answered.
type Answer struct {
	Member string      `json:"member"`
	State  SourceState `json:"state"`
	Error  string      `json:"error,omitempty"` // why it did not answer; "auth" if it asks for a login
}

var (
	errLocal = errors.New("the address is this machine's or this link's: not asked without --local-members")
	errAuth  = errors.New("auth")
)

// asker asks members for their status.
type asker struct {
	client    *http.Client
	questions chan struct{} // has an element for each question on its way
	answers   chan struct{} // has an element for each answer that is read
}

// newAsker returns an asker that follows no redirect, uses no proxy, and connects to no loopback or link-local address unless local is true,
// whatever a name resolves to.
func newAsker(local bool) *asker {
	dialer := &net.Dialer{Timeout: askWait, Control: func(_, address string, _ syscall.RawConn) error { return checkAddress(address, local) }}
	return &asker{
		client: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				DialContext: dialer.DialContext, TLSHandshakeTimeout: askWait, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
			},
		},
		questions: make(chan struct{}, askers), answers: make(chan struct{}, readers),
	}
}

func checkAddress(address string, local bool) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := ap.Addr().Unmap()
	if !local && (ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast()) {
		return errLocal
	}
	return nil
}

// ask asks the members that say where they answer. It returns what each has said, nil for those that did not answer.
func (a *asker) ask(ctx context.Context, group string, members []status.Member) ([]*status.Group, []Answer) {
	said, answers := make([]*status.Group, len(members)), make([]Answer, len(members))
	var all sync.WaitGroup
	for first := range min(askers, len(members)) {
		all.Go(func() {
			for i := first; i < len(members); i += askers {
				m := &members[i]
				answers[i] = Answer{Member: m.Name, State: NotAsked}
				if m.StatusAddr == "" {
					continue
				}
				var err error
				if said[i], err = a.askOne(ctx, group, m); err != nil {
					answers[i].State, answers[i].Error = Failed, shown(err)
					continue
				}
				answers[i].State = OK
			}
		})
	}
	all.Wait()
	return said, answers
}

// take waits for room in a channel, until ctx ends.
func take(ctx context.Context, room chan struct{}) error {
	select {
	case room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errLate
	}
}

// notEchoed returns an error that has nothing of what the other side has sent.
func notEchoed(asking context.Context, err error) error {
	var timeout interface{ Timeout() bool }
	var dial *net.OpError
	switch {
	case errors.Is(err, errLocal):
		return errLocal
	case asking.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return errLate
	case errors.As(err, &dial) && dial.Op == "dial":
		return dial
	default:
		return errors.New("no answer in HTTP, or TLS that is not trusted")
	}
}

// askOne asks one member. Members that hang cost a second each, but no room among the answers that are read.
func (a *asker) askOne(ctx context.Context, group string, m *status.Member) (*status.Group, error) {
	if err := status.CheckAddr(m.StatusAddr); err != nil {
		return nil, err
	}
	if err := take(ctx, a.questions); err != nil {
		return nil, err
	}
	defer func() { <-a.questions }()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(askWait, cancel)
	defer timer.Stop()
	request, err := http.NewRequestWithContext(asking, http.MethodGet, m.StatusAddr+"/status", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, notEchoed(asking, err)
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, errAuth
	default:
		return nil, fmt.Errorf("HTTP status %d", response.StatusCode)
	}
	timer.Stop()
	if err := take(asking, a.answers); err != nil {
		return nil, err
	}
	defer func() { <-a.answers }()
	timer.Reset(askWait)
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, notEchoed(asking, err)
	}
	return decoded(data, group, m.Name)
}

// decoded returns what a member has answered.
func decoded(data []byte, group, member string) (*status.Group, error) {
	if len(data) > maxAnswer {
		return nil, errors.New("the answer is too large")
	}
	var g status.Group
	if json.Unmarshal(data, &g) != nil { // its error would show what was read
		return nil, errors.New("the answer is no status of kiel")
	}
	if g.Version != status.Version || g.Group != group || g.Self == nil || g.Self.Name != member {
		return nil, errors.New("the answer is of another group, member or version")
	}
	return trimmed(&g), nil
}

// The bounds of what is kept of an answer.
const (
	maxTroubles = 50               // troubles, disagreements and changes, each
	maxAbout    = status.MaxListed // names in one of them
)

// trimmed returns what a member says of itself: whether it reaches Kafka, its own open partitions, its troubles, what it has found in
// stored offsets, and when it has missed members. A thousand whole answers have no room.
func trimmed(g *status.Group) *status.Group {
	kept := &status.Group{Self: &status.Self{Kafka: g.Self.Kafka}}
	for _, p := range g.Partitions {
		if p.Offsets != nil || p.WaitsFor != "" {
			kept.Partitions = append(kept.Partitions, status.Partition{
				Topic: strings.Clone(status.Shown(p.Topic)), Partition: p.Partition, Offsets: p.Offsets, WaitsFor: status.ShownText(p.WaitsFor),
			})
		}
	}
	for _, t := range g.Troubles[:min(len(g.Troubles), maxTroubles)] {
		t.Kind, t.Last, t.About = strings.Clone(status.Shown(t.Kind)), status.ShownText(t.Last), namesOf(t.About)
		kept.Troubles = append(kept.Troubles, t)
	}
	for _, d := range g.Disagreements {
		if len(kept.Disagreements) < maxTroubles && (d.Kind == status.TwoTrees || d.Kind == status.NewerOwner) {
			kept.Disagreements = append(kept.Disagreements, status.Disagreement{Kind: d.Kind, Names: namesOf(d.Names)})
		}
	}
	for _, c := range g.Changes[:min(len(g.Changes), maxTroubles)] {
		if len(c.Gone) > 0 {
			kept.Changes = append(kept.Changes, status.Change{At: c.At, Gone: namesOf(c.Gone)})
		}
	}
	return kept
}

// namesOf returns copies of a few names: the rest of the answer is not kept with them.
func namesOf(names []string) []string {
	few := make([]string, min(len(names), maxAbout))
	for i := range few {
		few[i] = strings.Clone(status.Shown(names[i]))
	}
	return few
}
