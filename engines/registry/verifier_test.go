package registry

import (
	"bytes"
	"errors"
	"iter"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// flip changes one bit of a stored row, as a failing disk would.
type flip struct {
	bucket *store.Bucket
	key    []byte
	bit    int
}

func (flip) Kind() string { return "registry.flip/1" }

func (f flip) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	v := append([]byte(nil), r.Get(f.bucket, f.key)...)
	v[f.bit/8] ^= 1 << (f.bit % 8)
	w.Put(f.bucket, f.key, v)
	return struct{}{}, nil
}

func (r *rig) flip(f flip) {
	r.t.Helper()
	if _, err := store.Commit(r.ctx(), r.store, store.Work, f); err != nil {
		r.t.Fatal(err)
	}
}

// small is a log of three versions with a refusal in its audit chain.
func small(t *testing.T) *rig {
	t.Helper()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s, "a")
	for v := uint64(2); v <= 3; v++ {
		p := r.propose(v, string(rune('a'+v)))
		if _, err := r.e.Commit(r.ctx(), alice, p.ID, ""); !errors.Is(err, record.ErrQuorum) {
			t.Fatal(err)
		}
		r.approve(p, s.keys[0])
		r.commit(p)
	}
	return r
}

func TestDeepVerifierLatchesAFault(t *testing.T) {
	t.Parallel()
	r := small(t)
	r.waitFor("the verifier to reach HEAD", func() bool { return r.e.verifiedTo.Load() == 3 })
	r.flip(flip{bucket: tables.EntryBucket, key: store.U64().Append(nil, 2), bit: 77})
	r.advance(r.cfg.Verify.FullPass.D()) // the next pass is due
	r.waitFor("the fault to be found", func() bool { return r.e.chainError.Load() != nil })
	r.waitFor("the fault to be told", func() bool { return !r.board.Report(service, "").WriteReady })
	if _, err := r.e.Propose(r.ctx(), alice, delta(4, "z"), "", ""); !isCause(err, document.CauseChainError) {
		t.Errorf("propose = %v, want chain_error", err)
	}
	if rep := r.board.Report(service, ""); rep.WriteReady || !rep.ReadReady ||
		r.metric("registry_chain_errors_total") != 1 {
		t.Errorf("report = %+v", rep)
	}
	r.stop()
	r.wire()
	if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
		t.Fatal(err)
	}
	r.stopped = false
	r.sup.Start(r.store.Tasks()...)
	if err := r.e.Recover(r.ctx()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("recover = %v, want ErrCorrupt", err)
	}
}

// After a restart the deep verifier continues from its last stored checkpoint. A restart does not
// delay the next full pass, which finds damage under that checkpoint.
func TestDeepVerifierResumes(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.freeze()
	r.genesis(s)
	r.commitDeltas(s, 3)
	r.cover()
	r.waitFor("the verifier to reach HEAD", func() bool { return r.e.verifiedTo.Load() == 4 })
	r.advance(markEvery)
	r.waitFor("its place to be kept", func() bool {
		mark, _, err := views.RowOf(r.ctx(), r.e.Reader, tables.MetaVerified, tables.KeyVerified)
		return err == nil && mark.Size == 4
	})
	r.flip(flip{bucket: tables.AuditBucket, key: store.U64().Append(nil, 2), bit: 77})
	r.commitNext(s, 5)
	r.advance(r.cfg.Verify.FullPass.D() - markEvery - time.Minute)
	r.stop()
	r.open()
	r.start()
	r.waitFor("the verifier to go on", func() bool { return r.e.verifiedTo.Load() == 5 })
	r.commitNext(s, 6)
	r.waitFor("the verifier to follow", func() bool { return r.e.verifiedTo.Load() == 6 })
	if why := r.e.chainError.Load(); why != nil {
		t.Errorf("what was verified before the restart was verified again: %s", *why)
	}
	r.advance(time.Minute)
	r.waitFor("the fault to be found", func() bool { return r.e.chainError.Load() != nil })
}

// If the stored progress does not verify, the pass begins at genesis.
func TestDeepVerifierBeginsAnew(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	r.commitDeltas(s, 3)
	r.cover()
	for doc, c := range map[string]struct {
		mark tables.VerifyMark
		at   uint64
	}{
		"no checkpoint of that size": {tables.VerifyMark{Size: 9, BegunMS: 1}, 0}, // others may be there by now
		"a checkpoint":               {tables.VerifyMark{Size: 4, BegunMS: 1}, 4},
		"a pass of another clock":    {tables.VerifyMark{Size: 4, BegunMS: r.now().Add(time.Hour).UnixMilli()}, 4},
	} {
		if _, err := store.Commit(r.ctx(), r.store, store.Work, tables.MarkVerified{Mark: c.mark}); err != nil {
			t.Fatal(err)
		}
		if p := r.e.resumePass(r.ctx()); p.marked != c.at || p.begun.After(r.now()) {
			t.Errorf("%s: resumed at %d, begun %s", doc, p.marked, p.begun)
		}
	}
	r.flip(flip{bucket: tables.MetaBucket, key: []byte(tables.KeyVerified), bit: 9})
	if p := r.e.resumePass(r.ctx()); p.marked != 0 {
		t.Errorf("a damaged row: resumed at %d", p.marked)
	}
	young := r.e.newPass(rverify.State{}, r.now())
	if late := r.now().Add(time.Hour); young.over(late, time.Minute) {
		t.Error("a pass that has not reached its end was cut short")
	}
}

func (r *rig) verifyFile() rverify.Report {
	return r.verifyWith(func(rd store.Reader) store.Reader { return rd })
}

func (r *rig) verifyWith(wrap func(store.Reader) store.Reader) rverify.Report {
	r.t.Helper()
	var rep rverify.Report
	err := r.store.View(r.ctx(), func(rd store.Reader) (err error) {
		log := tables.Log{R: wrap(rd), Codec: r.e.Codec}
		rep, err = rverify.Verify(r.ctx(), log, rverify.Options{Genesis: r.e.Head().GenesisB3})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return rep
}

// flipped reads one row with one bit changed.
type flipped struct {
	store.Reader
	flip
}

func (f flipped) at(b *store.Bucket, k, v []byte) []byte {
	if b != f.bucket || !bytes.Equal(k, f.key) {
		return v
	}
	v = bytes.Clone(v)
	v[f.bit/8] ^= 1 << (f.bit % 8)
	return v
}

func (f flipped) Get(b *store.Bucket, key []byte) []byte { return f.at(b, key, f.Reader.Get(b, key)) }

func (f flipped) Range(b *store.Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for k, v := range f.Reader.Range(b, from, to) {
			if !yield(k, f.at(b, k, v)) {
				return
			}
		}
	}
}

// Any flipped bit of an entry, a payload, an audit record, a signer set or either head is found.
func TestEveryBitOfTheLogCounts(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	r := small(t)
	if rep := r.verifyFile(); !rep.OK || rep.Versions != 3 {
		t.Fatalf("report = %+v", rep)
	}
	u64 := store.U64().Append
	most := 150 // flips of a row
	if testing.Short() {
		most = 30
	}
	for _, row := range []struct {
		doc    string
		bucket *store.Bucket
		key    []byte
	}{
		{"entry", tables.EntryBucket, u64(nil, 3)}, {"payload", tables.PayloadBucket, u64(nil, 2)},
		{"packed payload", tables.PayloadBucket, u64(nil, 1)}, {"audit", tables.AuditBucket, u64(nil, 4)},
		{"epoch", tables.EpochBucket, store.U32().Append(nil, 1)},
		{"head", tables.MetaBucket, []byte(tables.KeyHead)},
		{"audit head", tables.MetaBucket, []byte(tables.KeyAuditHead)},
	} {
		n := r.bits(row.bucket, row.key)
		for bit := 0; bit < n; bit += max(1, n/most) {
			f := flip{bucket: row.bucket, key: row.key, bit: bit}
			rep := r.verifyWith(func(rd store.Reader) store.Reader { return flipped{Reader: rd, flip: f} })
			if rep.OK || rep.Problem == nil {
				t.Errorf("%s: bit %d of %d flipped unseen", row.doc, bit, n)
			}
		}
	}
}

func (r *rig) bits(b *store.Bucket, key []byte) (n int) {
	r.t.Helper()
	if err := r.store.View(r.ctx(), func(rd store.Reader) error {
		n = 8 * len(rd.Get(b, key))
		return nil
	}); err != nil || n == 0 {
		r.t.Fatalf("%s %x: %d bits, %v", b.Name, key, n, err)
	}
	return n
}
