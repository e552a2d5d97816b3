package rewarder_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"ronbox/engines/rewarder"
	"ronbox/store"
)

// One damaged row of a run, in its key or its value, in any bucket: that run is paid neither twice
// nor wrongly, other runs are accepted, paid and listed, no task dies, and the node reports the
// damage.
func TestDamageStaysWithItsRun(t *testing.T) {
	for _, b := range rewarder.Buckets() {
		if b == rewarder.StartedRows.Bucket() {
			continue // of tokens, not of runs
		}
		for _, part := range []string{"value", "key"} {
			t.Run(b.Name[len("rw/"):]+"/"+part, func(t *testing.T) {
				t.Parallel()
				damageStaysWithItsRun(t, b, part == "key")
			})
		}
	}
}

func damageStaysWithItsRun(t *testing.T, b *store.Bucket, key bool) {
	r := newRig(t, inMemory).only(rewarder.TaskScheduler, rewarder.TaskHealth)
	r.e.Look().Set(20 * time.Millisecond)
	r.e.Tick().Set(20 * time.Millisecond)
	p, q := policy(), policy()
	q.ID = "other"
	r.put(p)
	in := r.seal(inputOf("bad", 1000), many(600))
	paid := b == rewarder.IntentRows.Bucket() || b == rewarder.ParkedRows.Bucket() // which only a paid run has
	if b == rewarder.ParkedRows.Bucket() {
		r.freeze("acct_0000599")
	}
	r.mustSkip("bad", in, p)
	r.only(rewarder.TaskWorker)
	r.await("bad", rewarder.Sealed)
	if paid {
		r.only(rewarder.TaskEmitter)
		r.await("bad", rewarder.Settled)
	}
	keys, values := r.rawRows(b)
	bad := slices.Clone(values[0])
	r.rawWrite(func(w *store.Writes) {
		if !key {
			bad[len(bad)/2] ^= 4
			w.Put(b, keys[0], bad)
			return
		}
		moved := slices.Clone(keys[0])
		moved[len(moved)-1] ^= 1 // so that it stays in its place, as on a page that a disk has changed
		w.Delete(b, keys[0])
		w.Put(b, moved, bad)
	})
	r.put(q)
	var good rewarder.Input
	if err := retry(func() error { // an upload or input beside the damaged key is not believed to be absent
		in := inputOf("good", 500)
		up, err := r.e.OpenInput(r.ctx(), alice, in)
		if err == nil {
			_, err = r.e.PutPart(r.ctx(), alice, up.ID, 0, false, many(3))
		}
		if err == nil {
			good, err = r.e.SealInput(r.ctx(), alice, up.ID)
		}
		return err
	}); err != nil {
		t.Fatalf("another upload: %v", err)
	}
	if _, err := r.compute("zgood", good, q); err == nil {
		t.Fatal("the input of another epoch is taken")
	}
	r.mustCompute("good", good, q)
	if !paid {
		r.only(rewarder.TaskEmitter)
	}
	r.only(rewarder.TaskWriter)
	r.await("good", rewarder.Settled)
	if page, err := r.e.Epochs(r.ctx(), rewarder.DefaultTenant, "", 9); err != nil ||
		!slices.ContainsFunc(page.Epochs, func(run rewarder.Run) bool { return run.Epoch == "good" }) {
		t.Errorf("epochs: %+v, %v", page, err)
	}
	if page, err := r.e.Uploads(r.ctx(), admin, [32]byte{}, 9); err != nil || len(page.Uploads) != 2 {
		t.Errorf("uploads: %+v, %v", page, err)
	}
	if err := r.e.Sweep(r.ctx()); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if b == rewarder.TodoRows.Bucket() { // they are computed again
		r.await("bad", rewarder.Settled)
		if err := r.verify(); err != nil {
			t.Errorf("after the sweep: %v", err)
		}
	}
	for _, call := range []func() error{
		func() error { _, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "bad"); return err },
		func() error { _, err := r.e.Allocations(r.ctx(), rewarder.DefaultTenant, "bad", "", 999); return err },
		func() error { _, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, "bad", 0, 9); return err },
		func() error { _, err := r.e.Emit(r.ctx(), alice, "bad", false); return err },
		func() error { _, err := r.compute("bad", in, p); return err },
		func() error { _, err := r.e.Policy(r.ctx(), rewarder.DefaultTenant, p.ID); return err },
		func() error { _, err := r.e.Input(r.ctx(), rewarder.DefaultTenant, in.InputsCID); return err },
	} {
		if err := call(); err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("a call about the damaged run: %v", err)
		}
	}
	// nothing reads them once the run is sealed, but the writer, which is off in memory
	if b != rewarder.ChunkRows.Bucket() && b != rewarder.UploadRows.Bucket() && b != rewarder.TodoRows.Bucket() {
		r.eventually("store_ok fails", func() bool { return r.count("readyz_degraded{cause=store_ok}") == 1 })
	}
	if got := r.balance("acct_0000599"); got != "0" && got != r.allocation("bad", "acct_0000599") {
		t.Errorf("an actor has %s", got)
	}
	for _, task := range []string{rewarder.TaskScheduler, rewarder.TaskWorker, rewarder.TaskEmitter, rewarder.TaskWriter,
		rewarder.TaskHealth} {
		if n := r.count("service_restarts_total{task=" + task + "}"); n != 0 {
			t.Errorf("%s died %v times", task, n)
		}
	}
	if left := r.balance(pool); left != "4999500" && left != "4998500" && b != rewarder.ParkedRows.Bucket() {
		t.Errorf("%s is left", left)
	}
}

func (r *rig) allocation(epoch, actor string) string {
	all, err := r.e.Allocations(r.ctx(), rewarder.DefaultTenant, epoch, "", rewarder.MaxPage)
	if err != nil {
		return "3"
	}
	for _, a := range all.Allocations {
		if a.Actor == actor {
			return a.Amount.String()
		}
	}
	return ""
}

func retry(do func() error) (err error) {
	for range 3 {
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}
