package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sound = `{"t":1,"member":"a","event":"claimed","topic":"o","partition":0,"token":7}
{"t":2,"member":"a","event":"opened","topic":"o","partition":0,"offset":0}
{"t":3,"member":"a","event":"message","topic":"o","partition":0,"offset":0}
{"t":9,"member":"a","event":"left"}
`
	cut = `{"t":1,"member":"a","event":"claimed","topic":"o","partition":0,"token":7}
`
	second = `{"t":8,"member":"b","event":"claimed","topic":"o","partition":0,"token":8}
{"t":12,"member":"b","event":"left"}
`
)

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b, c, empty, broken := file("a", sound), file("b", second), file("c", cut), file("empty", ""), file("broken", "{\n{}\n")
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"sound":                      {[]string{a}, exitSound, "1 messages"},
		"all seen":                   {[]string{"-end", "o:0=1", a}, exitSound, "0 lost"},
		"not all seen":               {[]string{"-end", "o:0=2", a}, exitViolated, "the first is 1"},
		"two owners":                 {[]string{a, b}, exitViolated, "1 overlaps"},
		"two owners, exempt":         {[]string{"-exempt", "o:0=8..9", a, b}, exitSound, "(and 1 exempt)"},
		"two owners, exempt earlier": {[]string{"-exempt", "o:0=1..8", a, b}, exitViolated, "1 overlaps"},
		"cut":                        {[]string{c}, exitViolated, "the log ends while it is owned"},
		"killed":                     {[]string{"-killed", c + "=5", c}, exitSound, "1 tenures"},
		"killed, who is that":        {[]string{"-killed", "d=5", c}, exitUsage, "-killed d: no such file"},
		"killed, when":               {[]string{"-killed", c, c}, exitUsage, "want FILE=T"},
		"end of what":                {[]string{"-end", "o=1", a}, exitUsage, "want TOPIC:PARTITION"},
		"end of which":               {[]string{"-end", "o:x=1", a}, exitUsage, "invalid syntax"},
		"exempt, until when":         {[]string{"-exempt", "o:0=1", a}, exitUsage, "want FROM..TO"},
		"two owners, wiped":          {[]string{"-wiped", "8..9", a, b}, exitSound, "(and 1 exempt)"},
		"two owners, wiped earlier":  {[]string{"-wiped", "1..8", a, b}, exitViolated, "1 overlaps"},
		"wiped, until when":          {[]string{"-wiped", "8", a}, exitUsage, "want FROM..TO"},
		"no event at all":            {[]string{empty, empty}, exitUsage, "no event"},
		"no event, and that is fine": {[]string{"-empty", empty}, exitSound, "0 tenures"},
		"one log is empty":           {[]string{a, empty}, exitSound, "2 processes"},
		"unreadable":                 {[]string{a, broken}, exitUsage, "line 1"},
		"not there":                  {[]string{filepath.Join(dir, "none")}, exitUsage, "no such file"},
		"no file":                    {nil, exitUsage, "no file"},
		"unknown flag":               {[]string{"-what", a}, exitUsage, "-what"},
		"help":                       {[]string{"--help"}, exitSound, "Usage:"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			code := run(tc.args, &out, &errOut)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			said := out.String()
			if tc.code == exitUsage {
				said = errOut.String()
			}
			if !strings.Contains(said, tc.says) {
				t.Errorf("want %q in %q, %q", tc.says, out.String(), errOut.String())
			}
		})
	}
	t.Run("json", func(t *testing.T) {
		var out, errOut bytes.Buffer
		run([]string{"-json", a, b}, &out, &errOut)
		var r eventlog.Report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Overlaps != 1 || len(r.Violations) != 1 {
			t.Errorf("%v: %q", err, out.String())
		}
	})
}
