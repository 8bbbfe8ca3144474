package operr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kielgo/kiel/internal/operr"
)

var errRefused = errors.New("refused")

// other is an error of another package that has an Error in it.
type other struct{ error }

// Unwrap returns the Error.
func (o other) Unwrap() error { return o.error }

func (o other) Operation() *operr.Error {
	e, _ := errors.AsType[*operr.Error](o.error)
	return e
}

// textError is an error like recipe.BlockedError.
type textError struct{ error }

func (textError) Text() string    { return "/l: blocked" }
func (w textError) Unwrap() error { return w.error }

// An error without a reason, which is a mistake, has a text all the same.
func TestNoReason(t *testing.T) {
	for want, err := range map[string]error{
		"party: join /b: no reason is known": operr.New("party", "join", "/b", nil),
		"refused: no reason is known":        operr.Because(errRefused, nil),
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Each text names package, operation and object once, and the error wraps all that it was made of.
func TestTexts(t *testing.T) {
	get := operr.New("session", "get", "/b", errRefused)
	lost := errors.New("lost")
	for want, err := range map[string]error{
		"session: get /b: refused": get,
		"session: refused":         operr.New("session", "", "", errRefused),
		"session: run: refused":    operr.New("session", "run", "", errRefused),
		"session: /b: refused":     operr.New("session", "", "/b", errRefused),
		"get /b: refused":          operr.New("", "get", "/b", errRefused),

		"party: get /b: refused":                     operr.New("party", "", "", get),
		"party: join /a: get /b: refused":            operr.New("party", "join", "/a", get),
		"party: join /b: refused":                    operr.New("party", "join", "/b", get),
		"party: join /b: lost: refused":              operr.New("party", "join", "/b", operr.Because(lost, get)),
		"party: join /a: lost: get /b: refused":      operr.New("party", "join", "/a", operr.Because(lost, get)),
		"lost: get /b: refused":                      operr.Because(lost, get),
		"allocator: join /b: refused":                operr.New("allocator", "", "", operr.New("party", "join", "/b", get)),
		"allocator: join /b: run: refused":           operr.New("allocator", "join", "/b", operr.New("", "run", "", operr.New("", "get", "/b", errRefused))),
		"party: join /a: get /b: refused\nlost":      operr.New("party", "join", "/a", errors.Join(get, lost)),
		"party: join /b: refused\nlost":              operr.New("party", "join", "/b", errors.Join(get, lost)),
		"lease: get /b: refused ":                    operr.New("lease", "", "", other{operr.New("lock", "get", "/b", fmt.Errorf("%w ", errRefused))}),
		"sharedset: add to /s: /l: blocked":          operr.New("sharedset", "add to", "/s", textError{fmt.Errorf("lock: %w", errRefused)}),
		"party: join /b: refused  ":                  operr.New("party", "join", "/b", operr.Mark(operr.New("session", "get", "/b", errors.New("refused  ")), errRefused)),
		"party: join /a: a user's: session: refused": operr.New("party", "join", "/a", fmt.Errorf("a user's: session: %w", errRefused)),
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if !errors.Is(err, errRefused) {
			t.Errorf("%q does not wrap its cause", want)
		}
	}
	if err := operr.Because(lost, get); !errors.Is(operr.New("party", "join", "/b", err), get) || !errors.Is(err, lost) {
		t.Error("an error that is not named is not wrapped")
	}
}
