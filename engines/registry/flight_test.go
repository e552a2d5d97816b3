package registry_test

import (
	"sync"
	"testing"

	"ronbox/engines/registry/registrytest"
)

// fillSlots takes all read slots, as reads of other old versions would, and returns a function that
// frees them.
func fillSlots(r *registrytest.Rig) (free func()) {
	for range r.Engine.ReadSlots().Cap() {
		r.Engine.ReadSlots().TryAcquire()
	}
	return func() {
		for range r.Engine.ReadSlots().Cap() {
			r.Engine.ReadSlots().Release()
		}
	}
}

// All readers of HEAD are answered after a commit, even while no read slot is free.
func TestHeadNeedsNoReadSlot(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s, "a")
	commitDeltas(r, s, 3)
	r.Engine.Purge()
	defer fillSlots(r)()
	var readers sync.WaitGroup
	for range 60 {
		readers.Go(func() {
			if _, err := r.Engine.Version(r.Ctx(), 4, true); err != nil {
				t.Errorf("HEAD: %v", err)
			}
			if _, err := r.Engine.ItemProof(r.Ctx(), 4, "a"); err != nil {
				t.Errorf("a proof at HEAD: %v", err)
			}
		})
	}
	readers.Wait()
}

// Concurrent readers of one old version share one load, whatever they read of it.
func TestReadersOfOneVersionShareALoad(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s, "a")
	commitDeltas(r, s, 20)
	for range r.Engine.ReadSlots().Cap() - 1 { // a place for one load
		r.Engine.ReadSlots().TryAcquire()
	}
	for range 5 {
		r.Engine.Purge()
		var readers sync.WaitGroup
		for i := range 60 {
			readers.Go(func() {
				var err error
				switch i % 3 {
				case 0:
					_, err = r.Engine.Version(r.Ctx(), 7, true)
				case 1:
					_, err = r.Engine.ItemProof(r.Ctx(), 7, "a")
				default:
					_, err = r.Engine.Diff(r.Ctx(), 7, 21)
				}
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		readers.Wait()
	}
	if !r.Engine.ReadSlots().TryAcquire() {
		t.Error("a load is still under way")
	}
	for range r.Engine.ReadSlots().Used() {
		r.Engine.ReadSlots().Release()
	}
}
