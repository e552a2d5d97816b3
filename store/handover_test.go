package store

import (
	"testing"
	"testing/synctest"
)

// Calls to Follow that began before Lead end before a group waits for the log, whose reader may be
// the one that waits for them: one lies in the queue, one has no place in it yet.
func TestFollowEndsBeforeProposal(t *testing.T) {
	for range 10 { // the committer chooses at random among what is ready
		synctest.Test(t, func(t *testing.T) {
			log := &fakeLog{}
			r := member(t, clusterFile(t), log)
			var ends [2]error
			ended := make(chan struct{})
			for i := range ends {
				go func() {
					ends[i] = r.Follow(t.Context(), []Placed{{Place: Place{2, 1}}})
					ended <- struct{}{}
				}()
				synctest.Wait()
			}
			if err := r.Lead(); err != nil {
				t.Fatal(err)
			}
			log.hook = func([]byte) error {
				<-ended
				<-ended
				if r.Applied().Index != 1 {
					t.Errorf("%+v: the place moved after Lead", r.Applied())
				}
				return nil
			}
			var queued error
			if err := Hand(t.Context(), r.Store, Work, put{Key: "k"}, func(_ uint64, err error) { queued = err }); err != nil {
				t.Fatal(err)
			}
			r.start()
			synctest.Wait()
			if queued != nil || ends[0] != nil || ends[1] != nil || r.Info().Seq != 1 {
				t.Errorf("%v, %v, %+v", queued, ends, r.Info())
			}
			r.stop()
		})
	}
}
