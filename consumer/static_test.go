package consumer

import (
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel/session"
)

func TestStaticSettings(t *testing.T) {
	for _, c := range []struct {
		what     string
		opts     Options
		instance string
		name     string // "" for none in particular
		static   bool
		fault    string
	}{
		{what: "neither"},
		{what: "a name", opts: Options{Name: "a"}, name: "a"},
		{what: "static", opts: Options{Name: "a", Static: true}, name: "a", static: true},
		{what: "by sarama", instance: "a", name: "a", static: true},
		{what: "twice", opts: Options{Name: "a", Static: true}, instance: "a", name: "a", static: true},
		{what: "two names", opts: Options{Name: "b"}, instance: "a", fault: `option Name: is "b", and Config.Consumer.Group.InstanceId is "a"`},
		{what: "no name", opts: Options{Static: true}, fault: "option Static: needs a Name"},
	} {
		config := sarama.NewConfig()
		config.Consumer.Group.InstanceId = c.instance
		c.opts.Config, c.opts.StartAt = config, Earliest
		set, err := newSettings([]string{"b:1"}, "g", c.opts)
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v", c.what, err)
			}
		case err != nil || set.Static != c.static || c.name != "" && set.Name != c.name || set.Name == "":
			t.Errorf("%s: name %q, static %v, %v", c.what, set.Name, set.Static, err)
		}
	}
}

// A static member ends its ZooKeeper session's connection, so it can share the session with nobody.
func TestStaticNeedsItsOwnSession(t *testing.T) {
	s, err := session.New([]string{"nowhere.invalid:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config := sarama.NewConfig()
	config.Consumer.Group.InstanceId = "a"
	for _, opts := range []Options{{Name: "a", Static: true}, {Config: config}} {
		if _, err := New(s, []string{"nowhere.invalid:9092"}, "g", opts); err == nil || !strings.Contains(err.Error(), "use NewGroup") {
			t.Errorf("New: %v", err)
		}
	}
}
