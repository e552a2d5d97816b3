package ledger_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// turn is a command that flips a bit of a row, in its key or its value, as a broken disk would.
type turn struct {
	bucket *store.Bucket
	key    []byte
	bit    int
}

func (turn) Kind() string { return "ledger.turn/1" }

func (c turn) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	row, key := bytes.Clone(r.Get(c.bucket, c.key)), bytes.Clone(c.key)
	if n := 8 * len(key); c.bit < n {
		key[c.bit/8] ^= 1 << (c.bit % 8)
	} else {
		row[(c.bit-n)/8] ^= 1 << (c.bit % 8)
	}
	w.Delete(c.bucket, c.key)
	w.Put(c.bucket, key, row)
	return struct{}{}, nil
}

// spoilt commits c, which damages the file, and reboots.
func (r *rig) spoilt(c store.Command[struct{}]) {
	r.t.Helper()
	if _, err := store.Commit(r.ctx(), r.store, store.Work, c); err != nil {
		r.t.Fatal(err)
	}
	r.safe = true
	r.reopen()
}

// bucket returns the ledger's bucket with the given name.
func bucket(name string) *store.Bucket {
	for _, b := range tables.Buckets() {
		if b.Name == "ledger/"+name {
			return b
		}
	}
	panic(name)
}

// keys returns the keys of a bucket.
func (r *rig) keys(b *store.Bucket) (keys [][]byte) {
	r.t.Helper()
	err := r.store.View(r.ctx(), func(rd store.Reader) error {
		for k := range rd.Range(b, nil, nil) {
			keys = append(keys, bytes.Clone(k))
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return keys
}

// neverVerified configures a ledger that verifies nothing at boot.
func neverVerified(c *ledger.Config) { c.VerifyOnOpen = ledger.VerifyNone }

// A hold with a damaged key in the order of expiry does not stay held silently, nor does it
// silently keep other holds from expiring. The ledger enters safe mode.
func TestTurnedEndOfAHold(t *testing.T) {
	for at := range 16 {
		clock := ledgertest.NewClock()
		r := newRig(t, clock, neverVerified).declare("ron")
		r.accept(issue("alice", 10, 1), ledger.Op{
			Code:      record.OpHold,
			From:      "alice",
			To:        "bob",
			Asset:     "ron",
			Amount:    amount(10),
			Nonce:     1,
			ExpiresIn: time.Minute,
		})
		if err := r.l.Flush(r.ctx()); err != nil {
			t.Fatal(err)
		}
		r.spoilt(turn{bucket("hold_ends"), r.keys(bucket("hold_ends"))[0], 8*at + at%8})
		clock.Advance(time.Hour)
		if err := r.l.Sweep(r.ctx()); !errors.Is(err, store.ErrCorrupt) || r.l.SafeMode() == "" {
			t.Errorf("byte %d: %v, safe mode %q", at, err, r.l.SafeMode())
		}
		r.stop()
	}
}

// A sealed key in a damaged block is neither treated as new nor resolved to another record. A call
// with this key fails with ErrSafeMode.
func TestTurnedBlockOfSealedKeys(t *testing.T) {
	run := tables.Idem.Sub(string([]byte{7: 1}))
	// a bit of the block's number, of its first key, of that key's record, and of the checksum
	for _, bit := range []int{31, 8 * 4, 8 * 20, 8*29 + 3} {
		r := newRig(t, nil, neverVerified, func(c *ledger.Config) { c.SlotMax = 1 }).declare("ron")
		first := keyed(issue("alice", 10, 1), "first")
		r.accept(first)
		r.accept(keyed(issue("alice", 10, 2), "second"))
		if err := r.l.Seal(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if outs := r.accept(first); !outs[0].Replayed {
			t.Fatalf("%+v", outs)
		}
		r.spoilt(turn{run, r.keys(run)[0], bit})
		if _, found, err := r.l.Find(r.ctx(), first.Dedupe, first.Fingerprint, 0); !errors.Is(err, ledger.ErrSafeMode) {
			t.Errorf("bit %d: found %v, %v", bit, found, err)
		}
		if outs, err := r.l.Commit(r.ctx(), []ledger.Op{first}); !errors.Is(err, ledger.ErrSafeMode) {
			t.Errorf("bit %d: %+v, %v", bit, outs, err)
		}
		r.stop()
	}
}

// A ledger with records that lacks a row of ledger/meta is damaged, not new: it pays nothing again,
// and the verifier finds the damage afterwards.
func TestTurnedNameInMeta(t *testing.T) {
	meta := bucket("meta")
	for _, name := range []string{"head", "format", "store_key"} {
		for bit, spoil := range map[string]store.Command[struct{}]{
			"is absent": lose{meta, []byte(name)},
			"is turned": turn{meta, []byte(name), 3},
		} {
			r := newRig(t, nil, neverVerified).declare("ron")
			paid := keyed(issue("alice", 10, 1), "rent")
			r.accept(paid)
			r.spoilt(spoil)
			if r.l.SafeMode() == "" {
				t.Errorf("%s %s: not in safe mode", name, bit)
			}
			if _, found, err := r.l.Find(r.ctx(), paid.Dedupe, paid.Fingerprint, 0); err == nil && !found {
				t.Errorf("%s %s: the key is said to be new", name, bit)
			}
			if outs, err := r.l.Commit(r.ctx(), []ledger.Op{paid}); !errors.Is(err, ledger.ErrSafeMode) {
				t.Errorf("%s %s: %+v, %v", name, bit, outs, err)
			}
			if rep := r.report(); rep.OK {
				t.Errorf("%s %s: the verifier says that the ledger is sound", name, bit)
			}
			r.stop()
		}
	}
}

// A row of ledger/meta with an unknown name is damage, even if another row was written in its place.
func TestAnotherNameInMeta(t *testing.T) {
	r := newRig(t, nil, neverVerified).declare("ron")
	r.spoilt(copied{bucket("meta"), []byte("store_key"), []byte("store_kex")})
	if r.l.SafeMode() == "" || r.report().OK {
		t.Errorf("safe mode %q, the verifier says %+v", r.l.SafeMode(), r.report())
	}
}

// copied is a command that writes a row again under another name.
type copied struct {
	bucket   *store.Bucket
	from, to []byte
}

func (copied) Kind() string { return "ledger.copy/1" }

func (c copied) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Put(c.bucket, c.to, bytes.Clone(r.Get(c.bucket, c.from)))
	return struct{}{}, nil
}

// report returns what a verification of the whole ledger finds.
func (r *rig) report() (rep lverify.Report) {
	r.t.Helper()
	err := r.store.View(r.ctx(), func(rd store.Reader) (err error) {
		rep, err = lverify.Verify(r.ctx(), rd, lverify.Options{})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return rep
}
