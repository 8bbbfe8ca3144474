package zones

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/kielgo/kiel"
	"github.com/kielgo/kiel/internal/operr"
)

// The limits are part of the format, because all members must judge the data alike.
const (
	version = 1
	maxData = 1 << 20 // bytes: what the largest packet of a server with default limits holds
	maxZone = 249     // bytes
	none    = -1
)

// document is the znode's data.
type document struct {
	V      int                `json:"v"`
	Zones  []string           `json:"zones"`
	Topics map[string]indices `json:"topics"`
}

// indices holds the index of the zone of each partition of a topic, by the partition's id.
type indices []int32

// UnmarshalJSON refuses null, which encoding/json would ignore or read as 0.
func (x *indices) UnmarshalJSON(data []byte) error {
	if bytes.Contains(data, []byte("null")) {
		return errors.New("null in the place of a number")
	}
	return json.Unmarshal(data, (*[]int32)(x))
}

// Check returns an error unless zone may be a zone's name: at most 249 bytes of UTF-8 without control characters and without
// characters that change how others are shown. "" is allowed, and means no zone. The check does not depend on Go's tables of
// Unicode, which grow from release to release, because all members must judge alike.
func Check(zone string) error {
	if len(zone) > maxZone {
		return fmt.Errorf("zone of %d bytes is more than %d", len(zone), maxZone)
	}
	if !utf8.ValidString(zone) {
		return fmt.Errorf("zone %q is not UTF-8", zone)
	}
	for _, c := range zone {
		if invisible(c) {
			return fmt.Errorf("zone %q has a character that can't be printed", zone)
		}
	}
	return nil
}

// invisible reports whether c is a control character, a line break, a character that turns the direction of text, or one without
// a glyph.
func invisible(c rune) bool {
	return c < 0x20 || 0x7f <= c && c <= 0x9f || c == 0xad || 0x200b <= c && c <= 0x200f || 0x2028 <= c && c <= 0x202e ||
		0x2060 <= c && c <= 0x206f || c == 0xfeff || 0xfff0 <= c && c <= 0xfffb || c&0xfffe == 0xfffe || c >= 0xe0000
}

// checkAll returns an error that wraps ErrInvalid unless all zones, topics and ids may be written.
func checkAll(zones map[kiel.Partition]string) error {
	checked := make(map[string]bool) // the topics that were checked; it is enough to check a topic once
	known := make(map[string]bool)   // the zones that were checked
	for p, zone := range zones {
		if p.ID < 0 {
			return fmt.Errorf("%w: partition %d of topic %.64q is less than 0", ErrInvalid, p.ID, p.Topic)
		}
		if !checked[p.Topic] {
			if err := kiel.CheckTopic(p.Topic); err != nil {
				return operr.Because(ErrInvalid, err)
			}
			checked[p.Topic] = true
		}
		if !known[zone] {
			if err := Check(zone); err != nil {
				return operr.Because(ErrInvalid, operr.New("", "", p.String(), err))
			}
			known[zone] = true
		}
	}
	return nil
}

// encode returns the znode's data. Equal zones always have equal data.
func encode(zones map[kiel.Partition]string) ([]byte, error) {
	doc := document{V: version, Zones: []string{}, Topics: map[string]indices{}}
	ends := make(map[string]int64) // by topic, the highest id plus one
	for p := range zones {
		ends[p.Topic] = max(ends[p.Topic], int64(p.ID)+1)
	}
	all := int64(0)
	for topic, end := range ends {
		if all += end; all > maxData/2 { // each id takes two bytes or more, so allocate nothing for them
			return nil, fmt.Errorf("%w: the ids of topic %s go up to %d, and more than %d don't fit", ErrTooLarge, topic, end-1, maxData/2)
		}
		doc.Topics[topic] = slices.Repeat(indices{none}, int(end))
	}
	seen := make(map[string]int32)
	for _, zone := range zones {
		seen[zone] = 0
	}
	doc.Zones = slices.AppendSeq(doc.Zones, maps.Keys(seen))
	slices.Sort(doc.Zones)
	for i, zone := range doc.Zones {
		seen[zone] = int32(i)
	}
	for p, zone := range zones {
		doc.Topics[p.Topic][p.ID] = seen[zone]
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, operr.New("zones", "", "", err)
	}
	if len(data) > maxData {
		return nil, fmt.Errorf("%w: %d partitions of %d topics are %d bytes of data, more than %d",
			ErrTooLarge, len(zones), len(doc.Topics), len(data), maxData)
	}
	return data, nil
}

// decode returns the zones of a znode's data, nil if there are none.
func decode(data []byte) (map[kiel.Partition]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if len(data) > maxData {
		return nil, tooMuch(len(data))
	}
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	var v struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	if v.V == nil || *v.V != version {
		if v.V == nil {
			return nil, errors.New("no version")
		}
		return nil, fmt.Errorf("version %d, known is %d", *v.V, version)
	}
	var doc document
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields() // a write would lose them
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data behind the object")
	}
	return doc.zones()
}

func tooMuch(bytes int) error { return fmt.Errorf("%d bytes, more than %d", bytes, maxData) }

// zones checks a document and returns its zones.
func (doc document) zones() (map[kiel.Partition]string, error) {
	names := slices.Sorted(slices.Values(doc.Zones))
	for i, zone := range names {
		if zone == "" {
			return nil, errors.New("a zone without a name")
		}
		if err := Check(zone); err != nil {
			return nil, err
		}
		if i > 0 && zone == names[i-1] {
			return nil, fmt.Errorf("zone %q twice", zone)
		}
	}
	n := 0
	for topic, ids := range doc.Topics {
		if err := kiel.CheckTopic(topic); err != nil {
			return nil, err
		}
		for id, zone := range ids {
			if zone < none || int(zone) >= len(doc.Zones) {
				return nil, fmt.Errorf("partition %s:%d is in zone %d of %d", topic, id, zone, len(doc.Zones))
			}
			if zone != none {
				n++
			}
		}
	}
	if n == 0 {
		return nil, nil
	}
	zones := make(map[kiel.Partition]string, n)
	for topic, ids := range doc.Topics {
		for id, zone := range ids {
			if zone != none {
				zones[kiel.Partition{Topic: topic, ID: int32(id)}] = doc.Zones[zone]
			}
		}
	}
	return zones, nil
}
