package registry

import (
	"sync"
	"testing"
)

// fillSlots takes all read slots, as reads of other old versions would, and returns a function that
// frees them.
func (r *rig) fillSlots() (free func()) {
	for range cap(r.e.readSlots) {
		r.e.readSlots <- struct{}{}
	}
	return func() {
		for range cap(r.e.readSlots) {
			<-r.e.readSlots
		}
	}
}

// All readers of HEAD are answered after a commit, even while no read slot is free.
func TestHeadNeedsNoReadSlot(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s, "a")
	r.commitDeltas(s, 3)
	r.e.Purge()
	defer r.fillSlots()()
	var readers sync.WaitGroup
	for range 60 {
		readers.Go(func() {
			if _, err := r.e.Version(r.ctx(), 4, true); err != nil {
				t.Errorf("HEAD: %v", err)
			}
			if _, err := r.e.ItemProof(r.ctx(), 4, "a"); err != nil {
				t.Errorf("a proof at HEAD: %v", err)
			}
		})
	}
	readers.Wait()
}

// Concurrent readers of one old version share one load, whatever they read of it.
func TestReadersOfOneVersionShareALoad(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s, "a")
	r.commitDeltas(s, 20)
	for range cap(r.e.readSlots) - 1 { // a place for one load
		r.e.readSlots <- struct{}{}
	}
	for range 5 {
		r.e.Purge()
		var readers sync.WaitGroup
		for i := range 60 {
			readers.Go(func() {
				var err error
				switch i % 3 {
				case 0:
					_, err = r.e.Version(r.ctx(), 7, true)
				case 1:
					_, err = r.e.ItemProof(r.ctx(), 7, "a")
				default:
					_, err = r.e.Diff(r.ctx(), 7, 21)
				}
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		readers.Wait()
	}
	select {
	case r.e.readSlots <- struct{}{}:
	default:
		t.Error("a load is still under way")
	}
	for range len(r.e.readSlots) {
		<-r.e.readSlots
	}
}
