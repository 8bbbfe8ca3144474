package consumer

import (
	"context"
	"strconv"
	"time"

	"github.com/kielgo/kiel/allocfn"
)

// lagInterval is how often the metrics of the lag are renewed.
const lagInterval = 5 * time.Second

// watchLag keeps the metrics of the lag of open partitions until ctx ends.
func (m *membership) watchLag(ctx context.Context) {
	shown := map[allocfn.Partition]bool{}
	defer m.metrics.showLag(nil, shown)
	tick := time.NewTicker(lagInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.metrics.showLag(m.group.open(), shown)
		case <-ctx.Done():
			return
		}
	}
}

// showLag sets the metrics of open partitions and deletes those of the others. shown
// holds the partitions that have metrics.
func (m *metrics) showLag(open map[allocfn.Partition]*Partition, shown map[allocfn.Partition]bool) {
	for p := range shown {
		if open[p] == nil {
			id := strconv.Itoa(int(p.ID))
			m.lag.DeleteLabelValues(p.Topic, id)
			m.behind.DeleteLabelValues(p.Topic, id)
			delete(shown, p)
		}
	}
	for p, o := range open {
		messages, behind := o.Lag()
		id := strconv.Itoa(int(p.ID))
		m.lag.WithLabelValues(p.Topic, id).Set(float64(messages))
		m.behind.WithLabelValues(p.Topic, id).Set(behind.Seconds())
		shown[p] = true
	}
}
