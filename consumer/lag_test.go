package consumer

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kielgo/kiel/allocfn"
)

func TestLagIsInTheMetrics(t *testing.T) {
	m, err := newMetrics(prometheus.NewRegistry(), "g")
	if err != nil {
		t.Fatal(err)
	}
	p, s, _ := newPartition(t)
	s.lag, s.behind = 7, 3*time.Second
	shown := map[allocfn.Partition]bool{}
	m.showLag(map[allocfn.Partition]*Partition{tp("t", 4): p}, shown)
	if n, d := testutil.ToFloat64(m.lag.WithLabelValues("t", "4")), testutil.ToFloat64(m.behind.WithLabelValues("t", "4")); n != 7 || d != 3 {
		t.Errorf("%v messages, %v s", n, d)
	}
	m.showLag(nil, shown)
	if n := testutil.CollectAndCount(m.lag) + testutil.CollectAndCount(m.behind); n != 0 || len(shown) != 0 {
		t.Errorf("%d metrics of a partition that is closed", n)
	}
}
