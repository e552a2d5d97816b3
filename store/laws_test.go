package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// step is a command of a drawn history and what became of it.
type step struct {
	lane Lane
	cmd  put
	err  error
}

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{lane: Work, cmd: put{
			Key:    rapid.StringMatching(`[a-e]{1,2}`).Draw(t, "key"),
			Value:  rapid.StringN(0, 8, 16).Draw(t, "value"),
			Refuse: rapid.IntRange(0, 3).Draw(t, "refuse") == 0,
			Panic:  rapid.IntRange(0, 3).Draw(t, "panic") == 0,
		}}
	}), 1, 24).Draw(t, "steps")
}

// runGroups applies the steps in the given grouping, one transaction each, without the lanes: order
// and grouping are the test's.
func runGroups(t *rapid.T, r *rig, groups [][]step) {
	var g group
	g.open(r.Store)
	for _, steps := range groups {
		var wg sync.WaitGroup
		batch := make([]job, len(steps))
		for i := range steps {
			q := newRequest(r.t.Context(), 0, steps[i].lane, Command[uint64](steps[i].cmd), nil)
			batch[i] = q
			wg.Go(func() { _, steps[i].err = q.reply.Wait(r.t.Context()) })
		}
		if err := g.run(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
}

// cut splits steps into groups of drawn sizes.
func cutGroups(t *rapid.T, steps []step, label string) [][]step {
	var out [][]step
	for len(steps) > 0 {
		n := rapid.IntRange(1, len(steps)).Draw(t, label)
		out = append(out, steps[:n])
		steps = steps[n:]
	}
	return out
}

// A group with failing or panicking commands equals the group without them. Any grouping of the
// same commands results in the same state hash, stamps and answers.
func TestGroupingDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt)
		var good []step
		model := map[string]string{}
		for _, s := range steps {
			if !s.cmd.Refuse && !s.cmd.Panic {
				good = append(good, s)
				model[s.cmd.Key] = s.cmd.Value
			}
		}
		first := idle(t, newFile(t), testConfig())
		runGroups(rt, first, cutGroups(rt, steps, "first"))
		second := idle(t, newFile(t), testConfig())
		runGroups(rt, second, cutGroups(rt, good, "second"))
		for _, s := range steps {
			if want := outcomeOf(s.cmd); !errors.Is(s.err, want) {
				rt.Errorf("%+v: err = %v, want %v", s.cmd, s.err, want)
			}
		}
		if first.hash() != second.hash() || first.Info().Seq != second.Info().Seq ||
			first.Info().Seq != uint64(len(good)) {
			rt.Errorf("%d of %d good: seq %d and %d, hash %s and %s", len(good), len(steps), first.Info().Seq,
				second.Info().Seq, first.hash(), second.hash())
		}
		if got := first.all(); !maps.Equal(got, model) {
			rt.Errorf("rows %v, want %v", got, model)
		}
		first.stop()
		second.stop()
	})
}

func outcomeOf(c put) error {
	switch {
	case c.Panic:
		return ErrInternal
	case c.Refuse:
		return errRefused
	}
	return nil
}

func (r *rig) all() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	if err := r.View(r.t.Context(), func(rd Reader) error {
		for k, v := range rows.All(rd) {
			out[k] = string(v)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// A restored snapshot has the state at the time of the snapshot, whatever is written during and
// after it.
func TestRestoreOfSnapshotIsIdentity(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := idle(t, newFile(t), testConfig())
		runGroups(rt, r, cutGroups(rt, drawSteps(rt), "before"))
		want, state := r.hash(), r.all()
		m, err := r.Snapshot(t.Context(), t.TempDir(), SnapshotOptions{}, nil)
		if err != nil {
			rt.Fatal(err)
		}
		runGroups(rt, r, cutGroups(rt, drawSteps(rt), "after"))
		node := r.Info()
		r.stop()
		info, err := Restore(t.Context(), m.Path, r.Path(),
			RestoreOptions{Now: day, By: Event{Event: "db.restore", Decision: "allow"}}, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if info.NodeID != node.NodeID || info.Incarnation == node.Incarnation || info.AuthEpoch != node.AuthEpoch+1 ||
			info.Seq != m.Seq {
			rt.Errorf("restored %+v from %+v", info, node)
		}
		back := idle(t, r.Path(), testConfig())
		if back.hash() != want || m.StateHash.String() == "" || !maps.Equal(back.all(), state) {
			rt.Errorf("state %v after the restore, %v before", back.all(), state)
		}
		back.stop()
	})
}

// Stamps grow strictly whatever the clock does.
func TestStampsGrow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := idle(t, newFile(t), testConfig())
		var last Stamp
		for i := range rapid.IntRange(1, 10).Draw(rt, "groups") {
			clock := rapid.Int64Range(-1e9, 1e9).Draw(rt, "clock")
			r.now = func() time.Time { return day.Add(time.Duration(clock)) }
			var g group
			g.open(r.Store)
			q := newRequest(
				t.Context(),
				0,
				Work,
				Command[Stamp](do[Stamp]{"test.stamp/1", func(_ Reader, at Stamp, w *Writes) (Stamp, error) {
					rows.Put(w, fmt.Sprint(i), nil)
					return at, nil
				}}),
				nil,
			)
			if err := g.run(context.Background(), []job{q}); err != nil {
				rt.Fatal(err)
			}
			at, err := q.reply.Wait(t.Context())
			if err != nil || at.Seq != last.Seq+1 || at.At <= last.At {
				rt.Errorf("stamp %+v after %+v, %v", at, last, err)
			}
			last = at
		}
		r.stop()
	})
}
