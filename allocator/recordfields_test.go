package allocator

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/party"
	"github.com/kielgo/kiel/status"
)

// recordField is what becomes of a field of the record.
type recordField struct {
	reason status.Code // why there is a new mapping when a member joins again with another value
	shown  string      // the field of status.Member that has it; "" if none does
}

// recordFields has the fields of the record that members may set.
var recordFields = map[string]recordField{
	"Functions": {status.MemberChanged, "Functions"}, // if the group runs another one then, FunctionChanged comes first
	"Weight":    {status.WeightsChanged, "Weight"},
	"Zone":      {status.ZonesChanged, "Zone"},
	"Topics":    {status.TopicsChanged, "Topics"},
	"Cluster":   {status.MemberChanged, "Cluster"},
	"Static":    {status.MemberChanged, ""}, // nothing that an operator acts on
}

// fullRecord returns a record in which each field is set.
func fullRecord(t *testing.T) record {
	t.Helper()
	o, err := Options{
		Func: allocfn.Range(), AlsoFuncs: []allocfn.Func{allocfn.RoundRobin()}, Weight: 3, Zone: "a", Topics: []string{"t", "u"}, Cluster: "c", Static: true,
	}.withDefaults()
	noerr.Must(t, err)
	return newRecord(o)
}

// TestEachFieldOfTheRecord walks the record's fields: each is set from the options, written, read, compared, and shown. A new
// field fails until recordFields, and all that it stands for, have it.
func TestEachFieldOfTheRecord(t *testing.T) {
	full := fullRecord(t)
	was := memberOf(t, full)
	fields := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[record]()) {
		if !f.IsExported() {
			continue
		}
		if reflect.ValueOf(full).FieldByIndex(f.Index).IsZero() {
			t.Errorf("%s: newRecord does not set it", f.Name)
		}
		if f.Name == "V" { // the format's, not the member's
			continue
		}
		fields++
		want, ok := recordFields[f.Name]
		if !ok {
			t.Errorf("%s: recordFields lacks it", f.Name)
			continue
		}
		changed := full
		setAnother(reflect.ValueOf(&changed).Elem().FieldByIndex(f.Index))
		is := memberOf(t, changed)
		c := &comparison{rejoined: make([]someNames, len(recordReasons()))}
		c.compareRecords(&was, &is)
		for i, r := range recordReasons() {
			if (c.rejoined[i].count > 0) != (r.code == want.reason) {
				t.Errorf("%s: the reason %s counts %d, want %s", f.Name, r.code, c.rejoined[i].count, want.reason)
			}
		}
		if got := shownDifferently(&was, &is); got != want.shown {
			t.Errorf("%s: status.Member shows it in %q, want %q", f.Name, got, want.shown)
		}
	}
	if fields != len(recordFields) {
		t.Errorf("the record has %d fields that members set, recordFields %d", fields, len(recordFields))
	}
}

// memberOf returns a member whose record was written and read again.
func memberOf(t *testing.T, r record) member {
	t.Helper()
	data, err := r.encode()
	noerr.Must(t, err)
	m := readMember(party.Member{Name: "m", Data: data}, "roundrobin/1", &listCache{})
	if m.fault != nil {
		t.Fatal(m.fault)
	}
	read := *m.record
	read.asks = nil
	if !reflect.DeepEqual(read, r) {
		t.Errorf("wrote %+v, read %+v", r, read)
	}
	return m
}

// setAnother gives a field of a record another value.
func setAnother(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int:
		v.SetInt(v.Int() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		v.Set(v.Slice(0, v.Len()-1))
	default:
		panic(fmt.Sprintf("a field of the kind %s: say how it changes", v.Kind()))
	}
}

// shownDifferently returns the fields of status.Member in which two members differ.
func shownDifferently(was, is *member) (fields string) {
	p := &party.Member{Name: "m"}
	a, b := reflect.ValueOf(describeMember(p, was)), reflect.ValueOf(describeMember(p, is))
	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			fields += a.Type().Field(i).Name
		}
	}
	return fields
}

// TestNothingOfTheRecordIsShared changes all lists of what was made of options and of records: neither may change.
func TestNothingOfTheRecordIsShared(t *testing.T) {
	o := Options{AlsoFuncs: []allocfn.Func{allocfn.Range()}, Topics: []string{"t", "u"}}
	own, err := o.withDefaults()
	noerr.Must(t, err)
	m := memberOf(t, fullRecord(t))
	shown := describeMember(&party.Member{Name: "m"}, &m)
	for name, lists := range map[string][2]any{"Options": {&o, &own}, "member": {&m, &shown}, "record": {m.record, &shown}} {
		a, b := slicesIn(lists[0]), slicesIn(lists[1])
		for field, p := range a {
			for other, q := range b {
				if p == q {
					t.Errorf("%s: %s is shared with %s", name, field, other)
				}
			}
		}
		if len(a) == 0 || len(b) == 0 {
			t.Errorf("%s: lists %v and %v", name, a, b)
		}
	}
}

// slicesIn returns where the elements of each list in a struct are.
func slicesIn(p any) map[string]uintptr {
	at := make(map[string]uintptr)
	v := reflect.ValueOf(p).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if field := v.FieldByIndex(f.Index); field.Kind() == reflect.Slice && field.Len() > 0 {
			at[f.Name] = field.Pointer()
		}
	}
	return at
}
