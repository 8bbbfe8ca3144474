package chaos_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/kielgo/kiel/internal/eventlog"
)

// check has the event logs judged by check-events and reports the figures; a broken promise fails the test.
func (f *fleet) check(ends map[int32]int64) *eventlog.Report {
	f.t.Helper()
	args := []string{"-json"}
	for id, end := range ends {
		args = append(args, "-end", fmt.Sprintf("%s:%d=%d", f.topic, id, end))
	}
	for _, r := range f.robberies {
		r.excuse()
	}
	for _, e := range f.exempt {
		args = append(args, "-exempt", e)
	}
	for _, w := range f.wiped {
		args = append(args, "-wiped", fmt.Sprintf("%d..%d", w.From, w.To))
	}
	var logs []string
	for _, m := range f.all {
		logs = append(logs, m.Events)
		if m.Killed != 0 {
			args = append(args, "-killed", fmt.Sprintf("%s=%d", m.Events, m.Killed))
		}
	}
	report, err := runChecker(append(args, logs...)...)
	if err != nil {
		f.t.Error(err)
	}
	if report == nil {
		f.t.FailNow()
	}
	f.t.Log(report)
	f.t.Attr("verdict", strings.ReplaceAll(report.String(), "\n", ";"))
	return report
}

// runChecker runs check-events -json. The report is nil when there is none.
func runChecker(args ...string) (*eventlog.Report, error) {
	cmd := exec.Command(checker, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var report *eventlog.Report
	if out.Len() > 0 {
		report = new(eventlog.Report)
		if err := json.Unmarshal(out.Bytes(), report); err != nil {
			return nil, fmt.Errorf("check-events: %w\n%s", err, out.String())
		}
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 1 && report != nil:
		return report, fmt.Errorf("the promise was broken: %s", report)
	case err != nil:
		return report, fmt.Errorf("check-events: %w: %s", err, errOut.String())
	case report == nil || !report.OK():
		return report, fmt.Errorf("check-events says that all is well, and reports %s", out.String())
	}
	return report, nil
}
