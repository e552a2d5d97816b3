package ledger_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
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

// After a boot finds a journal that does not check, the journal is still read but never written.
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

// After an election only the newest batches are checked, since payments wait for it. A damaged one
// of them is found; a lost row of an account that none of them changes is not, but another boot
// verifies such a small ledger in full.
func TestElectedChecksLess(t *testing.T) {
	const batches = 150
	bob := lose{bucket("state"), []byte{7: 2, 11: 1}}
	for _, tt := range []struct {
		name    string
		damage  store.Command[struct{}]
		elected bool
		found   bool
	}{
		{"an old row", bob, true, false},
		{"an old row without an election", bob, false, true},
		{"a new batch", spoil{1, []byte{7: batches - 2*tables.TailBatches}, 40}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil).declare("ron")
			r.accept(issue("bob", 1, 1))
			for i := range uint64(batches) {
				var many []ledger.Op
				for k := range uint64(20) {
					many = append(many, issue("alice", 1, i*20+k+2))
				}
				r.accept(many...)
			}
			if err := r.l.Flush(r.ctx()); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Commit(r.ctx(), r.store, store.Work, tt.damage); err != nil {
				t.Fatal(err)
			}
			r.elected, r.safe = tt.elected, true
			r.reopen()
			if found := r.l.SafeMode() != ""; found != tt.found {
				t.Errorf("found: %v, want %v: %s", found, tt.found, r.l.SafeMode())
			}
		})
	}
}

// A fault found by a read also stops writes. Only a boot that verifies everything can end this
// state.
func TestReadEntersSafeMode(t *testing.T) {
	r := newRig(t, nil, func(c *ledger.Config) { c.VerifyOnOpen = ledger.VerifyNone }).declare("ron")
	const damaged, last = 7, 3 * tables.TailBatches // in the middle of the batches, which a boot does not read
	var id record.TxID
	for i := uint64(1); i <= last; i++ {
		if got := r.accept(issue("alice", 10, i))[0].Receipt; got.Batch == damaged {
			id = got.TxID
		}
	}
	flip := func() {
		t.Helper()
		if _, err := store.Commit[struct{}](r.ctx(), r.store, store.Work, spoil{1, []byte{7: damaged}, 0}); err != nil {
			t.Fatal(err)
		}
	}
	barred := func() {
		t.Helper()
		if _, err := r.l.Commit(r.ctx(), []ledger.Op{issue("alice", 1, last+1)}); !errors.Is(err, ledger.ErrSafeMode) {
			t.Errorf("commit: %v, want ErrSafeMode", err)
		}
		if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err != nil || b.Posted != amount(10*last) {
			t.Errorf("alice has %v, %v", b.Posted, err)
		}
	}
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	flip()
	r.reopen()
	if _, err := r.l.Tx(r.ctx(), id); !errors.Is(err, store.ErrCorrupt) || !errors.Is(err, ledger.ErrSafeMode) {
		t.Fatalf("tx: %v, want ErrCorrupt and ErrSafeMode", err)
	}
	barred()
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.safe = true
	for range 2 {
		r.reopen()
		if r.l.SafeMode() == "" {
			t.Fatal("a start ended safe mode")
		}
		barred()
	}
	flip() // back
	r.safe = false
	r.reopen()
	r.accept(issue("alice", 1, last+1))
	if why := doubt(r); why != "" {
		t.Errorf("the file was verified, and still says %q", why)
	}
}

// A damaged row moves no money even if no boot reads it. An operation that needs the row finds that
// it does not check.
func TestTurnedBitMovesNothing(t *testing.T) {
	r := newRig(t, nil, func(c *ledger.Config) { c.VerifyOnOpen = ledger.VerifyNone }).declare("ron")
	r.accept(issue("alice", 10, 1), issue("bob", 10, 2))
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	var keys [][]byte
	if err := r.store.View(r.ctx(), func(rd store.Reader) error {
		for k, row := range tables.States(rd, tables.StateKey{}) {
			if k.Asset != 0 && row.Balance.State.CreditsPosted == amount(10) {
				keys = append(
					keys,
					binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, k.Account), k.Asset),
				)
			}
		}
		return nil
	}); err != nil || len(keys) != 2 {
		t.Fatalf("%x, %v", keys, err)
	}
	r.safe = true
	// what alice was credited with
	if _, err := store.Commit[struct{}](r.ctx(), r.store, store.Work, spoil{3, keys[0], 1}); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if _, err := r.l.Commit(r.ctx(), []ledger.Op{transfer("alice", "bob", 1, 1)}); !errors.Is(err, ledger.ErrSafeMode) {
		t.Errorf("commit: %v, want ErrSafeMode", err)
	}
	if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); !errors.Is(err, ledger.ErrSafeMode) {
		t.Errorf("alice has %v, %v", b.Posted, err)
	}
	if b, err := r.l.Balance(r.ctx(), "bob", "ron", 0); err != nil || b.Posted != amount(10) {
		t.Errorf("bob has %v, %v", b.Posted, err)
	}
}

// The flusher records safe mode in the file, because a node may end without an orderly stop.
func TestFlusherNotesSafeMode(t *testing.T) {
	r := newRig(t, nil, func(c *ledger.Config) { c.FlushEvery = unit.Duration(10 * time.Millisecond) }).declare("ron").
		start()
	r.l.Bar()
	for late := time.Now().Add(time.Minute); doubt(r) != "a test"; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal("it does not")
		}
	}
	r.stop()
}

// doubt returns the reason for safe mode recorded in the file.
func doubt(r *rig) (why string) {
	r.t.Helper()
	if err := r.store.View(r.ctx(), func(rd store.Reader) error { why = tables.GetDoubt(rd); return nil }); err != nil {
		r.t.Fatal(err)
	}
	return why
}
