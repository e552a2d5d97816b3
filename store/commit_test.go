package store

import (
	"testing"
)

const childEnv = "RONBOX_STORE_CHILD"

func child() int { return 0 }

func TestSmoke(t *testing.T) {
	path := newFile(t)
	r := open(t, path)
	if seq := mustCommit(r, put{Key: "a", Value: "1"}); seq != 1 {
		t.Errorf("seq %d", seq)
	}
	_, err := Commit(t.Context(), r.Store, Work, put{Key: "b", Panic: true})
	t.Log(err)
	mustCommit(r, add{"n"})
	m, err := r.Snapshot(t.Context(), t.TempDir(), nil)
	t.Logf("%+v %v", m, err)
	h := r.hash()
	r.stop()
	rep, err := Verify(t.Context(), m.Path, nil, nil, nil)
	t.Logf("%+v %v", rep, err)
	if rep.StateHash.String() != h {
		t.Error("hash")
	}
	r = open(t, path)
	if got := r.get("a"); got != "1" {
		t.Errorf("%q", got)
	}
	r.stop()
}
