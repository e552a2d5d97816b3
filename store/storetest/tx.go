package storetest

import (
	"testing"
	"time"

	"ronbox/store"
)

// Tx is an in-memory state that lives as long as the test.
type Tx struct{ scratch *store.Scratch }

// Cleaner is the part of *testing.T and *rapid.T that NewTx needs.
type Cleaner interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

var _ Cleaner = testing.TB(nil)

// NewTx returns an empty state with the given buckets. Its stamps begin at 2026-01-01 and grow by a
// nanosecond per command.
func NewTx(t Cleaner, buckets ...*store.Bucket) *Tx {
	t.Helper()
	s, err := store.NewScratch(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), buckets...)
	if err != nil {
		t.Fatalf("scratch store: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Fatalf("close scratch store: %v", err)
		}
	})
	return &Tx{s}
}

// Register adds g for store.GroupOf.
func (tx *Tx) Register(g store.Group) { tx.scratch.Register(g) }

// Reader returns a Reader that sees every command done so far.
func (tx *Tx) Reader() store.Reader { return tx.scratch.Reader() }

// Do applies c and merges its writes if Apply returns nil.
func Do[R any](tx *Tx, c store.Command[R]) (R, error) { return store.Try(tx.scratch, c) }
