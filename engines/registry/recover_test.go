package registry_test

import (
	"errors"
	"testing"

	"ronbox/engines/registry"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// A boot verifies the versions after the latest checkpoint, however long the log is, and from
// genesis without one.
func TestBootIsBounded(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 100)
	cover(r)
	from, _, err := registry.Covered(r.Engine, r.Ctx())
	if err != nil || from.Head.Version != 101 || from.Head != r.Engine.Head().Head ||
		from.Items.Root() != r.Engine.Head().Items.Root() {
		t.Fatalf("covered: %+v, %v", from.Head, err)
	}
	whole, versions, err := registry.VerifyFrom(r.Engine, r.Ctx(), rverify.State{})
	if err != nil || versions != 101 {
		t.Fatalf("from genesis: %d versions, %v", versions, err)
	}
	end, versions, err := registry.VerifyFrom(r.Engine, r.Ctx(), from)
	if err != nil || versions != 0 || end.Head != whole.Head || end.AuditSeq != whole.AuditSeq ||
		end.AuditB3 != whole.AuditB3 {
		t.Errorf("from the checkpoint: %d versions, %v", versions, err)
	}
	other := registrytest.New(t).Start()
	other.Genesis(newSigners(1, 1))
	if from, _, err := registry.Covered(other.Engine, other.Ctx()); err != nil || from.Head.Version != 0 {
		t.Errorf("without a checkpoint: %+v, %v", from.Head, err)
	}
}

// setRow writes one raw row.
type setRow struct {
	bucket     *store.Bucket
	key, value []byte
}

func (setRow) Kind() string { return "registry.test_set_row/1" }

func (c setRow) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Put(c.bucket, c.key, c.value)
	return struct{}{}, nil
}

// The boot checks the rows that the checkpoint covers: another entry, tile or signer set under it
// keeps the log from opening.
func TestBootChecksTheCheckpoint(t *testing.T) {
	t.Parallel()
	for doc, change := range map[string]func(r *registrytest.Rig) setRow{
		"the entry": func(r *registrytest.Rig) setRow {
			raw, err := r.Engine.EntryBytes(r.Ctx(), 3)
			if err != nil {
				t.Fatal(err)
			}
			return setRow{tables.EntryBucket, store.U64().Append(nil, 4), raw}
		},
		"the payload": func(r *registrytest.Rig) setRow {
			raw, err := r.Engine.PayloadBytes(r.Ctx(), 3)
			if err != nil {
				t.Fatal(err)
			}
			return setRow{tables.PayloadBucket, store.U64().Append(nil, 4), r.Engine.Codec.Pack(raw)}
		},
		"a tile": func(r *registrytest.Rig) setRow {
			return setRow{tables.TileBucket, make([]byte, 9), make([]byte, 4*32)}
		},
	} {
		r, s := newLogRig(t)
		r.Genesis(s)
		commitDeltas(r, s, 3)
		cover(r)
		if _, err := store.Commit(r.Ctx(), r.Store, store.Work, change(r)); err != nil {
			t.Fatal(err)
		}
		r.Stop()
		r.Wire()
		if err := errors.Join(r.Store.Open(r.Ctx()), r.Store.Prepare(r.Ctx())); err != nil {
			t.Fatal(err)
		}
		r.Sup.Start(r.Store.Tasks()...)
		r.Stopped = false
		if err := r.Engine.Recover(r.Ctx()); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", doc, err)
		}
		r.Stop()
	}
}

// An unreadable genesis is a damaged file, even if a checkpoint and a stored set exist above it.
func TestDamagedGenesis(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	if err := registry.CheckGenesis(r.Engine, r.Ctx(), r.Engine.Head()); err != nil {
		t.Fatal(err)
	}
	for _, packed := range [][]byte{{}, {tables.CodecZstd, 1, 2}} {
		if _, err := store.Commit(r.Ctx(), r.Store, store.Work,
			setRow{tables.PayloadBucket, store.U64().Append(nil, 1), packed}); err != nil {
			t.Fatal(err)
		}
		if err := registry.CheckGenesis(r.Engine, r.Ctx(), r.Engine.Head()); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%x: %v", packed, err)
		}
	}
}
