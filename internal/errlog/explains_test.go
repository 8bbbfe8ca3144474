package errlog_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kielgo/kiel/status"
)

// While a kind fails that explains others, those have one line each, unless an error is of a higher level; all are troubles.
func TestOneKindExplainsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		l.Explains("kafka", "fetch", "commit")
		l.FailedWarn("fetch", "orders:0", errRefused)
		l.Failed("kafka", "", errRefused)
		for range 3 {
			time.Sleep(10 * time.Second)
			l.FailedWarn("fetch", "orders:0", errRefused)
		}
		l.FailedWarn("commit", "orders:0", errRefused)
		l.FailedWarn("handler", "orders:0", errRefused)
		time.Sleep(10 * time.Second)
		l.FailedWarn("handler", "orders:0", errRefused)
		l.Failed("commit", "orders:0", errors.New("no right"))
		l.wants(t,
			`level=WARN msg=failed kind=fetch about=orders:0 error=refused`,
			`level=ERROR msg=failed kind=kafka error=refused`,
			`level=WARN msg=failed kind=commit about=orders:0 error=refused`,
			`level=WARN msg=failed kind=handler about=orders:0 error=refused`,
			`level=WARN msg="still failing" kind=handler about=orders:0 error=refused failing=1 lasts=10s`,
			`level=ERROR msg="still failing" kind=commit about=orders:0 error="no right" failing=1 lasts=10s`)
		if got := l.Troubles(); len(got) != 4 || !slices.ContainsFunc(got, func(t status.Trouble) bool { return t.Kind == "fetch" && t.Count == 4 }) {
			t.Errorf("troubles %+v", got)
		}
		l.OK("kafka", "")
		l.FailedWarn("fetch", "orders:0", errRefused)
		l.wants(t, `level=INFO msg=recovered kind=kafka after=40s errors=1`,
			`level=WARN msg="still failing" kind=fetch about=orders:0 error=refused count=4 failing=1 lasts=40s`)
	})
}

// Errors at Debug are troubles, whose end is at Debug, too.
func TestErrorsAtDebug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		l.FailedDebug("member", "", errRefused)
		l.Began("member", time.Now().Add(-time.Minute))
		time.Sleep(10 * time.Second)
		l.FailedDebug("member", "", errRefused)
		l.AllGone("member")
		got := l.Troubles()
		if len(got) != 1 || got[0].Until != nil || got[0].Count != 2 || time.Since(got[0].Since) != 70*time.Second {
			t.Errorf("troubles %+v", got)
		}
		l.OK("member", "")
		if got := l.Troubles(); len(got) != 1 || got[0].Until == nil {
			t.Errorf("it is over: troubles %+v", got)
		}
		l.wants(t)
		l.FailedDebug("member", "", errRefused)
		l.FailedWarn("member", "", errRefused)
		l.OK("member", "")
		l.wants(t, `level=WARN msg="still failing" kind=member error=refused failing=1 lasts=0s`, `level=INFO msg=recovered kind=member after=0s errors=2`)
	})
}
