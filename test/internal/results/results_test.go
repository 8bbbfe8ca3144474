package results

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVerdict(t *testing.T) {
	const (
		start   = `{"Action":"start","Package":"p"}` + "\n"
		pass    = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		end     = `{"Action":"pass","Package":"p","Elapsed":1.5}` + "\n"
		nothing = `{"Action":"skip","Package":"p"}` + "\n"
		failed  = `{"Action":"fail","Package":"p"}` + "\n"
	)
	for name, c := range map[string]struct {
		in   string
		want bool
		says string
	}{
		"passed":            {start + pass + end, true, "PASS: 1 tests, 0 failed, 0 skipped"},
		"a package without": {start + pass + end + nothing, true, "no tests"},
		"none at all":       {start + nothing, false, "FAIL: 0 tests"},
		"empty":             {"", false, "FAIL: 0 tests"},
		"no end":            {start + pass, false, "FAILED: p never ended"},
		"skipped":           {start + pass + `{"Action":"skip","Package":"p","Test":"TestB"}` + "\n" + end, false, "SKIPPED (counts as failed): p TestB"},
		"failed": {
			start + pass + `{"Action":"output","Package":"p","Test":"TestB","Output":"why\n"}` + "\n" +
				`{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" + failed, false, "why\n",
		},
		"failed for a reason among many lines": {
			start + strings.Repeat(`{"Action":"output","Package":"p","Test":"TestB","Output":"    a_test.go:7: step\n"}`+"\n", 3) +
				`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: lost one\n"}` + "\n" +
				`{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" + failed, false, "FAILED: p TestB\nTestB: b_test.go:9: lost one\nFAIL: 1 tests",
		},
		"panicked": {
			start + pass + `{"Action":"output","Package":"p","Test":"TestB","Output":"panic: why\n"}` + "\n" + failed,
			false, "panic: why\n",
		},
		"not built": {
			`{"Action":"build-output","ImportPath":"p [p.test]","Output":"x.go:1: why\n"}` + "\n" + start + pass +
				`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}` + "\n", false, "x.go:1: why\n",
		},
		"not json": {start + pass + end + "go: downloading x\n", true, "go: downloading x\n"},
		"a figure": {
			start + pass + `{"Action":"attr","Package":"p","Test":"TestA","Key":"lost","Value":"0"}` + "\n" + end,
			true, "TestA: lost = 0\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := New(&out).Run("some", false)
			if err := r.Read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			r.End(nil)
			if got := r.Summary(time.Second); got != c.want {
				t.Errorf("Summary() = %v, want %v", got, c.want)
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("wrote %q, want %q in it", &out, c.says)
			}
		})
	}
}

func TestCrashOfTheRaceDetector(t *testing.T) {
	const in = `{"Action":"start","Package":"p"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 ...\n"}
`
	const end = `{"Action":"fail","Package":"p"}` + "\n"
	for name, c := range map[string]struct {
		in      string
		forgive bool
		want    bool
	}{
		"forgiven":     {in + end, true, true},
		"not forgiven": {in + end, false, false},
		"by a fault": {
			`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" +
				`{"Action":"output","Package":"p","Test":"TestB","Output":"SIGSEGV: segmentation violation\n"}` + "\n" + end,
			true, true,
		},
		"a fault of Go code": {`{"Action":"output","Package":"p","Test":"TestB","Output":"[signal SIGSEGV: segmentation ` +
			`violation code=0x1 addr=0x0 pc=0x4a]\n"}` + "\n" + end, true, false},
		"and another fell": {in + `{"Action":"fail","Package":"p","Test":"TestC"}` + "\n" + end, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := New(&out).Run("some", c.forgive)
			if err := r.Read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			crashed := r.End(errors.New("exit status 1"))
			if got := r.Summary(time.Second); got != c.want {
				t.Errorf("Summary() = %v, want %v:\n%s", got, c.want, &out)
			}
			if (len(crashed) == 1) != c.want {
				t.Errorf("to be tested again: %v", crashed)
			}
		})
	}
}

func TestBadEndThatNoEventExplains(t *testing.T) {
	var out strings.Builder
	r := New(&out).Run("some", true)
	if err := r.Read(strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	r.End(errors.New("exit status 2"))
	if r.Summary(time.Second) || !strings.Contains(out.String(), "FAILED: some exit status 2\n") {
		t.Error(out.String())
	}
}
