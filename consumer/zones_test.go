package consumer

import (
	"strings"
	"testing"
)

func TestZoneOption(t *testing.T) {
	c := testConfig()
	c.RackID = "a"
	for name, tt := range map[string]struct {
		opts Options
		want string
	}{
		"none":         {Options{Config: testConfig()}, ""},
		"rack":         {Options{Config: c}, "a"},
		"zone":         {Options{Zone: "b", Config: testConfig()}, "b"},
		"zone of both": {Options{Zone: "b", Config: c}, "b"},
	} {
		tt.opts.Name = "m"
		set, err := newSettings([]string{"a:1"}, "g", tt.opts)
		if err != nil || set.Zone != tt.want || tt.opts.Config.RackID != set.config.RackID {
			t.Errorf("%s: zone %q, rack %q, %v", name, set.Zone, set.config.RackID, err)
		}
	}
	for _, zone := range []string{"a\n", strings.Repeat("z", 250)} {
		if _, err := newSettings([]string{"a:1"}, "g", Options{Name: "m", Zone: zone}); err == nil || !strings.Contains(err.Error(), "Zone") {
			t.Errorf("%.20q: %v", zone, err)
		}
	}
}
