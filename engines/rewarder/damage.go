package rewarder

import (
	"context"
	"errors"
	"iter"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/store"
)

// maxDamage bounds the damaged rows that are remembered. One row is enough to fail readiness; the
// log names the others.
const maxDamage = 64

// damage is the set of damaged rows that were met and do not read well yet.
type damage struct {
	mu   *flow.Mutex
	rows map[string]*store.RowError // by bucket and key; guarded by mu
}

func newDamage(c *flow.Catalog) *damage {
	return &damage{mu: flow.NewMutex(c, service, flow.RankRunRegistry), rows: map[string]*store.RowError{}}
}

// add reports whether the row is new.
func (d *damage) add(row *store.RowError) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := row.Bucket + "\x00" + string(row.Key)
	if _, known := d.rows[name]; known || len(d.rows) == maxDamage {
		return false
	}
	d.rows[name] = row
	return true
}

// all returns the damaged rows.
func (d *damage) all() []*store.RowError {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*store.RowError, 0, len(d.rows))
	for _, row := range d.rows {
		out = append(out, row)
	}
	return out
}

// remove removes a row from the set.
func (d *damage) remove(row *store.RowError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.rows, row.Bucket+"\x00"+string(row.Key))
}

// note records and logs the damaged row that err wraps, if any. It returns err.
func (e *Engine) note(err error) error {
	if row, ok := errors.AsType[*store.RowError](err); ok && e.damage.add(row) {
		e.log.Error("row_damaged", "bucket", row.Bucket, "reason", row.Error(), "next",
			"restore a snapshot; other runs and uploads continue")
	}
	return err
}

// view calls Store.View and records damaged rows.
func (e *Engine) view(ctx context.Context, fn func(store.Reader) error) error {
	return e.note(e.store.View(ctx, fn))
}

// commit calls store.Commit and records damaged rows.
func commit[R any](ctx context.Context, e *Engine, l store.Lane, c command[R], after ...func(R)) (R, error) {
	out, err := store.Commit(ctx, e.store, l, c, after...)
	return out, e.note(err)
}

// attempt calls read and returns the *store.RowError with which it panics, or nil. Other panics
// pass through.
func attempt(read func()) (bad *store.RowError) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		row, ok := v.(*store.RowError)
		if !ok {
			panic(v)
		}
		bad = row
	}()
	read()
	return nil
}

// readable iterates over the rows of t in a range of keys, in ascending order. Damaged rows are
// recorded and skipped.
func readable[K, V any](
	e *Engine, r store.Reader, t store.Table[K, V], decode func([]byte) (K, error), from, to []byte,
) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for raw := range r.Range(t.Bucket(), from, to) {
			var k K
			var v V
			k, err := decode(raw)
			bad := attempt(func() { v, _ = t.Get(r, k) })
			if err != nil {
				bad = &store.RowError{Bucket: t.Bucket().Name, Key: slices.Clone(raw), Cause: err}
			}
			if bad != nil {
				_ = e.note(bad)
				continue
			}
			if !yield(k, v) {
				return
			}
		}
	}
}

// mend removes the rows that read well again, for instance after a restore, and returns one that
// does not.
func (e *Engine) mend(ctx context.Context) (left error) {
	for _, row := range e.damage.all() {
		err := e.store.View(ctx, func(r store.Reader) error {
			at := slices.IndexFunc(Buckets(), func(b *store.Bucket) bool { return b.Name == row.Bucket })
			raw, missing := r.Get(Buckets()[at], row.Key), errors.Is(row, errMissing)
			if raw == nil && !missing {
				return nil // the row is gone, and no other row refers to it
			}
			_, err := store.CutSum(row.Key, raw)
			return err
		})
		if err == nil && !errors.Is(row, errRoot) {
			e.damage.remove(row)
		} else {
			left = row
		}
	}
	return left
}

// none is the type of an empty result.
type none = struct{}

// repairTodos deletes the damaged rows of rw/todo and rewrites pending work from the slots. If no
// row is damaged, it does so only the first time after a start, because a file of schema 1 has no
// rows of paused runs.
func (e *Engine) repairTodos(ctx context.Context) error {
	bad, err := e.damagedTodos(ctx)
	if err != nil || len(bad) == 0 && e.repaired.Load() {
		return err
	}
	var jobs []job
	if err := walk(ctx, e, slots, textKey, func(_ store.Reader, slot string, run Run) {
		if len(todoOf(&run)) > 0 {
			jobs = append(jobs, job{slot, run.RunKey})
		}
	}); err != nil {
		return err
	}
	for some := range slices.Chunk(jobs, dropChunks) {
		c := command[none]{"restore_todo", len(some) << 7, func(r store.Reader, w *store.Writes) (none, error) {
			for _, j := range some {
				run, _ := get(r, slots, j.slot)
				if run.RunKey != j.key {
					continue
				}
				for _, kind := range todoOf(&run) {
					todos.Put(w, j.todo(kind), []byte(j.slot))
				}
			}
			return none{}, nil
		}}
		if _, err := commit(ctx, e, store.Work, c); err != nil {
			return err
		}
	}
	e.repaired.Store(true)
	if len(bad) == 0 {
		return nil
	}
	c := command[none]{"drop_todo", len(bad) << 7, func(r store.Reader, w *store.Writes) (none, error) {
		for _, key := range bad {
			if _, err := store.CutSum(key, r.Get(todos.Bucket(), key)); err != nil { // skip rewritten rows
				w.Delete(todos.Bucket(), key)
			}
		}
		return none{}, nil
	}}
	_, err = commit(ctx, e, store.Work, c)
	if err == nil {
		e.log.Warn("todo_restored", "damaged", len(bad), "runs", len(jobs))
	}
	return err
}

// damagedTodos returns keys of damaged rows, at most dropChunks. The next sweep finds the others.
func (e *Engine) damagedTodos(ctx context.Context) (keys [][]byte, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		for key, row := range r.Range(todos.Bucket(), nil, nil) {
			if _, err := store.CutSum(key, row); err != nil && len(keys) < dropChunks {
				keys = append(keys, slices.Clone(key))
			}
		}
		return nil
	})
	return keys, err
}

// todoOf lists the pending work of a run.
func todoOf(run *Run) (kinds []uint32) {
	if run.State == Accepted {
		kinds = append(kinds, toCompute)
	}
	if slices.Contains(unpaid, run.State) {
		kinds = append(kinds, toPay)
	}
	if run.State == Quarantined && run.Quarantine.Kind == KindEgress {
		kinds = append(kinds, paused)
	}
	if run.Artifact == ArtifactPending {
		kinds = append(kinds, toWrite)
	}
	return kinds
}
