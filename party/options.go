package party

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
	"github.com/kielgo/kiel/session"
)

// MaxRecord is the size of the largest record, in bytes.
const MaxRecord = 64 << 10

// Options configure a [Party]. The zero value makes an observer.
type Options struct {
	// Name is the member's name, which [kiel.CheckMember] allows. "" means that the Party only observes.
	Name string
	// Data is the member's record, up to [MaxRecord] bytes. Empty data means that the member has no record, as Python members
	// have none. Data needs a Name.
	Data []byte
	// Records is the path of a directory beside the members', in which members with a record say its hash, so that not each
	// member has to read the record of each other one: the package's page has the rules. All members of a directory need the same
	// path. "" means that there is none.
	Records string
	// Info is the data of this member's znode in the directory Records, which only [ReadEntries] reads. It is for what differs
	// from member to member, up to 64 KiB. Info needs a Name and Records.
	Info []byte
	// Singly, when not nil, reports whether the znode of each of these members has to be read, because their age or their session
	// matters. It is called on Run's goroutine with members whose records are known by their hash, and must return at once.
	Singly func(members []Member) bool
	// Admit, when not nil, says whether this member may be in the directory with the members of a view: nil, or why it may not.
	// It is called with the members that were read before each join, and with each new view in which this member has joined. Then
	// Joined says whether this member's znode is among them. If Admit returns an error, the member does not join, or leaves, that
	// view is not published, and Run ends with an [ErrNotAdmitted] that wraps the error. So a member that Admit refuses is in no
	// view of its own. Admit is called on Run's goroutine: it must return at once and must not call the Party's methods.
	Admit func(v *View) error
	// Rejoin says that this member was in the directory before, as a Party that has ended. Then a refusal by the servers never
	// ends Run, as if this Party itself had joined.
	Rejoin bool
	// Static, when not nil, makes this member static, which needs a Name and a record for which Static.Is returns true. The
	// session must be this member's alone ([Static]).
	Static *Static
	// Logger receives the log. With nil, warnings and errors go to slog.Default() and the rest is dropped; a Logger with
	// slog.DiscardHandler drops all.
	Logger *slog.Logger
	// Registerer gets the metric kiel_membership_refusals_total. Parties with the same Registerer share it. With nil it is not
	// registered.
	Registerer prometheus.Registerer
}

// validate returns all faults of the options and of path.
func (o Options) validate(path string) error {
	var errs []error
	if err := session.CheckPath(path); err != nil {
		errs = append(errs, err)
	}
	if o.Name != "" {
		if err := kiel.CheckMember(o.Name); err != nil {
			errs = append(errs, err)
		}
	}
	if len(o.Data) > MaxRecord {
		errs = append(errs, fmt.Errorf("option Data: %d bytes: %w", len(o.Data), ErrRecordTooLarge))
	}
	if o.Records != "" {
		if err := session.CheckPath(o.Records); err != nil {
			errs = append(errs, operr.New("", "option Records", "", err))
		} else if o.Records == path || strings.HasPrefix(o.Records, path+"/") {
			errs = append(errs, errors.New("option Records: is or is in the directory of the members, every child of which is a member"))
		}
	}
	if len(o.Info) > MaxRecord {
		errs = append(errs, fmt.Errorf("option Info: %d bytes: %w", len(o.Info), ErrRecordTooLarge))
	}
	if (o.Name == "" || o.Records == "") && len(o.Info) > 0 {
		errs = append(errs, errors.New("option Info: needs a Name and Records"))
	}
	if o.Name == "" && len(o.Data) > 0 {
		errs = append(errs, errors.New("option Data: a Party without a name has no record"))
	}
	if s := o.Static; s != nil {
		if s.Is == nil || !s.Is(o.Data) || o.Name == "" {
			errs = append(errs, errors.New("option Static: needs a Name, and a record of a static member"))
		}
		if err := session.CheckPath(s.Guard); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
