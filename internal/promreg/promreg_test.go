package promreg_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

func opts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: name, Help: help}
}

func TestSecondRegistrationSharesTheFirst(t *testing.T) {
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"group": "g"}, prometheus.NewRegistry())
	a, err := promreg.Register(reg, prometheus.NewCounter(opts("x_total", "x")))
	noerr.Must(t, err)
	b, err := promreg.Register(reg, prometheus.NewCounter(opts("x_total", "x")))
	noerr.Must(t, err)
	if a != b {
		t.Error("the second registration made a collector of its own")
	}
}

func TestConflictIsAnError(t *testing.T) {
	reg := prometheus.NewRegistry()
	noerr.Last(t)(promreg.Register(reg, prometheus.NewCounter(opts("x_total", "x"))))
	if _, err := promreg.Register(reg, prometheus.NewCounter(opts("x_total", "another help"))); err == nil {
		t.Error("two collectors of one name and different help were registered")
	}
}

func TestNilRegistererRegistersNothing(t *testing.T) {
	c := prometheus.NewCounter(opts("x_total", "x"))
	got, err := promreg.Register(nil, c)
	if err != nil || got != c {
		t.Errorf("got %v, %v", got, err)
	}
}
