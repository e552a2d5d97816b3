package rewarder

import (
	"context"
	"errors"
	"iter"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/store"
)

// maxDamage is how many damaged rows are remembered: one is enough to be not ready, the others are named in the log.
const maxDamage = 64

// damage remembers the damaged rows that were met, until they read well again.
type damage struct {
	mu   *flow.Mutex
	rows map[string]*store.RowError // by bucket and key; guarded by mu
}

func newDamage(c *flow.Catalog) *damage {
	return &damage{mu: flow.NewMutex(c, service, flow.RankRunRegistry), rows: map[string]*store.RowError{}}
}

// add reports whether the row is news.
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

// remove forgets a row.
func (d *damage) remove(row *store.RowError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.rows, row.Bucket+"\x00"+string(row.Key))
}

// note remembers and logs the damaged row that err is about, if it is about one. It returns err.
func (e *Engine) note(err error) error {
	if row, ok := errors.AsType[*store.RowError](err); ok && e.damage.add(row) {
		e.log.Error("row_damaged", "bucket", row.Bucket, "reason", row.Error(), "next", "restore a snapshot; other runs and uploads go on")
	}
	return err
}

// view is View of the store. Damaged rows are noted.
func (e *Engine) view(ctx context.Context, fn func(store.Reader) error) error {
	return e.note(e.store.View(ctx, fn))
}

// commit is store.Commit. Damaged rows are noted.
func commit[R any](ctx context.Context, e *Engine, l store.Lane, c command[R], after ...func(R)) (R, error) {
	out, err := store.Commit(ctx, e.store, l, c, after...)
	return out, e.note(err)
}

// attempt calls read and returns the RowError that it ends in, nil if it ends well. A fault of the file passes.
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

// readable walks the rows of t from one key on, ascending. A row that is damaged is noted and left out.
func readable[K, V any](e *Engine, r store.Reader, t store.Table[K, V], decode func([]byte) (K, error), from, to []byte) iter.Seq2[K, V] {
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

// mend forgets the damaged rows that read well again, such as after a restore, and returns one that does not.
func (e *Engine) mend(ctx context.Context) (left error) {
	for _, row := range e.damage.all() {
		err := e.store.View(ctx, func(r store.Reader) error {
			at := slices.IndexFunc(Buckets(), func(b *store.Bucket) bool { return b.Name == row.Bucket })
			raw, missing := r.Get(Buckets()[at], row.Key), errors.Is(row, errMissing)
			if raw == nil && !missing {
				return nil // a row that nothing speaks of
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
