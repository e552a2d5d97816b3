package registry_test

import (
	"bytes"
	"errors"
	"iter"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
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

func flipIn(r *registrytest.Rig, f flip) {
	r.T.Helper()
	if _, err := store.Commit(r.Ctx(), r.Store, store.Work, f); err != nil {
		r.T.Fatal(err)
	}
}

// small is a log of three versions with a refusal in its audit chain.
func small(t *testing.T) *registrytest.Rig {
	t.Helper()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s, "a")
	for v := uint64(2); v <= 3; v++ {
		p := r.Propose(v, string(rune('a'+v)))
		if _, err := r.Engine.Commit(r.Ctx(), alice, p.ID, ""); !errors.Is(err, record.ErrQuorum) {
			t.Fatal(err)
		}
		r.Approve(p, s.Keys[0])
		r.Commit(p)
	}
	return r
}

func TestDeepVerifierLatchesAFault(t *testing.T) {
	t.Parallel()
	r := small(t)
	r.WaitFor("the verifier to reach HEAD", func() bool { return r.Engine.VerifiedTo().Load() == 3 })
	flipIn(r, flip{bucket: tables.EntryBucket, key: store.U64().Append(nil, 2), bit: 77})
	r.Advance(r.Config.Verify.FullPass.D()) // the next pass is due
	r.WaitFor("the fault to be found", func() bool { return r.Engine.ChainError().Load() != nil })
	r.WaitFor("the fault to be told", func() bool { return !r.Board.Report(tables.Service, "").WriteReady })
	if _, err := r.Engine.Propose(r.Ctx(), alice, delta(4, "z"), "", ""); !isCause(err, document.CauseChainError) {
		t.Errorf("propose = %v, want chain_error", err)
	}
	if rep := r.Board.Report(tables.Service, ""); rep.WriteReady || !rep.ReadReady ||
		r.Metric("registry_chain_errors_total") != 1 {
		t.Errorf("report = %+v", rep)
	}
	r.Stop()
	r.Wire()
	if err := errors.Join(r.Store.Open(r.Ctx()), r.Store.Prepare(r.Ctx())); err != nil {
		t.Fatal(err)
	}
	r.Stopped = false
	r.Sup.Start(r.Store.Tasks()...)
	if err := r.Engine.Recover(r.Ctx()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("recover = %v, want ErrCorrupt", err)
	}
}

// After a restart the deep verifier continues from its last stored checkpoint. A restart does not
// delay the next full pass, which finds damage under that checkpoint.
func TestDeepVerifierResumes(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Freeze()
	r.Genesis(s)
	commitDeltas(r, s, 3)
	cover(r)
	r.WaitFor("the verifier to reach HEAD", func() bool { return r.Engine.VerifiedTo().Load() == 4 })
	r.Advance(registry.MarkEvery)
	r.WaitFor("its place to be kept", func() bool {
		mark, _, err := views.RowOf(r.Ctx(), r.Engine.Reader, tables.MetaVerified, tables.KeyVerified)
		return err == nil && mark.Size == 4
	})
	flipIn(r, flip{bucket: tables.AuditBucket, key: store.U64().Append(nil, 2), bit: 77})
	commitNext(r, s, 5)
	r.Advance(r.Config.Verify.FullPass.D() - registry.MarkEvery - time.Minute)
	r.Stop()
	r.Open()
	r.Start()
	r.WaitFor("the verifier to go on", func() bool { return r.Engine.VerifiedTo().Load() == 5 })
	commitNext(r, s, 6)
	r.WaitFor("the verifier to follow", func() bool { return r.Engine.VerifiedTo().Load() == 6 })
	if why := r.Engine.ChainError().Load(); why != nil {
		t.Errorf("what was verified before the restart was verified again: %s", *why)
	}
	r.Advance(time.Minute)
	r.WaitFor("the fault to be found", func() bool { return r.Engine.ChainError().Load() != nil })
}

// If the stored progress does not verify, the pass begins at genesis.
func TestDeepVerifierBeginsAnew(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 3)
	cover(r)
	for doc, c := range map[string]struct {
		mark tables.VerifyMark
		at   uint64
	}{
		"no checkpoint of that size": {tables.VerifyMark{Size: 9, BegunMS: 1}, 0}, // others may be there by now
		"a checkpoint":               {tables.VerifyMark{Size: 4, BegunMS: 1}, 4},
		"a pass of another clock":    {tables.VerifyMark{Size: 4, BegunMS: r.Now().Add(time.Hour).UnixMilli()}, 4},
	} {
		if _, err := store.Commit(r.Ctx(), r.Store, store.Work, tables.MarkVerified{Mark: c.mark}); err != nil {
			t.Fatal(err)
		}
		if p := registry.ResumePass(r.Engine, r.Ctx()); p.Marked() != c.at || p.Begun().After(r.Now()) {
			t.Errorf("%s: resumed at %d, begun %s", doc, p.Marked(), p.Begun())
		}
	}
	flipIn(r, flip{bucket: tables.MetaBucket, key: []byte(tables.KeyVerified), bit: 9})
	if p := registry.ResumePass(r.Engine, r.Ctx()); p.Marked() != 0 {
		t.Errorf("a damaged row: resumed at %d", p.Marked())
	}
	young := registry.NewPass(r.Engine, rverify.State{}, r.Now())
	if late := r.Now().Add(time.Hour); young.Over(late, time.Minute) {
		t.Error("a pass that has not reached its end was cut short")
	}
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
	if rep := r.VerifyFile(); !rep.OK || rep.Versions != 3 {
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
		n := bits(r, row.bucket, row.key)
		for bit := 0; bit < n; bit += max(1, n/most) {
			f := flip{bucket: row.bucket, key: row.key, bit: bit}
			rep := r.VerifyWith(func(rd store.Reader) store.Reader { return flipped{Reader: rd, flip: f} })
			if rep.OK || rep.Problem == nil {
				t.Errorf("%s: bit %d of %d flipped unseen", row.doc, bit, n)
			}
		}
	}
}

func bits(r *registrytest.Rig, b *store.Bucket, key []byte) (n int) {
	r.T.Helper()
	if err := r.Store.View(r.Ctx(), func(rd store.Reader) error {
		n = 8 * len(rd.Get(b, key))
		return nil
	}); err != nil || n == 0 {
		r.T.Fatalf("%s %x: %d bits, %v", b.Name, key, n, err)
	}
	return n
}

// A job that was queued before a fault was found is refused too.
func TestLatchHoldsForQueuedJobs(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	r.Stop()
	r.Open() // and no pipeline: nothing leaves the queue
	done := make(chan error, 1)
	go func() {
		_, err := r.Engine.Propose(r.Ctx(), alice, delta(2, "b"), "", "")
		done <- err
	}()
	r.WaitFor("the call to queue", func() bool { return r.Metric("queue_depth", "queue", "proposals") == 1 })
	fault := "test"
	r.Engine.ChainError().Store(&fault)
	r.Start()
	if err := <-done; !isCause(err, document.CauseChainError) {
		t.Errorf("err = %v, want chain_error", err)
	}
}
