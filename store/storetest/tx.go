package storetest

import (
	"testing"
	"time"

	"ronbox/store"
)

// Tx is a state that lives as long as the test.
type Tx struct{ scratch *store.Scratch }

// Cleaner is what NewTx needs of a *testing.T, and of a *rapid.T beside one.
type Cleaner interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

var _ Cleaner = testing.TB(nil)

// NewTx is an empty state with the given buckets. Its stamps begin at 2026-01-01 and grow by a nanosecond a command.
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

// Register lets commands find g with store.GroupOf.
func (tx *Tx) Register(g store.Group) { tx.scratch.Register(g) }

// Reader sees every command done so far.
func (tx *Tx) Reader() store.Reader { return tx.scratch.Reader() }

// Do applies c and merges what it wrote if it returns nil.
func Do[R any](tx *Tx, c store.Command[R]) (R, error) { return store.Try(tx.scratch, c) }
