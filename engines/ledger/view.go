package ledger

import (
	"context"
	"errors"
	"fmt"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

var (
	errStale    = errors.New("ledger: a row is neither in memory nor in the file")
	errNoHeader = errors.New("it is not there")
)

// staleTries is how often a read begins anew.
const staleTries = 4

// view runs fn in a read transaction, again if a row went from memory into the file while fn looked for it. fn may run more than once. A row
// that does not decode puts the ledger into safe mode.
func (l *Local) view(ctx context.Context, fn func(store.Reader) error) error {
	var err error
	for range staleTries {
		if err = l.store.View(ctx, fn); !errors.Is(err, errStale) {
			break
		}
	}
	if errors.Is(err, errStale) { // every time: it is not there
		err = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	if errors.Is(err, store.ErrCorrupt) {
		l.enterSafeMode(err)
	}
	return err
}

// nameOf is the name of an account that a record refers to.
func (l *Local) nameOf(r store.Reader, ref uint64) (string, error) {
	if name, _ := l.books.refs.read(ref); name != "" {
		return name, nil
	}
	name, known := tables.Name(r, ref)
	if !known {
		return "", errStale
	}
	return name, nil
}
