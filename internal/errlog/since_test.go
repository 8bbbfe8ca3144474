package errlog_test

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogged()
		began := time.Now()
		l.Began("kafka", began) // nothing fails
		time.Sleep(10 * time.Second)
		l.Failed("kafka", "", errRefused)
		l.Began("kafka", began)
		l.Began("kafka", time.Now())
		if got := l.Troubles(); len(got) != 1 || !got[0].Since.Equal(began) {
			t.Errorf("the troubles are %+v, want one since %v", got, began)
		}
		l.OK("kafka", "")
		l.wants(t, "level=ERROR msg=failed kind=kafka error=refused", "level=INFO msg=recovered kind=kafka after=10s errors=1")
	})
}
