package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Reader reads one consistent state. Inside Apply it sees the earlier commands of the group, but
// not the Writes of the command itself. Its slices are valid until the transaction ends: copy what
// must be kept.
type Reader interface {
	Get(b *Bucket, key []byte) []byte                               // nil: absent
	Range(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte]     // ascending, to excluded, nil: no bound
	RangeBack(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] // the same rows, descending
}

// table is a bucket inside one transaction.
type table struct {
	*declared
	rows *bolt.Bucket // nil: the file has no such bucket
	in   *table       // the parent of a sub-bucket
}

// subKey identifies a sub-bucket inside one transaction.
type subKey struct {
	in   *Bucket
	name string
}

// txReader is the Reader of one transaction. Only one goroutine may use it.
type txReader struct {
	tx     *bolt.Tx
	schema schema // nil: every bucket of the file is allowed (an offline reader)
	tables map[*Bucket]*table
	subs   map[subKey]*table // sub-buckets; every call to Sub returns a new *Bucket
	groups []Group           // searched by GroupOf
	file   *os.File          // for Warm; nil: a store in memory, or an offline reader
	inside bool              // bbolt is running: a panic is a fault of the file, not of the caller

	confined bool   // only the buckets of owner may be used; set for commands, not for views
	owner    string // service of the running command
}

var _ Reader = (*txReader)(nil)

func newTxReader(tx *bolt.Tx, s schema) *txReader {
	return &txReader{tx: tx, schema: s, tables: make(map[*Bucket]*table, 8)}
}

// Get implements Reader.
func (r *txReader) Get(b *Bucket, key []byte) []byte {
	t := r.table(b)
	if t.rows == nil {
		return nil
	}
	r.inside = true
	v := t.rows.Get(key)
	r.inside = false
	return v
}

// Range implements Reader.
func (r *txReader) Range(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	first := func(c *bolt.Cursor) (k, v []byte) { return seek(c, from) }
	within := func(k []byte) bool { return to == nil || bytes.Compare(k, to) < 0 }
	return r.walk(r.table(b), first, within, (*bolt.Cursor).Next)
}

// RangeBack implements Reader.
func (r *txReader) RangeBack(b *Bucket, from, to []byte) iter.Seq2[[]byte, []byte] {
	first := func(c *bolt.Cursor) (k, v []byte) { return below(c, to) }
	within := func(k []byte) bool { return bytes.Compare(k, from) >= 0 }
	return r.walk(r.table(b), first, within, (*bolt.Cursor).Prev)
}

// move moves a cursor and returns the row there. A nil key is the end.
type move = func(*bolt.Cursor) (k, v []byte)

func (r *txReader) walk(t *table, first move, within func(k []byte) bool, next move) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		if t.rows == nil {
			return
		}
		r.inside = true
		c := t.rows.Cursor()
		k, v := first(c)
		// a row with a nil value is a sub-bucket
		for r.inside = false; k != nil && within(k) && (v == nil && t.Subs || yield(k, v)); r.inside = false {
			r.inside = true
			k, v = next(c)
		}
	}
}

func seek(c *bolt.Cursor, from []byte) (k, v []byte) {
	if from == nil {
		return c.First()
	}
	return c.Seek(from)
}

// below moves the cursor to the last row before to.
func below(c *bolt.Cursor, to []byte) (k, v []byte) {
	if to == nil {
		return c.Last()
	}
	if k, _ := c.Seek(to); k == nil {
		return c.Last()
	}
	return c.Prev()
}

// table resolves b once per transaction and checks ownership at each use.
func (r *txReader) table(b *Bucket) *table {
	if b.parent != nil {
		return r.sub(b)
	}
	t := r.tables[b]
	if t == nil {
		t = r.open(b)
		r.tables[b] = t
	}
	if r.confined && t.owner != r.owner {
		panic(fmt.Sprintf("bucket %s belongs to %s, not to %s", b.Name, t.owner, r.owner))
	}
	return t
}

func (r *txReader) open(b *Bucket) *table {
	d, known := r.schema[b.Name]
	if !known {
		if r.schema != nil {
			panic(fmt.Sprintf("bucket %s is not declared", b.Name))
		}
		d = declared{Bucket: b}
	}
	r.inside = true
	rows := r.tx.Bucket([]byte(b.Name))
	r.inside = false
	t := &table{declared: &d, rows: rows}
	t.fill()
	return t
}

// sub resolves a sub-bucket once per transaction, so that creating or dropping it updates the one
// table that all *Bucket values of it use.
func (r *txReader) sub(b *Bucket) *table {
	in := r.table(b.parent)
	key := subKey{b.parent, b.Name}
	if t := r.subs[key]; t != nil {
		return t
	}
	t := &table{declared: &declared{b, in.owner}, in: in}
	if in.rows != nil {
		r.inside = true
		t.rows = in.rows.Bucket([]byte(b.Name))
		r.inside = false
		t.fill()
	}
	if r.subs == nil {
		r.subs = map[subKey]*table{}
	}
	r.subs[key] = t
	return t
}

// fill sets the fill percentage of an append-only table, which bbolt does not keep between
// transactions.
func (t *table) fill() {
	if t.rows != nil && t.Append {
		t.rows.FillPercent = 1
	}
}

// Subs returns the sub-buckets of b in byte order of their names.
func Subs(r Reader, b *Bucket) iter.Seq[*Bucket] {
	tr := r.(*txReader)
	return func(yield func(*Bucket) bool) {
		t := tr.table(b)
		if t.rows == nil {
			return
		}
		tr.inside = true
		c := t.rows.Cursor()
		k, v := c.First()
		for tr.inside = false; k != nil && (v != nil || yield(b.Sub(string(k)))); tr.inside = false {
			tr.inside = true
			k, v = c.Next()
		}
	}
}

// leaves returns the buckets that hold the rows of b: b itself, or its sub-buckets.
func leaves(r Reader, b *Bucket) iter.Seq[*Bucket] {
	if b.Subs {
		return Subs(r, b)
	}
	return func(yield func(*Bucket) bool) { yield(b) }
}

// broken reports whether a recovered panic is a fault of the file: it came from bbolt, or a mapped
// page could not be read.
func (r *txReader) broken(recovered any) bool {
	if r.inside {
		return true
	}
	// debug.SetPanicOnFault raises such a panic for SIGBUS and SIGSEGV
	_, fault := recovered.(interface{ Addr() uintptr })
	return fault
}

// GroupOf returns the registered Group of type G, for use inside Apply. It panics if none is
// registered.
func GroupOf[G Group](r Reader) G {
	if tr, ok := r.(*txReader); ok {
		for _, g := range tr.groups {
			if typed, ok := g.(G); ok {
				return typed
			}
		}
	}
	panic("no such group is registered")
}

// Limits on the duration of a view: a reader pins old pages, so the file grows.
const (
	viewBudget = 50 * time.Millisecond // longer views are counted
	viewSlow   = time.Second           // longer views are logged with their caller
)

// View runs fn in a read transaction. Data of the Reader must not leave fn, and fn must not block,
// least of all on the committer. A view may see a group whose last sync is still running: an answer
// that must survive a power cut is read from the state that the after functions publish. View
// returns the error of fn, a RowError, ErrPoisoned, ErrClosed or the cause of ctx.
func (s *Store) View(ctx context.Context, fn func(Reader) error) error {
	if err := s.readable(ctx); err != nil {
		return err
	}
	began := s.mono()
	slot := s.views.begin(began)
	defer s.views.end(slot)
	err := readRows(s.db, s.schema, func(r *txReader) error {
		r.file = s.room.disk()
		return fn(r)
	})
	if took := time.Duration(s.mono() - began); took > viewBudget {
		s.slowView(took)
	}
	return s.readError(err)
}

func (s *Store) readable(ctx context.Context) error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.info.Load() == nil || s.closed.Load() {
		return fmt.Errorf("store is not open: %w", ErrClosed)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// readError poisons the store if err is a fault of the file. It returns the PoisonError if the
// store is poisoned, because the view may have read invalid data.
func (s *Store) readError(err error) error {
	var fault *fileFault
	if errors.As(err, &fault) {
		s.poison(fault, false)
	}
	if poisoned := s.Err(); poisoned != nil {
		return poisoned
	}
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return fmt.Errorf("store is not open: %w", ErrClosed)
	}
	return err
}

func (s *Store) slowView(took time.Duration) {
	s.metrics.slowView(1)
	if took < viewSlow {
		return
	}
	_, file, line, _ := runtime.Caller(2)
	s.log.Warn("slow_view", "latency_ms", took.Milliseconds(), "caller", fmt.Sprintf("%s:%d", file, line))
}

// Bytes returns the length of the file, or 0 if it is unknown.
func (s *Store) Bytes() int64 {
	if s.info.Load() == nil {
		return 0
	}
	info, err := s.room.file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// FreeBytes returns the free space inside the file in bytes, as of the last commit.
func (s *Store) FreeBytes() int64 { return s.pages().free * PageSize }

// PageUse counts pages of the file, as of the last commit.
type PageUse struct {
	Free  int64 // free now, or once the readers of older pages have left
	Taken int64 // taken by commits since the file was opened
}

// PageUse returns how many pages are free, and how many commits took.
func (s *Store) PageUse() PageUse {
	if s.info.Load() == nil {
		return PageUse{}
	}
	st := s.db.Stats()
	return PageUse{Free: int64(st.FreePageN + st.PendingPageN), Taken: st.TxStats.GetPageCount()}
}

// pageCounts holds page counts of bbolt.
type pageCounts struct{ free, pending int64 }

func (s *Store) pages() pageCounts {
	if s.info.Load() == nil {
		return pageCounts{}
	}
	st := s.db.Stats()
	return pageCounts{int64(st.FreePageN), int64(st.PendingPageN)}
}

// fileFault is a panic while reading the file: a bad page, or a page that the disk cannot read. It
// is ErrCorrupt.
type fileFault struct{ cause any }

func (e *fileFault) Error() string        { return fmt.Sprintf("%v: %v", ErrCorrupt, e.cause) }
func (e *fileFault) Is(target error) bool { return target == ErrCorrupt }

// readRows runs fn in a read transaction of db. A nil schema allows every bucket. A fault of the
// file is returned as a fileFault, a row that cannot be decoded as a RowError; any other panic is
// passed on.
func readRows(db *bolt.DB, s schema, fn func(*txReader) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	r := newTxReader(nil, s)
	r.inside = true
	defer func() {
		if v := recover(); v != nil {
			err = r.judge(v)
		}
	}()
	if r.tx, err = db.Begin(false); err != nil {
		return err
	}
	r.inside = false
	defer func() { _ = r.tx.Rollback() }() // does not fail for an open read transaction
	return fn(r)
}

// info reads the meta bucket.
func (r *txReader) info() (Info, error) {
	r.inside = true
	info, err := readInfo(r.tx)
	r.inside = false
	return info, err
}

// judge converts a panic that is a fault of the file to an error, and panics again with any other
// value.
func (r *txReader) judge(v any) error {
	if r.broken(v) {
		return &fileFault{v}
	}
	if row, ok := v.(*RowError); ok {
		return row
	}
	panic(v)
}
