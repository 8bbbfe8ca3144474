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

// The bounds of a question to a member.
const (
	askWait   = time.Second // for all of it
	maxAnswer = 16 << 20    // bytes
	askers    = 16          // questions at a time
)

// Answer says whether a member has answered.
type Answer struct {
	Member string      `json:"member"`
	State  SourceState `json:"state"`
	Error  string      `json:"error,omitempty"` // why it did not answer; "auth" if it asks for a login
}

var (
	errLocal = errors.New("the address is this machine's or this link's")
	errAuth  = errors.New("auth")
)

// newAsker returns a client that follows no redirect, uses no proxy, and connects to no loopback or link-local address unless local is true,
// whatever a name resolves to.
func newAsker(local bool) *http.Client {
	dialer := &net.Dialer{Timeout: askWait, Control: func(_, address string, _ syscall.RawConn) error { return checkAddress(address, local) }}
	return &http.Client{
		Timeout:       askWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: askWait, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10,
		},
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
func ask(ctx context.Context, group string, members []status.Member, local bool) ([]*status.Group, []Answer) {
	client := newAsker(local)
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
				if said[i], err = askOne(ctx, client, group, m); err != nil {
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

// notEchoed returns an error that has nothing of what the other side has sent.
func notEchoed(err error) error {
	var timeout interface{ Timeout() bool }
	var dial *net.OpError
	switch {
	case errors.Is(err, errLocal):
		return errLocal
	case errors.As(err, &timeout) && timeout.Timeout():
		return errLate
	case errors.As(err, &dial) && dial.Op == "dial":
		return dial
	default:
		return errors.New("no answer in HTTP, or TLS that is not trusted")
	}
}

func askOne(ctx context.Context, client *http.Client, group string, m *status.Member) (*status.Group, error) {
	if err := status.CheckAddr(m.StatusAddr); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.StatusAddr+"/status", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, notEchoed(err)
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, errAuth
	default:
		return nil, fmt.Errorf("HTTP status %d", response.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, notEchoed(err)
	}
	if len(data) > maxAnswer {
		return nil, errors.New("the answer is too large")
	}
	var g status.Group
	if json.Unmarshal(data, &g) != nil { // its error would show what was read
		return nil, errors.New("the answer is no status of kiel")
	}
	if g.Version != status.Version || g.Group != group || g.Self == nil || g.Self.Name != m.Name {
		return nil, errors.New("the answer is of another group, member or version")
	}
	return trimmed(&g), nil
}

// The bounds of what is kept of an answer.
const (
	maxTroubles = 50
	maxAbout    = status.MaxListed // objects of a trouble
)

// trimmed returns what a member says of itself: its own open partitions, and its troubles. A thousand whole answers have no room.
func trimmed(g *status.Group) *status.Group {
	kept := &status.Group{}
	for _, p := range g.Partitions {
		if p.Offsets != nil || p.WaitsFor != "" {
			kept.Partitions = append(kept.Partitions, status.Partition{
				Topic: strings.Clone(status.Shown(p.Topic)), Partition: p.Partition, Offsets: p.Offsets, WaitsFor: status.ShownText(p.WaitsFor),
			})
		}
	}
	for _, t := range g.Troubles[:min(len(g.Troubles), maxTroubles)] {
		t.Kind, t.Last = strings.Clone(status.Shown(t.Kind)), status.ShownText(t.Last)
		about := t.About[:min(len(t.About), maxAbout)]
		t.About = make([]string, len(about)) // the rest of the answer is not kept with them
		for i, a := range about {
			t.About[i] = strings.Clone(status.Shown(a))
		}
		kept.Troubles = append(kept.Troubles, t)
	}
	return kept
}
