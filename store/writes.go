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
	key, value []byte // value nil: delete; both nil: drop the table, a sub-bucket, or clear it
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

// Drop removes a sub-bucket with all its rows; one that is not there is no fault. Pages are given back all at once, and every commit
// writes the list of free pages: drop what has some thousand pages alone in its command.
func (w *Writes) Drop(b *Bucket) {
	if b.parent == nil {
		panic(fmt.Sprintf("bucket %s is not a sub-bucket: only those are dropped", b.Name))
	}
	w.ops = append(w.ops, write{t: w.r.table(b)})
}

// Clear removes every row of b, also rows that a search by their key does not find: a key that a disk has changed may stand in the wrong place.
// Every commit writes the list of free pages: clear what has some thousand pages alone in its command.
func (w *Writes) Clear(b *Bucket) {
	if b.parent != nil || b.Subs {
		panic(fmt.Sprintf("bucket %s is not a flat bucket: only those are cleared", b.Name))
	}
	w.ops = append(w.ops, write{t: w.r.table(b)})
}

func (w *Writes) add(b *Bucket, k, v []byte) {
	if len(k) == 0 || len(k) > MaxKey {
		panic(fmt.Sprintf("key of %d bytes for bucket %s: the limit is 1 to %d", len(k), b.Name, MaxKey))
	}
	t := w.r.table(b)
	if home := t.home(); home.rows == nil {
		panic(fmt.Sprintf("bucket %s was not made at boot", home.Name))
	}
	if b.Subs {
		panic(fmt.Sprintf("bucket %s holds sub-buckets, no rows", b.Name))
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
		if err := w.ops[i].merge(); err != nil {
			return fmt.Errorf("merge into %s: %w", w.ops[i].t.Name, err)
		}
	}
	w.r.inside = false
	return nil
}

func (op *write) merge() (err error) {
	t := op.t
	switch {
	case t.in != nil && (op.key == nil || t.rows == nil):
		return op.mergeSub()
	case op.key == nil:
		return op.clear()
	case op.value == nil:
		return t.rows.Delete(op.key)
	}
	return t.rows.Put(op.key, op.value)
}

// clear makes the bucket anew.
func (op *write) clear() (err error) {
	t, tx, name := op.t, op.t.rows.Tx(), []byte(op.t.Name)
	if err := tx.DeleteBucket(name); err != nil {
		return err
	}
	t.rows, err = tx.CreateBucket(name)
	t.fill()
	return err
}

// mergeSub drops a sub-bucket, or makes the one that a row is put into.
func (op *write) mergeSub() (err error) {
	t, name := op.t, []byte(op.t.Name)
	switch {
	case t.rows == nil && op.value == nil: // neither is there to be deleted
		return nil
	case op.key == nil:
		t.rows = nil
		return t.in.rows.DeleteBucket(name)
	}
	if t.rows, err = t.in.rows.CreateBucket(name); err != nil {
		return err
	}
	t.fill()
	return t.rows.Put(op.key, op.value)
}

// home is the declared bucket of t.
func (t *table) home() *table {
	if t.in != nil {
		return t.in
	}
	return t
}

// shrinks tells whether the buffer leaves the file with fewer bytes than it has: what may still be written while there is no room. A few
// bytes, such as the place a sweep has reached, are let pass.
func (w *Writes) shrinks() bool {
	type row struct {
		t   *table
		key string
	}
	put, gone, met := 0, sweepNotes, map[row]bool{}
	w.r.inside = true
	for _, op := range w.ops {
		if op.value != nil {
			put += len(op.key) + len(op.value)
		}
		at := row{op.t, string(op.key)}
		if op.key == nil || op.t.rows == nil || met[at] {
			continue
		}
		met[at] = true
		if old := op.t.rows.Get(op.key); old != nil {
			gone += len(op.key) + len(old)
		}
	}
	w.r.inside = false
	return put <= gone
}

// sweepNotes is what shrinks lets pass, bytes.
const sweepNotes = 4 << 10
