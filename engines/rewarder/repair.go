package rewarder

import (
	"context"
	"slices"

	"ronbox/store"
)

// repairTodos deletes the damaged rows of rw/todo and writes what is left to do again, which the slots know. It does nothing if no row is damaged.
func (e *Engine) repairTodos(ctx context.Context) error {
	bad, err := e.damagedTodos(ctx)
	if err != nil || len(bad) == 0 {
		return err
	}
	var jobs []job
	if err := walk(ctx, e, slots, textKey, func(_ store.Reader, slot string, run Run) {
		if len(run.todo()) > 0 {
			jobs = append(jobs, job{slot, run.RunKey})
		}
	}); err != nil {
		return err
	}
	for some := range slices.Chunk(jobs, dropChunks) {
		if _, err := commit(ctx, e, store.Work, command[struct{}]{"restore_todo", len(some) << 7, func(r store.Reader, w *store.Writes) (none struct{}, err error) {
			for _, j := range some {
				run, _ := get(r, slots, j.slot)
				if run.RunKey != j.key {
					continue
				}
				for _, kind := range run.todo() {
					todos.Put(w, j.todo(kind), []byte(j.slot))
				}
			}
			return none, nil
		}}); err != nil {
			return err
		}
	}
	_, err = commit(ctx, e, store.Work, command[struct{}]{"drop_todo", len(bad) << 7, func(r store.Reader, w *store.Writes) (none struct{}, err error) {
		for _, key := range bad {
			if _, err := store.CutSum(key, r.Get(todos.Bucket(), key)); err != nil { // else it was written again
				w.Delete(todos.Bucket(), key)
			}
		}
		return none, nil
	}})
	if err == nil {
		e.log.Warn("todo_restored", "damaged", len(bad), "runs", len(jobs))
	}
	return err
}

// damagedTodos returns the keys of damaged rows, some at most: the next sweep finds others.
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

// todo lists what is left to do for a run.
func (run *Run) todo() (kinds []uint32) {
	if run.State == Accepted {
		kinds = append(kinds, toCompute)
	}
	if slices.Contains(unpaid, run.State) {
		kinds = append(kinds, toPay)
	}
	if run.Artifact == ArtifactPending {
		kinds = append(kinds, toWrite)
	}
	return kinds
}
