package ledger

import "context"

// Runs is how many runs of the idempotency index are in the file.
func (l *Local) Runs() int { return l.books.idem.Stats().Runs }

// DropOld drops the runs that are too old.
func (l *Local) DropOld(ctx context.Context) error { return l.dropOld(ctx) }
