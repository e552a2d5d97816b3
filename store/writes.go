package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// Writes buffers the changes of one command. They are merged into the transaction only if Apply
// returns nil. Slices passed to it must not change before the command is answered.
type Writes struct {
	r      *txReader // resolves buckets and enforces ownership
	ops    []write
	events []Event
	then   []func()
}

// write is one buffered change.
type write struct {
	t          *table
	key, value []byte // value nil: delete; both nil: drop a sub-bucket or clear a bucket
}

// Put sets a row. A key that is empty or longer than MaxKey, or a value longer than MaxValue, is a
// bug of the command, which is refused.
func (w *Writes) Put(b *Bucket, k, v []byte) {
	if len(v) > MaxValue {
		panic(fmt.Sprintf("value of %d bytes for bucket %s: the limit is %d", len(v), b.Name, MaxValue))
	}
	if v == nil {
		v = []byte{}
	}
	w.add(b, k, v)
}

// Delete removes a row. It has no effect if the row does not exist.
func (w *Writes) Delete(b *Bucket, k []byte) {
	w.add(b, k, nil)
}

// Drop removes a sub-bucket with all its rows. It has no effect if the sub-bucket does not exist.
// All its pages become free in one commit, and every commit writes the list of free pages: drop a
// sub-bucket of thousands of pages in a command of its own.
func (w *Writes) Drop(b *Bucket) {
	if b.parent == nil {
		panic(fmt.Sprintf("bucket %s is not a sub-bucket: only those are dropped", b.Name))
	}
	w.ops = append(w.ops, write{t: w.r.table(b)})
}

// Clear removes every row of b, including rows that a search by key cannot find because the disk
// changed their key. Every commit writes the list of free pages: clear a bucket of thousands of
// pages in a command of its own.
func (w *Writes) Clear(b *Bucket) {
	if b.parent != nil || b.Subs || b == localBucket {
		panic(fmt.Sprintf("bucket %s is not a flat bucket of commands: only those are cleared", b.Name))
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
	if b.Subs || b == localBucket {
		panic(fmt.Sprintf("bucket %s holds sub-buckets, or rows of no command", b.Name))
	}
	w.ops = append(w.ops, write{t, k, v})
}

// Audit adds a row to the audit chain of the node, in the same transaction.
func (w *Writes) Audit(e Event) {
	w.events = append(w.events, e.bounded())
}

// Then registers fn to run when the writes are merged, in order. fn updates the tentative in-memory
// layer of an engine. A panic in it ends the process.
func (w *Writes) Then(fn func()) {
	w.then = append(w.then, fn)
}

// reset empties the buffer and keeps its capacity. The slices it held now belong to the
// transaction.
func (w *Writes) reset() {
	clear(w.ops)
	clear(w.events)
	clear(w.then)
	w.ops, w.events, w.then = w.ops[:0], w.events[:0], w.then[:0]
}

// merge writes the buffer into the transaction of p. Sizes and owners were checked when it was
// filled, so an error is a fault of the file.
func (w *Writes) merge(p *pen) error {
	w.r.inside = true
	for i := range w.ops {
		if err := p.write(&w.ops[i]); err != nil {
			return err
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

// clear deletes and recreates the bucket.
func (op *write) clear() (err error) {
	t, tx, name := op.t, op.t.rows.Tx(), []byte(op.t.Name)
	if err := tx.DeleteBucket(name); err != nil {
		return err
	}
	t.rows, err = tx.CreateBucket(name)
	t.fill()
	return err
}

// mergeSub drops a sub-bucket, or creates the one that a row is put into.
func (op *write) mergeSub() (err error) {
	t, name := op.t, []byte(op.t.Name)
	switch {
	case t.rows == nil && op.value == nil: // nothing to delete
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

// home returns the declared bucket of t.
func (t *table) home() *table {
	if t.in != nil {
		return t.in
	}
	return t
}

// shrinks reports whether the writes reduce the number of bytes in the file. Such writes are
// allowed in a full store. A few extra bytes, such as the cursor of a sweep, are ignored.
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

// sweepNotes is the number of extra bytes that shrinks ignores.
const sweepNotes = 4 << 10

// Scratch is an in-memory state for trying commands: one transaction that is never committed. Tests
// of engines use it through package storetest. Only one goroutine may use it; a command may use all
// of its buckets.
type Scratch struct {
	db *bolt.DB
	tx *bolt.Tx
	g  group
}

// NewScratch creates an empty state with the given buckets. Stamps begin at now.
func NewScratch(now time.Time, buckets ...*Bucket) (*Scratch, error) {
	fd, err := unix.MemfdCreate("ronbox-scratch", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "ronbox-scratch")
	db, err := bolt.Open(f.Name(), 0o600, &bolt.Options{
		PageSize:        PageSize,
		FreelistType:    bolt.FreelistMapType,
		NoSync:          true,
		NoStatistics:    true,
		InitialMmapSize: 256 << 20,
		OpenFile:        func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c := &Scratch{db: db}
	if err := c.begin(now, buckets); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return c, nil
}

func (c *Scratch) begin(now time.Time, buckets []*Bucket) (err error) {
	s := New(DefaultConfig(), Options{Now: func() time.Time { return now }})
	s.schema = nil
	s.info.Store(&Info{Schema: Schema, AuditFirst: 1})
	if c.tx, err = c.db.Begin(true); err != nil {
		return err
	}
	for _, b := range append([]*Bucket{metaBucket, localBucket, auditBucket}, buckets...) {
		if _, err := c.tx.CreateBucketIfNotExists([]byte(b.Name)); err != nil {
			return err
		}
	}
	declared := newSchema()
	declared.add("scratch", slices.DeleteFunc(slices.Clone(buckets), func(b *Bucket) bool {
		_, own := declared[b.Name]
		return own
	})...)
	if err := nameNew(c.tx, declared, nil); err != nil {
		return err
	}
	c.g.open(s)
	c.g.use(c.tx)
	return nil
}

// Register adds a group for GroupOf. Its hooks are not called.
func (c *Scratch) Register(g Group) { c.g.reader.groups = append(c.g.reader.groups, g) }

// Reader returns a Reader that sees every command tried so far.
func (c *Scratch) Reader() Reader { return c.g.reader }

// Close discards the state.
func (c *Scratch) Close() error {
	return errors.Join(c.tx.Rollback(), c.db.Close())
}

// Try applies one command and, if it returns nil, merges it.
func Try[R any](c *Scratch, cmd Command[R]) (R, error) {
	q := &request[R]{body: body[R]{head: head{kind: cmd.Kind()}, cmd: cmd}}
	err := c.g.step(q, c.g.s.now().UnixNano())
	if err == nil {
		err = q.err
	}
	if err == nil {
		err = c.g.fault
	}
	return q.result, err
}
