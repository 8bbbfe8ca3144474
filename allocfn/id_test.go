package allocfn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kielgo/kiel/allocfn"
)

func TestID(t *testing.T) {
	for _, f := range funcs() {
		if f.ID() != f.Name+"/1" {
			t.Errorf("%s: %s", f.Name, f.ID())
		}
	}
	f := allocfn.RoundRobin()
	f.Version = 12
	if f.ID() != "roundrobin/12" {
		t.Error(f.ID())
	}
	for _, version := range []int{-1, 1_000_001} {
		f.Version = version
		if err := f.Validate(); !errors.Is(err, allocfn.ErrFunc) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

func TestParseID(t *testing.T) {
	for text, want := range map[string]string{
		"range": "range/1", "range/1": "range/1", "range/12": "range/12", "a-1/1000000": "a-1/1000000",
		"": "", "/1": "", "range/": "", "range/0": "", "range/01": "", "range/-1": "", "range/+1": "", "range/1/1": "", "range/1000001": "",
		"Range": "", "range/x": "", "range/99999999999999999999": "", strings.Repeat("x", 65): "", strings.Repeat("x", 64): strings.Repeat("x", 64) + "/1",
	} {
		id, err := allocfn.ParseID(text)
		if want == "" && !errors.Is(err, allocfn.ErrFunc) || want != "" && (err != nil || id != want) {
			t.Errorf("%q: %q, %v, want %q", text, id, err, want)
		}
	}
}
