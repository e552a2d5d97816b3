package storetest

import (
	"context"
	"sync"

	"ronbox/store"
)

// Log is the log of a cluster of one node, in memory. It is a [store.Replicator].
type Log struct {
	mu      sync.Mutex // a leaf
	refuse  func(e []byte) error
	entries []store.Placed
	applied store.Place
}

var _ store.Replicator = (*Log)(nil)

// Refuse makes fn, which may be nil, decide each later proposal. An error of fn is returned to the
// store, and the log does not get the entry.
func (l *Log) Refuse(fn func(e []byte) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = fn
}

// Propose appends e. Places begin at index 2 of term 1, behind those of a file of a new cluster.
func (l *Log) Propose(_ context.Context, e []byte) (store.Place, error) {
	l.mu.Lock()
	refuse := l.refuse
	l.mu.Unlock()
	if refuse != nil {
		if err := refuse(e); err != nil {
			return store.Place{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := store.Place{Index: uint64(len(l.entries)) + 2, Term: 1}
	l.entries = append(l.entries, store.Placed{Place: at, Entry: e})
	return at, nil
}

// Applied notes the place. It panics if that is not the place of the last entry, told once.
func (l *Log) Applied(at store.Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.entries); n == 0 || l.entries[n-1].Place != at || l.applied == at {
		panic("storetest: Applied of a place that was not proposed, or that was applied before")
	}
	l.applied = at
}

// Entries returns the entries so far, for [store.Store.Follow] of another store.
func (l *Log) Entries() []store.Placed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]store.Placed{}, l.entries...)
}
