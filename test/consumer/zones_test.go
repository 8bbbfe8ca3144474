package consumer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer"
)

const zones = "/kiel/groups/" + group + "/zones"

// rack is that of all kfake's brokers.
const rack = "krack"

func (r *rig) zones() string {
	data, _, _ := r.zk.Get(zones)
	return string(data)
}

// Members have shares by their weights.
func TestWeights(t *testing.T) {
	inRig(t, 8, func(t *testing.T, r *rig) {
		a := r.member("a", func(o *consumer.Options) { o.Weight = 3 }).start()
		b := r.member("b", nil).start()
		until(t, "shares of 6 and 2", func() bool { return len(a.owns()) == 6 && len(b.owns()) == 2 })
		quit(a)
		quit(b)
		r.check(false)
	})
}

// A member in a zone keeps the group told in which zones its partitions are; one that is in none does not.
func TestZonesOfPartitions(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		plain := r.member("plain", nil).start()
		until(t, "plain has both", func() bool { return len(plain.owns()) == 2 })
		time.Sleep(2 * time.Minute)
		if got := r.zones(); got != "" {
			t.Errorf("a member in no zone wrote %s", got)
		}
		a := r.member("a", func(o *consumer.Options) { o.Zone = rack }).start()
		until(t, "the zones are written", func() bool { return r.zones() == `{"v":1,"zones":["krack"],"topics":{"t":[0,0]}}` })
		if record, _, _ := r.zk.Get("/kiel/groups/" + group + "/members/a"); !strings.Contains(string(record), `"zone":"krack"`) {
			t.Errorf("record of a: %s", record)
		}
		// All is in the zone of a, and yet each has its share.
		until(t, "each has one", func() bool { return len(a.owns()) == 1 && len(plain.owns()) == 1 })

		b := r.member("b", func(o *consumer.Options) { o.Config.RackID = rack }).start()
		time.Sleep(2 * time.Minute)
		r.grow(3)
		until(t, "the new partition has a zone", func() bool { return r.zones() == `{"v":1,"zones":["krack"],"topics":{"t":[0,0,0]}}` })
		_, stat, _ := r.zk.Get(zones)
		time.Sleep(5 * time.Minute)
		if _, now, _ := r.zk.Get(zones); now.Mzxid != stat.Mzxid {
			t.Errorf("written %d times though nothing had changed", now.Version-stat.Version)
		}
		if err := r.zk.Delete(zones); err != nil {
			t.Fatal(err)
		}
		until(t, "they are written again", func() bool { return r.zones() == `{"v":1,"zones":["krack"],"topics":{"t":[0,0,0]}}` })
		for _, m := range []*member{plain, a, b} {
			quit(m)
			if errs := m.errors(); len(errs) > 0 {
				t.Errorf("%s: %v", m.name, errs)
			}
		}
		r.check(false)
	})
}

// Zones that can't be read are an error, for the group's members too, and end nothing.
func TestUnreadableZones(t *testing.T) {
	inRig(t, 2, func(t *testing.T, r *rig) {
		a := r.member("a", func(o *consumer.Options) { o.Zone = rack }).start()
		until(t, "the zones are written", func() bool { return r.zones() != "" })
		if err := r.zk.Set(zones, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if got := r.zones(); got != "garbage" {
			t.Errorf("written over: %s", got)
		}
		errs := a.errors()
		if len(errs) != 2 || slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, allocator.ErrZonesUnreadable) }) {
			t.Errorf("want one error of reading and one of writing: %v", errs)
		}
		r.produce(10, 0, 1)
		until(t, "20 messages", func() bool { return total(a) == 20 })
		if err := r.zk.Delete(zones); err != nil {
			t.Fatal(err)
		}
		until(t, "they are written again", func() bool { return r.zones() != "" })
		quit(a)
		r.check(false)
	})
}
