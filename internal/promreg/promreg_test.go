package promreg_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kielgo/kiel/internal/promreg"
)

func opts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: name, Help: help}
}

func TestSecondRegistrationSharesTheFirst(t *testing.T) {
	reg := prometheus.WrapRegistererWith(prometheus.Labels{"group": "g"}, prometheus.NewRegistry())
	a, err := promreg.Register(reg, prometheus.NewCounter(opts("x_total", "x")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := promreg.Register(reg, prometheus.NewCounter(opts("x_total", "x")))
	if err != nil {
		t.Fatal(err)
	}
	if a != b {
		t.Error("the second registration made a collector of its own")
	}
}

func TestConflictIsAnError(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := promreg.Register(reg, prometheus.NewCounter(opts("x_total", "x"))); err != nil {
		t.Fatal(err)
	}
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
