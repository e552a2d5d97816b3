package registry_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/logtree"
)

// A member that does not lead reads what was signed or hashed, without HEAD and without a write, and
// goes on while Recover runs.
func TestStand(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 3)
	cover(r)
	type answers struct{ payload, entry, tile []byte }
	read := func() (out answers, err error) {
		at := logtree.At{}
		var bad [3]error
		out.payload, bad[0] = r.Engine.PayloadBytes(r.Ctx(), 4)
		out.entry, bad[1] = r.Engine.EntryBytes(r.Ctx(), 4)
		out.tile, bad[2] = r.Engine.Tile(r.Ctx(), at, 4, false)
		return out, errors.Join(bad[:]...)
	}
	want, err := read()
	if err != nil {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		got, err := read()
		if err != nil || !bytes.Equal(got.payload, want.payload) || !bytes.Equal(got.entry, want.entry) ||
			!bytes.Equal(got.tile, want.tile) {
			t.Errorf("%s: %v", when, err)
		}
	}
	r.Stop()
	r.OpenStore()
	if _, err := read(); !errors.Is(err, document.ErrNotFound) {
		t.Errorf("before Stand: %v", err)
	}
	seq := r.Store.Info().Seq
	if err := r.Engine.Stand(r.Ctx()); err != nil {
		t.Fatal(err)
	}
	same("standing")
	if _, err := r.Engine.PayloadBytes(r.Ctx(), 5); !errors.Is(err, document.ErrNotFound) {
		t.Errorf("a version that does not exist: %v", err)
	}
	if head := r.Engine.Head(); head.Head.Version != 0 || r.Store.Info().Seq != seq {
		t.Errorf("HEAD is %d, and seq %d was %d", head.Head.Version, r.Store.Info().Seq, seq)
	}
	done, stop := context.WithCancel(r.Ctx())
	read2 := make(chan struct{})
	go func() {
		defer close(read2)
		for done.Err() == nil {
			same("recovering")
		}
	}()
	if err := r.Engine.Recover(r.Ctx()); err != nil {
		t.Error(err)
	}
	stop()
	<-read2
	r.Start()
	commitNext(r, s, 5)
	if _, err := r.Engine.PayloadBytes(r.Ctx(), 5); err != nil {
		t.Errorf("the next version: %v", err)
	}
}
