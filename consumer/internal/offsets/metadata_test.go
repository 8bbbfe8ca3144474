package offsets

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"

	"github.com/kielgo/kiel/internal/testonly/assert"
)

// earlierMetadata is what the version of commit 762eed2 knows.
type earlierMetadata struct {
	topicID    sarama.Uuid
	token      int64
	partitions int32
	text       string
}

// parseEarlier is the parser of commit 762eed2: it copies the 16 bytes of the topic's id, and ignores the rest.
func parseEarlier(s string) (m earlierMetadata, ours bool) {
	foreign := earlierMetadata{text: s}
	rest, ok := strings.CutPrefix(s, metadataPrefix)
	if !ok {
		return foreign, false
	}
	parts := strings.SplitN(rest, ";", 3)
	if len(parts) != 3 {
		return foreign, false
	}
	number, count, counted := strings.Cut(parts[1], "/")
	token, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return foreign, false
	}
	m = earlierMetadata{token: token, text: parts[2]}
	if counted {
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil || n <= 0 {
			return foreign, false
		}
		m.partitions = int32(n)
	}
	id, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil || len(id) != 0 && copy(m.topicID[:], id) != len(m.topicID) {
		return foreign, false
	}
	return m, true
}

func genID[T ~[16]byte | ~[8]byte](t *rapid.T, name string, set func(*T, []byte)) (id T) {
	if rapid.Bool().Draw(t, name+" is known") {
		set(&id, rapid.SliceOfN(rapid.Byte(), len(id), len(id)).Draw(t, name))
	}
	return id
}

func genBegan(t *rapid.T) time.Time {
	if !rapid.Bool().Draw(t, "the group has just begun") {
		return time.Time{}
	}
	return time.UnixMilli(rapid.Int64Range(1, 1<<(8*timeSize)-1).Draw(t, "began"))
}

// Members of earlier versions read what today's members write, and the reverse.
func TestMetadataBesideAnEarlierVersion(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"kiel1;;0;nested", "a/b", "user's; own; text"}))
	rapid.Check(t, func(t *rapid.T) {
		short := func(id *ID, b []byte) { copy(id[:], b) }
		want := commitMetadata{
			topicID: genID(t, "topic", func(id *sarama.Uuid, b []byte) { copy(id[:], b) }),
			place:   Place{Tree: genID(t, "tree", short), Cluster: genID(t, "cluster", short)},
			began:   genBegan(t),
			token:   rapid.Int64().Draw(t, "token"), partitions: rapid.Int32Min(0).Draw(t, "partitions"), text: text.Draw(t, "text"),
		}
		written := want.String()
		if got, ours := parseMetadata(written); got != want || !ours {
			t.Fatalf("%q is %+v, %v, want %+v", written, got, ours, want)
		}
		known := earlierMetadata{want.topicID, want.token, want.partitions, want.text}
		if got, ours := parseEarlier(written); got != known || !ours {
			t.Fatalf("the earlier version reads %q as %+v, %v, want %+v", written, got, ours, known)
		}
		if len(written) > len(metadataPrefix)+len(";-9223372036854775808/2147483647;")+51+len(want.text) {
			t.Fatalf("%q is too long", written)
		}
	})
}

// Without a Place, metadata are written as earlier versions did.
func TestMetadataWithoutAPlace(t *testing.T) {
	for _, c := range []struct {
		m    commitMetadata
		want string
	}{
		{commitMetadata{token: 9, text: "x"}, "kiel1;;9;x"},
		{commitMetadata{topicID: sarama.Uuid{15: 1}, token: 9, partitions: 3}, "kiel1;AAAAAAAAAAAAAAAAAAAAAQ;9/3;"},
	} {
		if got := c.m.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Anybody may store metadata. What no version writes is read as another program's, or without the ids that are cut off.
func TestMetadataOfAnybody(t *testing.T) {
	for _, n := range []int{1, 8, 15} {
		if m, ours := parseMetadata("kiel1;" + base64.RawURLEncoding.EncodeToString(make([]byte, n)) + ";1;"); ours {
			t.Errorf("%d bytes of ids: %+v", n, m)
		}
	}
	for _, n := range []int{16, 17, 24, 31} { // a part of a Place is none
		ids := []byte(strings.Repeat("x", n))
		if m, ours := parseMetadata("kiel1;" + base64.RawURLEncoding.EncodeToString(ids) + ";1;"); !ours || m.place != (Place{}) || m.topicID[0] != 'x' {
			t.Errorf("%d bytes of ids: %+v, %v", n, m, ours)
		}
	}
	for _, n := range []int{32, 33, 37} { // a part of a time is none
		ids := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x", n)))
		if m, ours := parseMetadata("kiel1;" + ids + ";1;"); !ours || m.place.Cluster.String() != strings.Repeat("78", 8) || !m.began.IsZero() {
			t.Errorf("%d bytes of ids: %+v, %v", n, m, ours)
		}
	}
	later := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x", 48)))
	if m, ours := parseMetadata("kiel1;" + later + ";1;"); !ours || m.place.Cluster.String() != strings.Repeat("78", 8) || m.began.IsZero() {
		t.Errorf("ids of a later version: %+v, %v", m, ours)
	}
	if _, ours := parseMetadata("kiel1;" + strings.Repeat("A", 260) + ";1;"); ours {
		t.Error("a field of 260 characters is ours")
	}
}

// A tree is known by both numbers of its group's znode, a cluster by its text.
func TestIDsDiffer(t *testing.T) {
	seen := map[ID]string{{}: "unknown"}
	for name, id := range map[string]ID{
		"1, 2": TreeID(1, 2), "2, 1": TreeID(2, 1), "1, 3": TreeID(1, 3), "a": ClusterID("a"), "b": ClusterID("b"),
	} {
		if other, ok := seen[id]; ok {
			t.Errorf("%s has the ID of %s", name, other)
		}
		seen[id] = name
	}
	if ClusterID("") != (ID{}) {
		t.Error("an unknown cluster has an ID")
	}
	assert.Equal(t, TreeID(0x100000002, 1700000000000).String(), "a783f582d69f050b", "the ID of a tree, which other versions don't compute")
}

// The text of a mark is found in what any version has written, and is the whole in what another program has.
func TestTextOf(t *testing.T) {
	for metadata, want := range map[string]string{
		"": "", `{"a":1}`: `{"a":1}`, "kiel1;;9;": "", "kiel1;;9;x": "x", "kiel1;;9/3;a;b;": "a;b;", "kiel1;AAAAAAAAAAAAAAAAAAAAAQ;9/3;ö": "ö",
		"kiel1;;9;kiel1;;9;x": "kiel1;;9;x", // of a program that has given stored metadata to a mark
		"kiel1":               "kiel1", "kiel1;": "kiel1;", "kiel1;;x": "kiel1;;x", "kiel1;;;x": "kiel1;;;x", "kiel1;;9/0;x": "kiel1;;9/0;x", "kiel1;;9/;x": "kiel1;;9/;x",
		"kiel1;;99999999999999999999;x": "kiel1;;99999999999999999999;x", "kiel1;!;9;x": "kiel1;!;9;x", "kiel1;AAAA;9;x": "kiel1;AAAA;9;x",
		"kiel2;;9;x": "kiel2;;9;x", " kiel1;;9;x": " kiel1;;9;x", "\xff\x00;": "\xff\x00;", "kiel1;;9;\xff\x00": "\xff\x00",
	} {
		assert.Equal(t, TextOf(metadata), want, "the text of %q", metadata)
	}
	huge := "kiel1;" + strings.Repeat("A", 1<<20) + ";" + strings.Repeat("9", 1<<20) + ";x"
	if TextOf(huge) != huge {
		t.Error("2 MiB of garbage are ours")
	}
	long := "kiel1;;9;" + strings.Repeat("x;", 1<<20)
	if n := testing.AllocsPerRun(10, func() { _ = TextOf(long) }); n > 1 || TextOf(long) != long[len("kiel1;;9;"):] {
		t.Errorf("%v allocations", n)
	}
}

func FuzzTextOf(f *testing.F) {
	for _, metadata := range []string{"", "x", "kiel1;;9;x", "kiel1;AAAAAAAAAAAAAAAAAAAAAQ;9/3;x;y", "kiel1;;;", "kiel1;;9/0;x", "kiel1;" + strings.Repeat("A", 300) + ";1;"} {
		f.Add(metadata)
	}
	f.Fuzz(func(t *testing.T, metadata string) {
		text := TextOf(metadata)
		if !strings.HasSuffix(metadata, text) || text != metadata && !strings.HasPrefix(metadata, metadataPrefix) {
			t.Fatalf("the text of %q is %q", metadata, text)
		}
		m, ours := parseMetadata(metadata)
		if m.text = metadata; ours && TextOf(m.String()) != metadata { // any text survives what it may be stored with
			t.Fatalf("the text %q is stored as %q, and read as %q", metadata, m, TextOf(m.String()))
		}
		if again := (commitMetadata{text: metadata}).String(); TextOf(again) != metadata {
			t.Fatalf("the text %q is stored as %q, and read as %q", metadata, again, TextOf(again))
		}
	})
}
