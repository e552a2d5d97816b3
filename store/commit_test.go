package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCommitIsReadBack(t *testing.T) {
	path := newFile(t)
	r := open(t, path)
	if seq := mustCommit(r, put{Key: "a", Value: "1"}); seq != 1 {
		t.Errorf("first seq = %d", seq)
	}
	if n := mustCommit(r, add{"n"}) + mustCommit(r, add{"n"}); n != 3 {
		t.Errorf("two counts sum to %d, want 1+2", n)
	}
	if r.get("a") != "1" || r.get("absent") != "" {
		t.Errorf("a = %q, absent = %q", r.get("a"), r.get("absent"))
	}
	r.stop()
	r = open(t, path)
	if i := r.Info(); r.get("a") != "1" || i.Seq != 3 || !i.Clean {
		t.Errorf("after reopening a = %q, %+v", r.get("a"), i)
	}
	r.stop()
}

func TestRefusals(t *testing.T) {
	r := open(t, newFile(t))
	defer r.stop()
	long := strings.Repeat("k", MaxKey+1)
	for _, tt := range []struct {
		name string
		fn   func(Reader, Stamp, *Writes) (int, error)
		want error
	}{
		{"an error", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			rows.Put(w, "x", nil)
			return 0, errRefused
		}, errRefused},
		{"a panic", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			rows.Put(w, "x", nil)
			panic("a bug")
		}, ErrInternal},
		{"a nil dereference", func(Reader, Stamp, *Writes) (int, error) {
			var p *put
			return len(p.Key), nil
		}, ErrInternal},
		{"a bucket of another service", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			w.Put(otherRows, []byte("x"), nil)
			return 0, nil
		}, ErrInternal},
		{"reading another service", func(r Reader, _ Stamp, _ *Writes) (int, error) {
			return len(r.Get(otherRows, []byte("x"))), nil
		}, ErrInternal},
		{"a write after a read of another service", func(r Reader, _ Stamp, w *Writes) (int, error) {
			for range Foreign(r, "other").Range(otherRows, nil, nil) {
				continue
			}
			w.Put(otherRows, []byte("x"), nil)
			return 0, nil
		}, ErrInternal},
		{"the store's own bucket", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			w.Put(localBucket, keyClean, nil)
			return 0, nil
		}, ErrInternal},
		{"an undeclared bucket", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			w.Put(&Bucket{Name: "nobody/rows"}, []byte("x"), nil)
			return 0, nil
		}, ErrInternal},
		{"a long key", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			rows.Put(w, long, nil)
			return 0, nil
		}, ErrInternal},
		{"an empty key", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			rows.Delete(w, "")
			return 0, nil
		}, ErrInternal},
		{"a large value", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			rows.Put(w, "x", make([]byte, MaxValue+1))
			return 0, nil
		}, ErrInternal},
		{"a panic inside a range", func(r Reader, _ Stamp, w *Writes) (int, error) {
			for range rows.All(r) {
				panic("a bug")
			}
			return 0, nil
		}, ErrInternal},
	} {
		mustCommit(r, put{Key: "seen", Value: tt.name})
		before := *r.Info()
		_, err := Commit(t.Context(), r.Store, Work, do[int]{"test.do/1", tt.fn})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: err = %v, want %v", tt.name, err, tt.want)
		}
		if after := *r.Info(); after.Seq != before.Seq || r.get("x") != "" {
			t.Errorf("%s: left a trace: seq %d, x = %q", tt.name, after.Seq, r.get("x"))
		}
	}
	if err := r.Err(); err != nil {
		t.Errorf("refusals poisoned the store: %v", err)
	}
}

// A command reads the rows of another service as the commands before it have left them.
func TestForeign(t *testing.T) {
	r := open(t, newFile(t))
	defer r.stop()
	for _, value := range []string{"1", "2"} {
		mustCommit(r, do[int]{"other.do/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			w.Put(otherRows, []byte("k"), []byte(value))
			return 0, nil
		}})
		mustCommit(r, do[int]{"test.do/1", func(r Reader, _ Stamp, w *Writes) (int, error) {
			other := Foreign(r, "other")
			if got := string(other.Get(otherRows, []byte("k"))); got != value {
				t.Errorf("get: %q, want %q", got, value)
			}
			for _, v := range other.RangeBack(otherRows, nil, nil) {
				rows.Put(w, "seen", slices.Clone(v)) // its own rows, while the range is open
			}
			return 0, nil
		}})
		if r.get("seen") != value {
			t.Errorf("range: %q, want %q", r.get("seen"), value)
		}
	}
}

// A command kind without a service owns no bucket.
func TestKindWithoutService(t *testing.T) {
	r := open(t, newFile(t))
	defer r.stop()
	for _, kind := range []string{"", ".put/1"} {
		for _, b := range []*Bucket{testRows, metaBucket} {
			_, err := Commit(t.Context(), r.Store, Work, do[int]{kind, func(_ Reader, _ Stamp, w *Writes) (int, error) {
				w.Put(b, []byte("x"), nil)
				return 0, nil
			}})
			if !errors.Is(err, ErrInternal) {
				t.Errorf("kind %q into %s: %v", kind, b.Name, err)
			}
		}
	}
}

// A row that does not decode refuses the command, or ends the view, that reads it. The store keeps
// working.
func TestRowThatDoesNotDecode(t *testing.T) {
	r := open(t, newFile(t))
	defer r.stop()
	typed := NewTable(testRows, String[string](), CBOR[Event]())
	mustCommit(r, put{Key: "bad", Value: "\x07garbage"})
	_, err := Commit(t.Context(), r.Store, Work, do[int]{"test.do/1", func(rd Reader, _ Stamp, _ *Writes) (int, error) {
		typed.Get(rd, "bad")
		return 0, nil
	}})
	var row *RowError
	if !errors.As(err, &row) || !errors.Is(err, ErrCorrupt) || string(row.Key) != "bad" {
		t.Errorf("command: %v", err)
	}
	err = r.View(t.Context(), func(rd Reader) error {
		typed.Get(rd, "bad")
		return nil
	})
	if !errors.Is(err, ErrCorrupt) || r.Err() != nil {
		t.Errorf("view: %v, store: %v", err, r.Err())
	}
}

func TestDroppedWhileQueued(t *testing.T) {
	r := idle(t, newFile(t), testConfig()) // the committer does not run yet
	late, cancelLate := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelLate()
	gone, leave := context.WithCancelCause(t.Context())
	errGone := errors.New("client gone")
	time.AfterFunc(20*time.Millisecond, func() { leave(errGone) })
	var wg sync.WaitGroup
	for _, tt := range []struct {
		ctx  context.Context
		want error
	}{{late, ErrTimeout}, {gone, errGone}} {
		wg.Go(func() {
			if _, err := Commit(tt.ctx, r.Store, Work, put{Key: "x", Value: "1"}); !errors.Is(err, tt.want) ||
				errors.Is(err, ErrUnknown) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
	wg.Wait()
	r.start()
	if seq := mustCommit(r, put{Key: "y"}); seq != 1 || r.get("x") != "" {
		t.Errorf("dropped commands left seq %d and x = %q", seq, r.get("x"))
	}
	r.stop()
}

// A deadline returns ErrTimeout, whatever the cause of its context.
func TestTimeoutWithACause(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	defer r.stop()
	errSlow := errors.New("the route's patience")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errSlow)
	defer cancel()
	if _, err := Commit(ctx, r.Store, Work, put{Key: "k"}); !errors.Is(err, ErrTimeout) || !errors.Is(err, errSlow) {
		t.Errorf("err = %v", err)
	}
}

func TestFullLane(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	var wg sync.WaitGroup
	for i := range r.lanes[Bulk].Cap() {
		wg.Go(func() {
			if _, err := Commit(t.Context(), r.Store, Bulk, put{Key: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	r.awaitQueued(Bulk, r.lanes[Bulk].Cap())
	if _, err := TryCommit(t.Context(), r.Store, Bulk, put{Key: "one more"}); !errors.Is(err, ErrBusy) {
		t.Errorf("TryCommit into a full lane: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Commit(ctx, r.Store, Bulk, put{Key: "one more"}); !errors.Is(err, ErrTimeout) {
		t.Errorf("Commit into a full lane: %v", err)
	}
	r.start()
	wg.Wait()
	if r.get("one more") != "" {
		t.Error("a refused command was written")
	}
	r.stop()
}

// If the context of a caller ends while the committer has its command, the caller gets ErrUnknown.
// The command may still be committed.
func TestUnknownOutcome(t *testing.T) {
	r := open(t, newFile(t))
	ctx, leave := context.WithCancel(t.Context())
	busy := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := Commit(ctx, r.Store, Work, put{Key: "k", Value: "v"}, func(uint64) {
			leave()
			<-busy
		})
		if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrPoisoned) {
			t.Errorf("err = %v", err)
		}
	})
	wg.Wait()
	close(busy)
	if mustCommit(r, put{Key: "next"}) != 2 || r.get("k") != "v" {
		t.Error("the command of unknown outcome left no trace")
	}
	r.stop()
}

// A group has control commands first, then work, then one bulk command, each lane in its order. The
// next bulk command waits for the next group.
func TestOrderOfAGroup(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	var got []string
	var wg sync.WaitGroup
	for _, l := range []Lane{Bulk, Bulk, Work, Work, Control} {
		n := r.lanes[l].Len()
		wg.Go(func() {
			name := fmt.Sprintf("%s %d", l, n)
			if _, err := Commit(t.Context(), r.Store, l, put{Key: name},
				func(uint64) { got = append(got, name) }); err != nil {
				t.Error(err)
			}
		})
		r.awaitQueued(l, n+1)
	}
	before := r.Info().Seq
	r.start()
	wg.Wait()
	want := []string{"control 0", "work 0", "work 1", "bulk 0", "bulk 1"}
	if !slices.Equal(got, want) || r.Info().Seq != before+5 {
		t.Errorf("order %v, want %v", got, want)
	}
	r.stop()
}

// A group has at most one bulk command, even if several have waited too long.
func TestOneBulkCommandAGroup(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	sizes := &groupSizes{}
	r.groups = append(r.groups, sizes)
	r.born = r.born.Add(-time.Hour)
	var wg sync.WaitGroup
	for n := range 3 {
		q := newRequest(t.Context(), 0, Bulk, Command[uint64](put{Key: "k"}),
			[]func(uint64){func(uint64) { sizes.n++ }})
		if err := r.lanes[Bulk].TrySend(q); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, err := q.reply.Wait(t.Context()); err != nil {
				t.Errorf("bulk %d: %v", n, err)
			}
		})
	}
	r.start()
	wg.Wait()
	r.stop()
	for _, n := range sizes.before {
		if n > 1 {
			t.Errorf("bulk commands before each group: %v", sizes.before)
		}
	}
}

// A group is closed at its limits. Further commands go into the next group.
func TestGroupLimits(t *testing.T) {
	for _, limit := range []func(*Config){
		func(c *Config) { c.GroupMax = 3 },
		func(c *Config) { c.GroupBytes = 3 * commandSz },
	} {
		cfg := testConfig()
		limit(&cfg)
		r := idle(t, newFile(t), cfg)
		r.db.NoSync = true // a commit of two seconds is followed by a probe, which is a group, too
		sizes := &groupSizes{}
		r.groups = append(r.groups, sizes)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				mustCommit(r, put{Key: fmt.Sprint(i)}, func(uint64) { sizes.n++ })
			})
		}
		r.awaitQueued(Work, 10)
		r.start()
		wg.Wait()
		r.stop()
		if want := []int{0, 3, 3, 3}; !slices.Equal(sizes.before, want) {
			t.Errorf("commands before each group %v, want steps %v", sizes.before, want)
		}
	}
}

// groupSizes records the number of commands between two groups.
type groupSizes struct {
	n      int
	before []int
}

func (g *groupSizes) Begin() {
	g.before = append(g.before, g.n)
	g.n = 0
}
func (g *groupSizes) Committed() {}
func (g *groupSizes) Aborted()   {}

// For any queued commands in any order: a group stays within its limit, control goes before work,
// and each command is taken exactly once.
func TestGroupMaxIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig()
		cfg.GroupMax = rapid.IntRange(1, 4).Draw(t, "group_max")
		s := New(cfg, Options{})
		c := &committer{s: s}
		for l, q := range s.lanes {
			c.lanes[l] = q.C()
		}
		waiting := 0
		for _, l := range rapid.SliceOfN(rapid.IntRange(0, lanes-1), 1, 12).Draw(t, "lanes") {
			old := int64(0)
			if rapid.Bool().Draw(t, "old") {
				old = 2 * int64(bulkPatience)
			}
			if err := s.lanes[l].TrySend(
				newRequest(context.Background(), s.mono()-old, Lane(l), put{}, nil),
			); err != nil {
				t.Fatal(err)
			}
			waiting++
		}
		seen := map[job]bool{}
		for waiting > 0 {
			if more, err := c.gather(context.Background()); err != nil || !more {
				t.Fatal(more, err)
			}
			if len(c.batch) == 0 || len(c.batch) > cfg.GroupMax {
				t.Fatalf("%d commands in a group of %d", len(c.batch), cfg.GroupMax)
			}
			work := false
			for _, j := range c.batch {
				if l := j.header().lane; work && l == Control {
					t.Fatal("work before control")
				} else if l == Work {
					work = true
				}
				if seen[j] {
					t.Fatal("taken twice")
				}
				seen[j] = true
				waiting--
			}
		}
	})
}
