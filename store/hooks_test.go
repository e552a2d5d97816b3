package store

import (
	"errors"
	"slices"
	"testing"
)

// tally is an engine's state in memory: what its commands added, tentative until the group is
// committed.
type tally struct {
	calls     []string
	tentative int
	total     int
}

func (g *tally) Begin() { g.calls = append(g.calls, "begin") }
func (g *tally) Committed() {
	g.calls, g.total, g.tentative = append(g.calls, "committed"), g.total+g.tentative, 0
}
func (g *tally) Aborted() { g.calls, g.tentative = append(g.calls, "aborted"), 0 }

func count(n int, err error) do[int] {
	return do[int]{"test.count/1", func(r Reader, _ Stamp, w *Writes) (int, error) {
		g := GroupOf[*tally](r)
		rows.Put(w, "count", []byte{byte(n)})
		w.Then(func() {
			g.tentative += n
			g.calls = append(g.calls, "then")
		})
		return n, err
	}}
}

func TestGroupHooks(t *testing.T) {
	g := &tally{}
	s := newStore(newFile(t), testConfig())
	s.RegisterGroup(g)
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.db.NoSync = true // a commit of two seconds is followed by a probe, which is a group, too
	r := (&rig{Store: s, t: t}).start()
	mustCommit(r, count(2, nil), func(n int) { g.calls = append(g.calls, "after") })
	if _, err := Commit(t.Context(), s, Work, count(5, errRefused)); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	mustCommit(r, count(3, nil))
	r.stop()
	want := []string{"begin", "then", "committed", "after", "begin", "aborted", "begin", "then", "committed"}
	if !slices.Equal(g.calls, want) || g.total != 5 {
		t.Errorf("calls %v, total %d; want %v, 5", g.calls, g.total, want)
	}
}

// After functions run once the state is durable and before anyone is answered.
func TestAfterSeesTheCommit(t *testing.T) {
	r := open(t, newFile(t))
	defer r.stop()
	order := make(chan string, 2)
	mustCommit(r, put{Key: "k", Value: "v"}, func(seq uint64) {
		if r.Info().Seq != seq {
			t.Errorf("Info has seq %d in the after function of %d", r.Info().Seq, seq)
		}
		order <- "after"
	})
	order <- "answered"
	if first := <-order; first != "after" {
		t.Errorf("%s came first", first)
	}
}

// bomb is a group that panics in the hook with the given name.
type bomb struct{ at string }

func (g bomb) Begin()     { g.hook("begin") }
func (g bomb) Committed() { g.hook("committed") }
func (g bomb) Aborted()   { g.hook("aborted") }

func (g bomb) hook(name string) {
	if g.at == name {
		panic("a bug")
	}
}

// A panic in a hook ends the committer, and all later calls fail. Callers get ErrUnknown only if
// the commit has begun.
func TestPanicInAHook(t *testing.T) {
	then := do[uint64]{"test.do/1", func(_ Reader, _ Stamp, w *Writes) (uint64, error) {
		w.Then(func() { panic("a bug") })
		return 0, nil
	}}
	for _, tt := range []struct {
		name    string
		group   string
		cmd     Command[uint64]
		after   []func(uint64)
		unknown bool
	}{
		{"begin", "begin", put{Key: "k"}, nil, false},
		{"then", "", then, nil, false},
		{"aborted", "aborted", put{Key: "k", Refuse: true}, nil, false},
		{"committed", "committed", put{Key: "k"}, nil, true},
		{"after", "", put{Key: "k"}, []func(uint64){func(uint64) { panic("a bug") }}, true},
	} {
		r := idle(t, newFile(t), testConfig())
		r.groups = []Group{bomb{tt.group}}
		r.start()
		_, err := Commit(t.Context(), r.Store, Work, tt.cmd, tt.after...)
		r.abandon()
		if !errors.Is(err, ErrPoisoned) || !errors.Is(err, ErrDied) || errors.Is(err, ErrUnknown) != tt.unknown {
			t.Errorf("%s: err = %v", tt.name, err)
		}
		if !errors.Is(r.end, ErrDied) || !errors.Is(r.Err(), ErrDied) {
			t.Errorf("%s: committer ended with %v, store %v", tt.name, r.end, r.Err())
		}
		if _, err := Commit(t.Context(), r.Store, Work, put{Key: "k"}); !errors.Is(err, ErrPoisoned) ||
			errors.Is(err, ErrUnknown) {
			t.Errorf("%s: next command: %v", tt.name, err)
		}
	}
}

func TestAuditIsChained(t *testing.T) {
	r := open(t, newFile(t))
	r.SetAudit(AuditConfig{Enabled: true, Retain: 5})
	audit := func(reason string, err error) do[int] {
		return do[int]{"test.audit/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			w.Audit(Event{Event: "test", Decision: "allow", Reason: reason, Detail: map[string]string{"k": "\xff"}})
			return 0, err
		}}
	}
	for _, reason := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		mustCommit(r, audit(reason, nil))
	}
	if _, err := Commit(t.Context(), r.Store, Work, audit("refused", errRefused)); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	var got []AuditRow
	err := r.View(t.Context(), func(rd Reader) (err error) {
		if n, err := checkAudit(rd, r.Info().position()); err != nil || n != 5 {
			t.Errorf("chain of %d rows: %v", n, err)
		}
		got, err = Audit(rd, 0, 100)
		return err
	})
	if err != nil || len(got) != 5 || got[0].Seq != 3 || got[0].Reason != "c" || got[4].Reason != "g" ||
		got[4].Detail["k"] != "�" {
		t.Errorf("rows %+v, %v", got, err)
	}
	head := r.Info().position()
	head.auditHead[0] ^= 1
	_ = r.View(t.Context(), func(rd Reader) error {
		if _, err := checkAudit(rd, head); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a wrong head passed: %v", err)
		}
		return nil
	})
	r.stop()
}
