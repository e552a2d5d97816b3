package period

import (
	"context"
	"errors"
	"fmt"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// viewRecords is how many records one view reads: some 20 ms.
const viewRecords = 8192

// records calls fn with the records of the period, in order, in views of viewRecords.
func (b *builder) records(ctx context.Context, fn func(r store.Reader, rec *record.Record) error) error {
	for next := b.prev.Seq + 1; next <= b.c.Seq; {
		from, end := next, min(next+viewRecords, b.c.Seq+1)
		err := b.store.View(ctx, func(r store.Reader) error {
			if err := goesOn(r, &b.c); err != nil {
				return err
			}
			tables.WarmRecords(r, next, end)
			for seq, rec := range tables.Records(r, next, end) {
				if seq != next {
					break
				}
				if err := fn(r, rec); err != nil {
					return fmt.Errorf("record %d: %w", seq, err)
				}
				next++
			}
			if next != end {
				return fmt.Errorf("%w: record %d is missing", store.ErrCorrupt, next)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if b.done += end - from; b.tell != nil {
			b.tell(b.done, b.total)
		}
		if b.rest != nil {
			b.rest(ctx)
		}
	}
	return nil
}

// change is a command that writes or deletes rows of closed periods.
type change struct {
	kind string
	size int // bytes
	fill func(r store.Reader, w *store.Writes) error
}

var _ store.Command[struct{}] = change{}

// Kind names the command.
func (c change) Kind() string { return c.kind }

// Size returns the weight of the command in its group, bytes.
func (c change) Size() int { return c.size }

// Apply writes the rows.
func (c change) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	return struct{}{}, c.fill(r, w)
}

// commit sends a command that a full store takes too: what it writes makes room later.
func commit(ctx context.Context, s *store.Store, c change) error {
	_, err := store.Commit(ctx, s, store.Bulk, c)
	if errors.Is(err, store.ErrFull) {
		_, err = store.Commit(ctx, s, store.Control, c)
	}
	return err
}
