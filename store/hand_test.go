package store

import (
	"context"
	"errors"
	"testing"
)

// told notes what became of commands that were handed over.
type told struct {
	seqs chan uint64
	errs chan error
}

func newTold() told { return told{make(chan uint64, 8), make(chan error, 8)} }

func (a told) ended(seq uint64, err error) {
	a.seqs <- seq
	a.errs <- err
}

// What is handed over is told how it ended, once, after its group is published; the context of who
// handed it over counts for the place alone.
func TestHand(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	a := newTold()
	ctx, leave := context.WithCancel(t.Context())
	for _, c := range []put{{Key: "k", Value: "v"}, {Key: "no", Refuse: true}, {Key: "bug", Panic: true},
		{Key: "k", Value: "w"}} {
		err := Hand(ctx, r.Store, Work, c, func(seq uint64, err error) {
			if want := r.Info().Seq; want != 2 {
				t.Errorf("told before the group was published, at %d", want)
			}
			a.ended(seq, err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	leave()
	if err := Hand(ctx, r.Store, Work, put{}, a.ended); !errors.Is(err, context.Canceled) {
		t.Errorf("no place any more: %v", err)
	}
	r.start()
	for i, want := range []struct {
		seq uint64
		err error
	}{{1, nil}, {0, errRefused}, {0, ErrInternal}, {2, nil}} {
		if seq, err := <-a.seqs, <-a.errs; seq != want.seq || !errors.Is(err, want.err) {
			t.Errorf("%d: %d, %v", i, seq, err)
		}
	}
	if r.get("k") != "w" || r.get("no") != "" {
		t.Errorf("k = %q, no = %q", r.get("k"), r.get("no"))
	}
	r.stop()
	if err := Hand(t.Context(), r.Store, Work, put{}, a.ended); !errors.Is(err, ErrClosed) {
		t.Errorf("after the stop: %v", err)
	}
	if len(a.errs) > 0 {
		t.Errorf("told once more: %v", <-a.errs)
	}
}

// Whatever ends the store tells them too, and once.
func TestHandEnds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		end     func(r *rig)
		want    error
		unknown bool
	}{
		{"closed", func(r *rig) { r.stop() }, ErrClosed, false},
		{"a failed sync", func(r *rig) {
			breakSync(t, r)
			r.start().abandon()
		}, ErrPoisoned, true},
		{"a panic before it", func(r *rig) {
			r.groups = []Group{bomb{"begin"}}
			r.start().abandon()
		}, ErrDied, false},
	} {
		r := idle(t, newFile(t), testConfig())
		a := newTold()
		if err := Hand(t.Context(), r.Store, Work, put{Key: "k"}, a.ended); err != nil {
			t.Fatal(err)
		}
		tt.end(r)
		if err := <-a.errs; !errors.Is(err, tt.want) || errors.Is(err, ErrUnknown) != tt.unknown || len(a.errs) > 0 {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// A panic in ended is a bug that ends the store; it is not told again.
func TestHandPanics(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	calls := 0
	err := Hand(t.Context(), r.Store, Work, put{Key: "k"}, func(uint64, error) {
		calls++
		panic("a bug")
	})
	if err != nil {
		t.Fatal(err)
	}
	r.start().abandon()
	if !errors.Is(r.end, ErrDied) || calls != 1 {
		t.Errorf("told %d times, %v", calls, r.end)
	}
}
