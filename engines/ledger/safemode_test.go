package ledger_test

import (
	"errors"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// spoil is a command that changes a byte of a row, as a broken disk would.
type spoil struct {
	bucket int
	key    []byte
	at     int
}

func (spoil) Kind() string { return "ledger.spoil/1" }

func (c spoil) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	b := tables.Buckets()[c.bucket]
	row := append([]byte(nil), r.Get(b, c.key)...)
	row[c.at%len(row)] ^= 0x10
	w.Put(b, c.key, row)
	return struct{}{}, nil
}

// A journal that does not check is read and never written, from the boot on that finds it.
func TestSafeMode(t *testing.T) {
	for _, tt := range []struct {
		name    string
		flushed bool
		spoil   spoil
	}{
		{"a record that is redone", false, spoil{0, []byte{7: 4}, 60}},
		{"a record that was flushed", true, spoil{0, []byte{7: 4}, 60}},
		{"a header", true, spoil{1, []byte{7: 2}, 40}},
		{"a header that waits", true, spoil{2, []byte("head"), 120}},
		{"the head", true, spoil{2, []byte("head"), 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil).declare("ron")
			for i := range uint64(tables.TailBatches) {
				r.accept(issue("alice", 5, i+1))
			}
			if tt.flushed {
				if err := r.l.Flush(r.ctx()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := store.Commit[struct{}](r.ctx(), r.store, store.Work, tt.spoil); err != nil {
				t.Fatal(err)
			}
			r.safe = true
			r.reopen()
			if r.l.SafeMode() == "" {
				t.Fatal("not in safe mode")
			}
			if _, err := r.l.Commit(r.ctx(), []ledger.Op{issue("alice", 1, 9)}); !errors.Is(err, ledger.ErrSafeMode) {
				t.Errorf("commit: %v, want ErrSafeMode", err)
			}
			if err := r.l.Probe(r.ctx()); !errors.Is(err, ledger.ErrSafeMode) {
				t.Errorf("probe: %v, want ErrSafeMode", err)
			}
			if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); tt.flushed && (err != nil || b.Posted != amount(40)) {
				t.Errorf("alice has %v, %v", b.Posted, err)
			}
		})
	}
}

// What a read finds ends writing as well.
func TestReadEntersSafeMode(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	id := r.accept(issue("alice", 10, 1))[0].Receipt.TxID
	if _, err := store.Commit[struct{}](r.ctx(), r.store, store.Work, spoil{0, []byte{7: 4}, 60}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.l.Tx(r.ctx(), id); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("tx: %v, want ErrCorrupt", err)
	}
	if _, err := r.l.Commit(r.ctx(), []ledger.Op{issue("alice", 1, 2)}); !errors.Is(err, ledger.ErrSafeMode) {
		t.Errorf("commit: %v, want ErrSafeMode", err)
	}
	if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err != nil || b.Posted != amount(10) {
		t.Errorf("alice has %v, %v", b.Posted, err)
	}
}
