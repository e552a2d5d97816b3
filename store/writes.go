package store

import "fmt"

// Writes is one command's buffer. It is merged into the transaction only if Apply returns nil. Slices given to it must not change
// before the command is answered.
type Writes struct {
	r      *txReader // resolves buckets and enforces ownership
	ops    []write
	events []Event
	then   []func()
}

// write is one buffered change.
type write struct {
	t          *table
	key, value []byte // value nil: delete
}

// Put sets a row. A key that is empty or over MaxKey, or a value over MaxValue, is the command's bug and refuses it.
func (w *Writes) Put(b *Bucket, k, v []byte) {
	if len(v) > MaxValue {
		panic(fmt.Sprintf("value of %d bytes for bucket %s: the limit is %d", len(v), b.Name, MaxValue))
	}
	if v == nil {
		v = []byte{}
	}
	w.add(b, k, v)
}

// Delete removes a row; one that is not there is no fault.
func (w *Writes) Delete(b *Bucket, k []byte) {
	w.add(b, k, nil)
}

func (w *Writes) add(b *Bucket, k, v []byte) {
	if len(k) == 0 || len(k) > MaxKey {
		panic(fmt.Sprintf("key of %d bytes for bucket %s: the limit is 1 to %d", len(k), b.Name, MaxKey))
	}
	t := w.r.table(b)
	if t.rows == nil {
		panic(fmt.Sprintf("bucket %s was not made at boot", b.Name))
	}
	w.ops = append(w.ops, write{t, k, v})
}

// Audit adds a row to the node's audit chain, in the same transaction.
func (w *Writes) Audit(e Event) {
	w.events = append(w.events, e.bounded())
}

// Then has fn run at the merge, in order: it updates an engine's tentative layer in memory. A panic in it ends the process.
func (w *Writes) Then(fn func()) {
	w.then = append(w.then, fn)
}

// reset empties the buffer and keeps its room. The slices it held belong to the transaction now.
func (w *Writes) reset() {
	clear(w.ops)
	clear(w.events)
	clear(w.then)
	w.ops, w.events, w.then = w.ops[:0], w.events[:0], w.then[:0]
}

// merge moves the buffer into the transaction. Sizes and owners were checked when it was filled, so an error is the file's.
func (w *Writes) merge() error {
	w.r.inside = true
	for i := range w.ops {
		op := &w.ops[i]
		var err error
		if op.value == nil {
			err = op.t.rows.Delete(op.key)
		} else {
			err = op.t.rows.Put(op.key, op.value)
		}
		if err != nil {
			return fmt.Errorf("merge into %s: %w", op.t.Name, err)
		}
	}
	w.r.inside = false
	return nil
}
