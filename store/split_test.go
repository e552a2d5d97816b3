package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// entryful fills an entry of its own.
func entryful(n int) do[int] {
	return do[int]{"test.entryful/1", func(r Reader, _ Stamp, w *Writes) (int, error) {
		for i := range 11 {
			rows.Put(w, fmt.Sprintf("%d/%d", n, i), make([]byte, 100<<10))
		}
		g := GroupOf[*tally](r)
		w.Then(func() { g.tentative += n })
		return n, nil
	}}
}

// Of a batch that needs several entries, each command is answered once: those before the entry that
// failed have succeeded, those behind it have written nothing.
func TestSplitGroups(t *testing.T) {
	lost := errors.New("leadership lost")
	for _, tt := range []struct {
		name  string
		hook  func(r *rig) error // of the second proposal
		taken []error            // what the second command gets
		rest  error              // what the later ones get
		calls []string           // after those of the first entry
	}{
		{"in no log", func(*rig) error { return &NothingError{lost} }, []error{ErrNotLeader}, ErrNotLeader,
			[]string{"begin", "aborted"}},
		{"perhaps in a log", func(*rig) error { return lost }, []error{ErrUnknown}, ErrNotLeader,
			[]string{"begin", "aborted"}},
		{"the committer is stopped", func(r *rig) error {
			r.cancel()
			return context.Canceled
		}, []error{ErrUnknown}, ErrNotLeader, []string{"begin", "aborted"}},
		{"poisoned", func(r *rig) error {
			r.poison(errors.New("a view has met a fault"), false)
			return nil
		}, []error{ErrPoisoned, ErrUnknown}, ErrPoisoned, []string{"begin"}},
		{"a panic", func(*rig) error { panic("a bug") }, []error{ErrPoisoned, ErrUnknown}, ErrPoisoned, []string{"begin"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &tally{}
			log := &fakeLog{}
			r := member(t, clusterFile(t), log, g)
			if err := r.Lead(); err != nil {
				t.Fatal(err)
			}
			answers := make([][]error, 4)
			for i := range answers {
				err := Hand(t.Context(), r.Store, Work, entryful(i+1), func(_ int, err error) {
					answers[i] = append(answers[i], err)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			proposals := 0
			log.hook = func([]byte) error {
				if proposals++; proposals == 2 {
					return tt.hook(r)
				}
				return nil
			}
			r.start()
			<-r.done
			r.checkSplit(answers, tt.taken, tt.rest)
			if want := append([]string{"begin", "committed"}, tt.calls...); !slices.Equal(g.calls, want) || g.total != 1 {
				t.Errorf("calls %v, total %d, want %v", g.calls, g.total, want)
			}
			log.taken(t)
			if r.Err() != nil {
				r.abandon()
				return
			}
			<-r.Deposed()
			if r.Info().Seq != 1 {
				t.Errorf("%+v", r.Info())
			}
			r.stop()
		})
	}
}

// checkSplit checks the answers to four commands of which the second has failed.
func (r *rig) checkSplit(answers [][]error, taken []error, rest error) {
	r.t.Helper()
	for i, got := range answers {
		if len(got) != 1 {
			r.t.Fatalf("command %d was answered with %v", i, got)
		}
		switch err := got[0]; i {
		case 0:
			if err != nil {
				r.t.Errorf("the first command: %v", err)
			}
		case 1:
			for _, want := range taken {
				if !errors.Is(err, want) {
					r.t.Errorf("the second command: %v, want %v", err, want)
				}
			}
		default:
			if !errors.Is(err, rest) || errors.Is(err, ErrUnknown) {
				r.t.Errorf("command %d: %v, want %v", i, err, rest)
			}
		}
	}
}
