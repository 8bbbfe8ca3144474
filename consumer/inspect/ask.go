package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/kielgo/kiel/status"
)

// The bounds of questions to members.
const (
	askWait = time.Second // until an answer begins, and again until it is read
	askers  = 256         // questions at a time, of all looks of an Inspector
	readers = 16          // answers that are read at a time, of each of which one element is in memory
)

// Answer says whether a member has answered.
type Answer struct {
	Member string      `json:"member"`
	State  SourceState `json:"state"`
	Error  string      `json:"error,omitempty"` // why it did not answer; "auth" if it asks for a login
	// Silent says that nothing answered in its place: no connection could be made, or nothing came in time.
	Silent bool `json:"silent,omitempty"`
}

var (
	errLocal = errors.New("the address is this machine's or this link's: not asked without --local-members")
	errAuth  = errors.New("auth")
	errFull  = errors.New("there was no time left to ask")
)

// asker asks members for their status.
type asker struct {
	client    *http.Client
	questions chan struct{} // has an element for each question on its way
	answers   chan struct{} // has an element for each answer that is read
}

// newAsker returns an asker that follows no redirect, uses no proxy, and connects to no loopback or link-local address unless
// local is true, whatever a name resolves to.
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

// ask asks the members that say where they answer. It returns what each has said of the partitions that it holds, nil for those
// that did not answer.
func (a *asker) ask(ctx context.Context, group string, members []status.Member, of holders) ([]*status.Group, []Answer) {
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
				if said[i], err = a.askOne(ctx, group, m, of); err != nil {
					answers[i].State, answers[i].Error, answers[i].Silent = Failed, shown(err), isSilence(ctx, err)
					continue
				}
				answers[i].State = OK
			}
		})
	}
	all.Wait()
	return said, answers
}

// isSilence returns whether an error of askOne is that nothing answered, though there was the time to.
func isSilence(ctx context.Context, err error) bool {
	var dial *net.OpError
	return errors.Is(err, errLate) && ctx.Err() == nil || errors.As(err, &dial)
}

// take waits for room in a channel, until ctx ends.
func take(ctx context.Context, room chan struct{}) error {
	select {
	case room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errFull
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
func (a *asker) askOne(ctx context.Context, group string, m *status.Member, of holders) (*status.Group, error) {
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
	g, err := readAnswer(response.Body, group, m.Name, of)
	if err != nil && !isVerdict(err) {
		err = notEchoed(asking, err)
	}
	return g, err
}

// isVerdict returns whether an error of readAnswer is about what was read, and not of the connection.
func isVerdict(err error) bool {
	return errors.Is(err, errTooLarge) || errors.Is(err, errNoStatus) || errors.Is(err, errOther)
}
