package stack_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/internal/sharedset"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/session"
)

// badNames returns names that nothing of a kind may have. "" is one as well, but for what has a default.
func badNames(of string) []string {
	if of == "group" { // Kafka takes the others
		return []string{"\xff\xfe", strings.Repeat("x", 250), strings.Repeat("/", 84), "\x1b" + strings.Repeat("é", 124), strings.Repeat("x", 1<<20)}
	}
	return []string{
		".", "..", "a/b", "../x", "/", "a\x00b", "a\nb", "\x1b[31m", "a\u202eb", "\uffff", "\xff\xfe", "a b", "é", "<img onerror=alert(1)>",
		strings.Repeat("x", 250), strings.Repeat("x", 1<<20),
	}
}

// nobody is a handler that is never called.
type nobody struct{ sarama.ConsumerGroupHandler }

// Whatever takes a name refuses a bad one, says which it is, escaped and cut, and sends nothing.
func TestBadNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		a := w.join("a", setup{})
		w.within(timeout, "start", func() bool { return a.alloc.Snapshot() != nil })
		time.Sleep(time.Minute)
		brokers := []string{"kafka:9092"}
		group, err := consumer.New(a.zk, brokers, "g", consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer group.Close()
		one := func(name string) map[string][]int32 { return map[string][]int32{name: {0}} }
		takers := map[string]func(name string) error{
			"group: allocator.New": func(name string) error { _, err := allocator.New(a.zk, name, "m", allocator.Options{}); return err },
			"group: consumer.New":  func(name string) error { _, err := consumer.New(a.zk, brokers, name, consumer.Options{}); return err },
			"member: allocator.New": func(name string) error {
				_, err := allocator.New(a.zk, "g", name, allocator.Options{})
				return err
			},
			"member: party.New": func(name string) error {
				_, err := party.New(a.zk, "/m", party.Options{Name: name})
				return err
			},
			"member: consumer.New": func(name string) error {
				_, err := consumer.New(a.zk, brokers, "g", consumer.Options{Name: name})
				return err
			},
			"topic: Seed": func(name string) error {
				_, err := allocator.New(a.zk, "g", "m", allocator.Options{Seed: one(name)})
				return err
			},
			"topic: Topics": func(name string) error {
				_, err := allocator.New(a.zk, "g", "m", allocator.Options{Topics: []string{name}})
				return err
			},
			"topic: AddPartitions":    func(name string) error { return a.alloc.AddPartitions(t.Context(), one(name)) },
			"topic: RemovePartitions": func(name string) error { return a.alloc.RemovePartitions(t.Context(), one(name)) },
			"topic: Consume":          func(name string) error { return group.Consume(t.Context(), []string{"ok", name}, nobody{}) },
		}
		before := maps.Clone(w.srv.Stats().Requests)
		for what, take := range takers {
			field, _, _ := strings.Cut(what, ":")
			for _, name := range badNames(field) {
				err := take(name)
				if !errors.Is(err, kiel.ErrInvalidName) || !strings.Contains(err.Error(), "invalid name: "+field+" ") {
					t.Errorf("%s %.40q: %v", what, name, err)
					continue
				}
				if text := err.Error(); strings.ContainsAny(text, "\x00\n\x1b\u202e\uffff") || len(text) > 500 {
					t.Errorf("%s: not escaped, or too long: %.600q", what, text)
				}
			}
		}
		for _, path := range []string{"", "m", "/a/../b", "/a\x00", "/\uffff", "/\xff"} {
			if _, err := sharedset.New(a.zk, path, sharedset.Options{Identifier: "a"}); !errors.Is(err, session.ErrInvalidPath) {
				t.Errorf("path %q: %v", path, err)
			}
		}
		if after := w.srv.Stats().Requests; !maps.Equal(before, after) {
			t.Errorf("requests %v, before %v", after, before)
		}
		if err := errors.Join(kiel.CheckGroup("zookeeper"), kiel.CheckTopic("zookeeper"), kiel.CheckMember("zookeeper")); err != nil {
			t.Errorf("the name zookeeper is only bad as a path's first element: %v", err)
		}
	})
}

// Garbage in the set costs nobody a partition, is said, and is over as soon as the set can be read again. Items that are no
// partitions are allocated to nobody, and cost the others nothing either.
func TestGarbageInTheSet(t *testing.T) {
	const n = 8
	unreadable := []string{
		"   ", "{}", "null", `["t:0"`, `{"t":[0]}`, "[NaN]", "[1e400]", "[-1]", "[2147483648]", "[9223372036854775808]", `["t:0",]`, "[[]]",
		"\ufeff[]", "\x1f\x8b\x08\x00\x00", `"t:0"`, "true", `{"version":2,"partitions":[]}`, "[\"t:\xff\"]", strings.Repeat("[", 1<<20-1),
	}
	odd := `"t:-1","t:2147483648","t:9223372036854775808","t","t:","t:01",":0","t:0:0:x","t:1e3","a/b:0","../x:0","\u0000:0","t:0"`
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		a, b := w.join("a", setup{allocator: allocator.Options{Seed: seed(n)}}), w.join("b", setup{})
		w.within(timeout, "start", func() bool { return even(n, a, b) })
		time.Sleep(10 * time.Second)
		good, _, _ := w.srv.Get(a.alloc.PartitionsPath())
		opened, rebalances := a.openings(), a.rebalances()
		for _, garbage := range unreadable {
			told := a.told(sharedset.ErrUnreadable)
			if err := w.srv.Set(a.alloc.PartitionsPath(), []byte(garbage)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if !even(n, a, b) || a.rebalances() != rebalances || !maps.Equal(a.openings(), opened) {
				t.Errorf("%.40q: %d rebalances\n%s", garbage, a.rebalances()-rebalances, w.state())
			}
			if a.told(sharedset.ErrUnreadable) == told || a.alloc.Snapshot().Err == nil {
				t.Errorf("%.40q: not said", garbage)
			}
			if err := w.srv.Set(a.alloc.PartitionsPath(), good); err != nil {
				t.Fatal(err)
			}
			w.within(time.Second, "the set is good again", func() bool { return a.alloc.Snapshot().Err == nil && b.alloc.Snapshot().Err == nil })
		}
		if err := w.srv.Set(a.alloc.PartitionsPath(), append([]byte("["+odd+","), good[1:]...)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		// Those with a slash are partitions to everybody, Python included, so they count; no znode can have their name.
		claims := w.srv.Children(a.alloc.GroupPath() + "/owners")
		if len(a.owned())+len(b.owned()) != len(claims) || len(claims) != n {
			t.Errorf("with odd items: %v\n%s", claims, w.state())
		}
		for _, want := range []string{`item "t:-1"`, `item ":0"`} {
			if err := a.errors(); !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("not told of %s", want)
			}
		}
		if !strings.Contains(fmt.Sprint(a.errors(), b.errors()), `"a/b:0" has a slash`) {
			t.Error("not told of a/b:0")
		}
	})
}

// A child of members is a member whatever it is named and holds: it gets its share, which nobody claims, and no more.
func TestGarbageMembers(t *testing.T) {
	const n = 12
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		a := w.join("a", setup{allocator: allocator.Options{Seed: seed(n)}})
		w.within(timeout, "start", func() bool { return even(n, a) })
		time.Sleep(10 * time.Second)
		for name, data := range map[string][]byte{
			"_c_x": []byte("{}"), "a b": {0xff, 0xfe}, "é\u4e00": make([]byte, 1_000_000), "<script>": []byte(strings.Repeat("[", 60_000)), "zzz": nil,
			"\u202e": []byte(`{"v":1,"functions":["roundrobin"],"weight":-1}`),
		} {
			path := a.alloc.MembersPath() + "/" + name
			if err := w.srv.Create(path, data); err != nil {
				t.Fatal(err)
			}
			w.within(time.Second, fmt.Sprintf("half is left beside %q", name), func() bool { return len(a.owned()) == n/2 })
			time.Sleep(10 * time.Second)
			if err := w.srv.Delete(path); err != nil {
				t.Fatal(err)
			}
			w.within(time.Second, fmt.Sprintf("all is back after %q", name), func() bool { return even(n, a) })
			time.Sleep(10 * time.Second)
		}
		if a.told(allocator.ErrBadRecord) == 0 {
			t.Errorf("not told of bad records: %v", a.errors())
		}
	})
}

// Ten thousand partitions are owned, all of them, in time.
func TestTenThousandPartitions(t *testing.T) {
	const n = 10_000
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.net.Delay(time.Millisecond)
		defer w.end()
		a, b := w.join("a", setup{allocator: allocator.Options{Seed: seed(n)}}), w.join("b", setup{})
		t.Attr("all_owned_after", w.within(10*time.Second, "all are owned", func() bool { return even(n, a, b) }).String())
	})
}

// Printed options show no secrets.
func TestSecrets(t *testing.T) {
	const secret = "geheim"
	config := sarama.NewConfig()
	config.Net.SASL.Enable, config.Net.SASL.User, config.Net.SASL.Password = true, "ann", secret
	all := []any{
		session.Options{Auth: []session.Auth{{Scheme: "digest", Credential: []byte("ann:" + secret)}, {Scheme: "x", Credential: []byte(secret)}}},
		consumer.Options{Config: config},
		allocator.Options{},
	}
	for _, opts := range all {
		encoded, _ := json.Marshal(opts) // what can't be encoded shows nothing
		for _, text := range []string{fmt.Sprintf("%v", opts), fmt.Sprintf("%+v", opts), fmt.Sprintf("%#v", opts), string(encoded)} {
			if strings.Contains(text, secret) || strings.Contains(text, "103 101 104 101") || strings.Contains(text, "0x67, 0x65, 0x68") {
				t.Errorf("the secret is in %s", text)
			}
		}
	}
}
