package watched_test

import (
	"testing"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/internal/testonly/recipetest"
	"github.com/kielgo/kiel/internal/watched"
	"github.com/kielgo/kiel/session"
)

// Each creation and deletion of a child shows, also when the names are the same afterwards, and when the parent was deleted and
// has as many children again; what is done to the data shows not.
func TestSameChildren(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		do := func(err error) {
			noerr.Must(t, err)
		}
		do(w.Srv.Create(path+"/a", nil))
		inc := recipetest.Must[*session.Incarnation](t)(w.Session("a").Incarnation(t.Context()))
		stat := func() session.Stat {
			_, stat, err := inc.Exists(t.Context(), path)
			do(err)
			return stat
		}
		for _, c := range []struct {
			name string
			same bool
			do   func()
		}{
			{"nothing", true, func() {}},
			{"data", true, func() { do(w.Srv.Set(path, []byte("x"))) }},
			{"data of a child", true, func() { do(w.Srv.Set(path+"/a", []byte("x"))) }},
			{"a child of a child", true, func() { do(w.Srv.Create(path+"/a/b", nil)); do(w.Srv.Delete(path + "/a/b")) }},
			{"came", false, func() { do(w.Srv.Create(path+"/b", nil)) }},
			{"went", false, func() { do(w.Srv.Delete(path + "/b")) }},
			{"came and went", false, func() { do(w.Srv.Create(path+"/b", nil)); do(w.Srv.Delete(path + "/b")) }},
			{"went and came", false, func() { do(w.Srv.Delete(path + "/a")); do(w.Srv.Create(path+"/a", nil)) }},
			{"parent too", false, func() { do(w.Srv.Delete(path)); do(w.Srv.Create(path+"/a", nil)) }},
		} {
			before := stat()
			c.do()
			if after := stat(); watched.SameChildren(before, after) != c.same {
				t.Errorf("%s: %+v, then %+v", c.name, before, after)
			}
		}
	})
}

// Each of the metadata can be the only one that differs.
func TestSameChildrenComparesAll(t *testing.T) {
	all := session.Stat{Czxid: 1, Mzxid: 2, Ctime: 3, Pzxid: 4, Cversion: 5, NumChildren: 6}
	for name, change := range map[string]func(*session.Stat){
		"Czxid":       func(s *session.Stat) { s.Czxid++ },
		"Ctime":       func(s *session.Stat) { s.Ctime++ },
		"Pzxid":       func(s *session.Stat) { s.Pzxid++ },
		"Cversion":    func(s *session.Stat) { s.Cversion++ },
		"NumChildren": func(s *session.Stat) { s.NumChildren++ },
	} {
		other := all
		change(&other)
		if watched.SameChildren(all, other) {
			t.Errorf("%s is not compared", name)
		}
	}
}
