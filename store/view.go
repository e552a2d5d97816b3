package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// How long a view may last: readers pin old pages, and the file grows meanwhile.
const (
	viewBudget = 50 * time.Millisecond // counted beyond it
	viewSlow   = time.Second           // logged beyond it, with its caller
)

// View runs fn in a read transaction. What the Reader gives must not leave fn, and fn must not wait for anything, least of all for the
// committer. A view may see a group whose last sync still runs: what a power cut must not unsay is answered from what the after functions
// published. Errors: fn's own, a RowError, ErrPoisoned, ErrClosed, the cause of ctx.
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

// readError poisons the store if the file was at fault. What a view read while the store failed counts for nothing.
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

// Bytes is the length of the file; 0 if it cannot be told.
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

// FreeBytes is the room inside the file that new rows take first, as of the last commit.
func (s *Store) FreeBytes() int64 { return s.pages().free * PageSize }

// pageCounts are bbolt's, in pages.
type pageCounts struct{ free, pending int64 }

func (s *Store) pages() pageCounts {
	if s.info.Load() == nil {
		return pageCounts{}
	}
	st := s.db.Stats()
	return pageCounts{int64(st.FreePageN), int64(st.PendingPageN)}
}

// fileFault is a panic that came out of reading the file: a bad page, or one the disk does not give.
type fileFault struct{ cause any }

func (e *fileFault) Error() string        { return fmt.Sprintf("%v: %v", ErrCorrupt, e.cause) }
func (e *fileFault) Is(target error) bool { return target == ErrCorrupt }

// readRows runs fn over a read transaction of db; a nil schema allows every bucket. A fault of the file is a fileFault, a row that does
// not decode a RowError; any other panic goes on to the caller.
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
	defer func() { _ = r.tx.Rollback() }() // of a read transaction: cannot fail while it is open
	return fn(r)
}

// info reads the meta bucket as of this transaction.
func (r *txReader) info() (Info, error) {
	r.inside = true
	info, err := readInfo(r.tx)
	r.inside = false
	return info, err
}

// judge words a panic that is the file's, and passes on one that is not.
func (r *txReader) judge(v any) error {
	if r.broken(v) {
		return &fileFault{v}
	}
	if row, ok := v.(*RowError); ok {
		return row
	}
	panic(v)
}
