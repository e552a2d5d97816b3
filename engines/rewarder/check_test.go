package rewarder_test

import (
	"errors"
	"slices"
	"testing"

	"ronbox/engines"
	"ronbox/engines/rewarder"
	"ronbox/store"
)

// rawRows reads the raw rows of a bucket.
func (r *rig) rawRows(b *store.Bucket) (keys, values [][]byte) {
	r.t.Helper()
	if err := r.store.View(r.ctx(), func(rd store.Reader) error {
		for k, v := range rd.Range(b, nil, nil) {
			keys, values = append(keys, slices.Clone(k)), append(values, slices.Clone(v))
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return keys, values
}

// rawWrite changes rows without the tables, as a disk fault does.
func (r *rig) rawWrite(do func(w *store.Writes)) {
	r.t.Helper()
	if _, err := store.Commit(
		r.ctx(),
		r.store,
		store.Work,
		rewarder.Command("damage", 1, func(_ store.Reader, w *store.Writes) (none struct{}, err error) {
			do(w)
			return none, nil
		}),
	); err != nil {
		r.t.Fatal(err)
	}
}

// verify runs the checks of the file.
func (r *rig) verify() error {
	r.t.Helper()
	return r.store.View(r.ctx(), func(rd store.Reader) error { return rewarder.Checks()[0].Run(rd) })
}

// fullFile returns a rig with rows in all buckets: a run that is paid except for one payee, and an
// open and a sealed upload.
func fullFile(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, inMemory).start()
	p := policy()
	r.put(p)
	r.freeze("acct_0000599")
	var g engines.Grant
	g.NarrowRuns(1)
	bounded := alice
	bounded.By.Grant = &g
	in := r.seal(inputOf("counted", 10), many(3))
	want := rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()}
	if _, err := r.e.Compute(r.ctx(), bounded, "counted", want); err != nil {
		t.Fatal(err)
	}
	r.await("counted", rewarder.Settled)
	r.mustSkip("paid", r.seal(inputOf("paid", 1000), many(600)), p)
	r.await("paid", rewarder.Settled)
	r.seal(inputOf("sealed", 10), many(3))
	up, err := r.e.OpenInput(r.ctx(), alice, inputOf("open", 10))
	if err == nil {
		_, err = r.e.PutPart(r.ctx(), alice, up.ID, 0, false, many(3))
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A changed bit in the key or the value of any row of any bucket is found, and its bucket is named.
func TestChecksFindEveryBit(t *testing.T) {
	r := fullFile(t)
	r.rawWrite(func(w *store.Writes) { // so that each bucket has a row
		run, _ := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "paid")
		rewarder.TodoRows.Put(w, rewarder.PieceOf(run.RunKey, rewarder.ToWrite),
			[]byte(rewarder.Scoped(rewarder.DefaultTenant, "paid")))
	})
	if err := r.verify(); err != nil {
		t.Fatalf("a good file: %v", err)
	}
	for _, b := range rewarder.Buckets() {
		keys, values := r.rawRows(b)
		if len(keys) == 0 {
			t.Errorf("%s has no rows", b.Name)
		}
		for i, key := range keys {
			value := values[i]
			for _, bit := range []int{0, len(value) * 4, len(value)*8 - 1} {
				bad := slices.Clone(value)
				bad[bit/8] ^= 1 << (bit % 8)
				r.rawWrite(func(w *store.Writes) { w.Put(b, key, bad) })
				r.found(b, "value", bit)
			}
			for _, bit := range []int{0, len(key) * 4, len(key)*8 - 1} {
				bad := slices.Clone(key)
				bad[bit/8] ^= 1 << (bit % 8)
				r.rawWrite(func(w *store.Writes) { w.Delete(b, key); w.Put(b, bad, value) })
				r.found(b, "key", bit)
				r.rawWrite(func(w *store.Writes) { w.Delete(b, bad) })
			}
			r.rawWrite(func(w *store.Writes) { w.Put(b, key, value) })
		}
	}
	if err := r.verify(); err != nil {
		t.Fatalf("put right: %v", err)
	}
}

func (r *rig) found(b *store.Bucket, part string, bit int) {
	r.t.Helper()
	if err := r.verify(); !errors.Is(err, store.ErrCorrupt) {
		r.t.Errorf("%s, bit %d of a %s: %v", b.Name, bit, part, err)
	}
}

// A missing row is found by the rows that refer to it.
func TestChecksFindMissingRows(t *testing.T) {
	r := fullFile(t)
	for _, b := range rewarder.Buckets() {
		keys, values := r.rawRows(b)
		for i, key := range keys {
			r.rawWrite(func(w *store.Writes) { w.Delete(b, key) })
			// an input that no run uses may be missing, and a count
			if err := r.verify(); err == nil && b != rewarder.InputRows.Bucket() && b != rewarder.StartedRows.Bucket() {
				t.Errorf("%s: row %d of %d is missing, and nothing is found", b.Name, i, len(keys))
			}
			r.rawWrite(func(w *store.Writes) { w.Put(b, key, values[i]) })
		}
	}
}
