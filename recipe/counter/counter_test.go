package counter_test

import (
	"context"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/recipe/counter"
	"github.com/kielgo/kiel/session"
)

// The cases of kazoo's test_counter.py.

func TestIntCounter(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, is := w.Context(), must[int64](w)
		c := w.counter(w.Session("a"))
		if v := is(c.Get(ctx)); v != 0 {
			w.Errorf("starts with %d", v)
		}
		is(c.Add(ctx, 2))
		if v := is(c.Add(ctx, 1)); v != 3 || is(c.Get(ctx)) != 3 {
			w.Errorf("got %d, want 3", v)
		}
		w.Must(w.Srv.Create(path+"/child", nil)) // a counter may have children
		is(c.Subtract(ctx, 3))
		if v := is(c.Subtract(ctx, 1)); v != -1 || is(c.Get(ctx)) != -1 || w.Data(path) != "-1" {
			w.Errorf("got %d, want -1; the data is %q", v, w.Data(path))
		}
	})
}

func TestIntCuratorCounter(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, is := w.Context(), must[int32](w)
		c := must[*counter.Counter[int32]](w)(counter.NewCurator(w.Session("a"), path, counter.Options[int32]{}))
		if v := is(c.Get(ctx)); v != 0 {
			w.Errorf("starts with %d", v)
		}
		is(c.Add(ctx, 2))
		is(c.Add(ctx, 1))
		is(c.Subtract(ctx, 3))
		is(c.Subtract(ctx, 1))
		if v := is(c.Get(ctx)); v != -1 || w.Data(path) != "\xff\xff\xff\xff" {
			w.Errorf("got %d, %q", v, w.Data(path))
		}
		is(c.Add(ctx, 1))
		if v := is(c.Add(ctx, 2147483647)); v != 2147483647 || w.Data(path) != "\x7f\xff\xff\xff" {
			w.Errorf("got %d, %q", v, w.Data(path))
		}
		is(c.Subtract(ctx, 2147483647))
		if v := is(c.Subtract(ctx, 2147483647)); v != -2147483647 || w.Data(path) != "\x80\x00\x00\x01" {
			w.Errorf("got %d, %q", v, w.Data(path))
		}
	})
}

func TestFloatCounter(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, is := w.Context(), must[float64](w)
		c := must[*counter.Counter[float64]](w)(counter.NewFloat(w.Session("a"), path, counter.Options[float64]{}))
		if v := is(c.Get(ctx)); v != 0 {
			w.Errorf("starts with %v", v)
		}
		if v := is(c.Add(ctx, 2.1)); v != 2.1 || w.Data(path) != "2.1" {
			w.Errorf("got %v, %q", v, w.Data(path))
		}
		if v := is(c.Subtract(ctx, 3.1)); v != -1 || w.Data(path) != "-1.0" {
			w.Errorf("got %v, %q", v, w.Data(path))
		}
	})
}

// Arguments that raise TypeError in Python do not compile here. There remain numbers that do not fit, and data of another kind.
func TestErrors(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, s := w.Context(), w.Session("a")
		ints := w.counter(s)
		floats := must[*counter.Counter[float64]](w)(counter.NewFloat(s, path, counter.Options[float64]{}))
		four := must[*counter.Counter[int32]](w)(counter.NewCurator(s, path, counter.Options[int32]{}))
		calls := map[string]func() error{
			"int get":      func() error { _, err := ints.Get(ctx); return err },
			"int add":      func() error { _, err := ints.Add(ctx, 1); return err },
			"int sub":      func() error { _, err := ints.Subtract(ctx, 1); return err },
			"int sub min":  func() error { _, err := ints.Subtract(ctx, math.MinInt64); return err },
			"float get":    func() error { _, err := floats.Get(ctx); return err },
			"float add":    func() error { _, err := floats.Add(ctx, 1); return err },
			"curator get":  func() error { _, err := four.Get(ctx); return err },
			"curator add":  func() error { _, err := four.Add(ctx, 1); return err },
			"curator -min": func() error { _, err := four.Subtract(ctx, math.MinInt32); return err },
		}
		for _, tt := range []struct {
			data, call string
			want       error
		}{
			{"2.1", "int get", counter.ErrValue},
			{"2.1", "int add", counter.ErrValue},
			{"9223372036854775808", "int get", counter.ErrRange},
			{"9223372036854775807", "int add", counter.ErrRange},
			{"-9223372036854775808", "int sub", counter.ErrRange},
			{"0", "int sub min", counter.ErrRange},
			{"x", "float get", counter.ErrValue},
			{"0x1p4", "float add", counter.ErrValue},
			{"123", "curator get", counter.ErrValue},
			{"12345", "curator add", counter.ErrValue},
			{"\x7f\xff\xff\xff", "curator add", counter.ErrRange},
			{"\x00\x00\x00\x00", "curator -min", counter.ErrRange},
		} {
			w.Write(path, tt.data)
			_, before, _ := w.Srv.Get(path)
			if err := calls[tt.call](); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), path) {
				w.Errorf("%q: %s: got %v, want %v", tt.data, tt.call, err, tt.want)
			}
			if _, after, _ := w.Srv.Get(path); after != before {
				w.Errorf("%q: %s: something was written", tt.data, tt.call)
			}
		}
		// Set and Reset replace the data.
		w.Write(path, "junk")
		if err := ints.Set(ctx, 7); err != nil || w.Data(path) != "7" {
			w.Errorf("%v, %q", err, w.Data(path))
		}
		w.Write(path, "junk")
		if err := ints.Reset(ctx); err != nil || w.Data(path) != "0" {
			w.Errorf("%v, %q", err, w.Data(path))
		}
	})
}

func TestPrePostValues(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := w.Context()
		c := w.counter(w.Session("a"))
		if last, ok := c.Last(); ok {
			w.Errorf("before any change: %v", last)
		}
		want := func(pre, post int64) {
			w.Helper()
			if last, ok := c.Last(); !ok || last != (counter.Change[int64]{Pre: pre, Post: post}) {
				w.Errorf("got %v, want %d and %d", last, pre, post)
			}
		}
		must[int64](w)(c.Add(ctx, 2))
		want(0, 2)
		must[int64](w)(c.Subtract(ctx, 3))
		want(2, -1)
		w.Must(c.Set(ctx, 40))
		want(-1, 40)
		w.Must(c.Reset(ctx))
		want(40, 0)
		w.Write(path, "x")
		if _, err := c.Add(ctx, 1); err == nil {
			w.Error("no error")
		}
		want(40, 0)
	})
}

// The default is the number of a missing znode, and Reset writes it. Nothing is deleted, and reading creates nothing.
func TestDefault(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, is := w.Context(), must[int64](w)
		c := must[*counter.Counter[int64]](w)(counter.New(w.Session("a"), path, counter.Options[int64]{Default: 10}))
		if is(c.Get(ctx)) != 10 || c.Default() != 10 {
			w.Error("not the default")
		}
		if _, _, ok := w.Srv.Get("/app"); ok {
			w.Error("looking created something")
		}
		if v := is(c.Add(ctx, 1)); v != 11 {
			w.Errorf("got %d", v)
		}
		_, made, _ := w.Srv.Get(path)
		if err := c.Reset(ctx); err != nil || w.Data(path) != "10" {
			w.Errorf("%v, %q", err, w.Data(path))
		}
		if _, stat, _ := w.Srv.Get(path); stat.Czxid != made.Czxid || stat.EphemeralOwner != 0 {
			w.Error("the znode is another")
		}
		w.Write(path, "")
		if v := is(c.Subtract(ctx, 1)); v != 9 {
			w.Errorf("got %d", v)
		}
		// The znode was deleted with its parent: both are created again.
		w.Must(w.Srv.Delete("/app"))
		if v := is(c.Add(ctx, 1)); v != 11 || w.Data(path) != "11" {
			w.Errorf("got %d", v)
		}
	})
}

// Integers have any size, and the counter shares no memory with its callers.
func TestBig(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := w.Context()
		huge, _ := new(big.Int).SetString("1"+strings.Repeat("0", 40), 10)
		mine := new(big.Int).Set(huge)
		c := must[*counter.Counter[*big.Int]](w)(counter.NewBig(w.Session("a"), path, counter.Options[*big.Int]{Default: mine}))
		mine.SetInt64(1)
		v := must[*big.Int](w)(c.Add(ctx, big.NewInt(-1)))
		if v.String() != strings.Repeat("9", 40) || w.Data(path) != v.String() {
			w.Errorf("got %v, %q", v, w.Data(path))
		}
		v.SetInt64(5)
		c.Default().SetInt64(6)
		if last, _ := c.Last(); last.Pre.Cmp(huge) != 0 || last.Post.String() != w.Data(path) {
			w.Errorf("last: %v", last)
		}
		if v = must[*big.Int](w)(c.Subtract(ctx, huge)); v.Int64() != -1 {
			w.Errorf("got %v", v)
		}
		zero := must[*counter.Counter[*big.Int]](w)(counter.NewBig(w.Session("a"), path, counter.Options[*big.Int]{}))
		if err := zero.Reset(ctx); err != nil || w.Data(path) != "0" {
			w.Errorf("%v, %q", err, w.Data(path))
		}
	})
}

// The texts are those that Python writes and reads.
func TestTexts(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, s := w.Context(), w.Session("a")
		floats := must[*counter.Counter[float64]](w)(counter.NewFloat(s, path, counter.Options[float64]{}))
		for text, v := range map[string]float64{
			"0.0": 0, "-0.0": math.Copysign(0, -1), "1.0": 1, "2.1": 2.1, "0.1": .1, "0.30000000000000004": math.Nextafter(.3, 1),
			"1e+16": 1e16, "9999999999999998.0": 9999999999999998, "1000000000000000.0": 1e15, "123456789.125": 123456789.125,
			"1.2345678901234567e+19": 12345678901234567890, "1e+22": 1e22, "1e-05": 1e-5, "0.0001": 1e-4, "9.999999999999999e-05": math.Nextafter(1e-4, 0),
			"5e-324": math.SmallestNonzeroFloat64, "1.7976931348623157e+308": math.MaxFloat64, "-1.5e-07": -1.5e-7, "1e+100": 1e100,
			"inf": math.Inf(1), "-inf": math.Inf(-1), "nan": math.NaN(),
		} {
			if err := floats.Set(ctx, v); err != nil || w.Data(path) != text {
				w.Errorf("%v is written %q, want %q: %v", v, w.Data(path), text, err)
			}
			if got, err := floats.Get(ctx); err != nil || math.Float64bits(got) != math.Float64bits(v) && v == v {
				w.Errorf("%q is read %v: %v", text, got, err)
			}
		}
		for text, want := range map[string]float64{
			" 1\n": 1, "+.5": .5, "1.": 1, "1_0.0_1e1_0": 1001e8, "1E3": 1000, "-Infinity": math.Inf(-1), "1e999": math.Inf(1), "\f7\v": 7, "007": 7,
		} {
			w.Write(path, text)
			if got, err := floats.Get(ctx); err != nil || got != want {
				w.Errorf("%q is read %v, want %v: %v", text, got, want, err)
			}
		}
		for _, text := range []string{" ", ".", "1__0", "_1", "1_", "1_.0", "1._0", "e5", "1e", "1e+", "0x10", "1 2", "++1", "infin", "1,0", "\x1f7", "١"} {
			w.Write(path, text)
			if got, err := floats.Get(ctx); !errors.Is(err, counter.ErrValue) {
				w.Errorf("%q is read %v: %v", text, got, err)
			}
		}
		ints := w.counter(s)
		for text, want := range map[string]int64{" -1\n": -1, "+1_000": 1000, "007": 7, "\t9223372036854775807": math.MaxInt64} {
			w.Write(path, text)
			if got, err := ints.Get(ctx); err != nil || got != want {
				w.Errorf("%q is read %v, want %v: %v", text, got, want, err)
			}
		}
		for _, text := range []string{" ", "-", "+-1", "1.0", "1__0", "_1", "1_", "0x10", "1 2", "\x1f7", "１", strings.Repeat("x", 100)} {
			w.Write(path, text)
			if got, err := ints.Get(ctx); !errors.Is(err, counter.ErrValue) {
				w.Errorf("%q is read %v: %v", text, got, err)
			}
		}
	})
}

func TestNewRefuses(t *testing.T) {
	s, err := session.New([]string{"zk:2181"}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"no session":    second(counter.New(nil, path, counter.Options[int64]{})),
		"relative path": second(counter.NewFloat(s, "a", counter.Options[float64]{})),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Without a session every call ends with its context.
func TestCallsEndWithTheirContext(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Net.Refuse()
		c := w.counter(w.Session("a"))
		recipetest.EndWithTheirContext(w, path, map[string]func(context.Context) error{
			"Get": func(ctx context.Context) error { return second(c.Get(ctx)) },
			"Add": func(ctx context.Context) error { return second(c.Add(ctx, 1)) },
			"Set": func(ctx context.Context) error { return c.Set(ctx, 1) },
		})
	})
}
