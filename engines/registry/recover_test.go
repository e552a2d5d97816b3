package registry

import (
	"errors"
	"testing"

	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// A boot verifies the versions after the latest checkpoint, however long the log is, and from
// genesis without one.
func TestBootIsBounded(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	r.commitDeltas(s, 100)
	r.cover()
	from, _, err := r.e.covered(r.ctx())
	if err != nil || from.Head.Version != 101 || from.Head != r.e.Head().Head ||
		from.Items.Root() != r.e.Head().Items.Root() {
		t.Fatalf("covered: %+v, %v", from.Head, err)
	}
	whole, versions, err := r.e.verifyFrom(r.ctx(), rverify.State{})
	if err != nil || versions != 101 {
		t.Fatalf("from genesis: %d versions, %v", versions, err)
	}
	end, versions, err := r.e.verifyFrom(r.ctx(), from)
	if err != nil || versions != 0 || end.Head != whole.Head || end.AuditSeq != whole.AuditSeq ||
		end.AuditB3 != whole.AuditB3 {
		t.Errorf("from the checkpoint: %d versions, %v", versions, err)
	}
	other := newRig(t).start()
	other.genesis(newSigners(1, 1))
	if from, _, err := other.e.covered(other.ctx()); err != nil || from.Head.Version != 0 {
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
	for doc, change := range map[string]func(r *rig) setRow{
		"the entry": func(r *rig) setRow {
			raw, err := r.e.EntryBytes(r.ctx(), 3)
			if err != nil {
				t.Fatal(err)
			}
			return setRow{tables.EntryBucket, store.U64().Append(nil, 4), raw}
		},
		"the payload": func(r *rig) setRow {
			raw, err := r.e.PayloadBytes(r.ctx(), 3)
			if err != nil {
				t.Fatal(err)
			}
			return setRow{tables.PayloadBucket, store.U64().Append(nil, 4), r.e.Codec.Pack(raw)}
		},
		"a tile": func(r *rig) setRow {
			return setRow{tables.TileBucket, make([]byte, 9), make([]byte, 4*32)}
		},
	} {
		r, s := newLogRig(t)
		r.genesis(s)
		r.commitDeltas(s, 3)
		r.cover()
		if _, err := store.Commit(r.ctx(), r.store, store.Work, change(r)); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.wire()
		if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
			t.Fatal(err)
		}
		r.sup.Start(r.store.Tasks()...)
		r.stopped = false
		if err := r.e.Recover(r.ctx()); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", doc, err)
		}
		r.stop()
	}
}

// An unreadable genesis is a damaged file, even if a checkpoint and a stored set exist above it.
func TestDamagedGenesis(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	if err := r.e.checkGenesis(r.ctx(), r.e.Head()); err != nil {
		t.Fatal(err)
	}
	for _, packed := range [][]byte{{}, {tables.CodecZstd, 1, 2}} {
		if _, err := store.Commit(r.ctx(), r.store, store.Work,
			setRow{tables.PayloadBucket, store.U64().Append(nil, 1), packed}); err != nil {
			t.Fatal(err)
		}
		if err := r.e.checkGenesis(r.ctx(), r.e.Head()); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%x: %v", packed, err)
		}
	}
}
