package period

import (
	"context"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// dropper deletes the rows of one table up to the horizon; see package tables.
type dropper func(r store.Reader, w *store.Writes, h tables.Horizon, cursor []byte, n int) ([]byte, int)

// droppers are the tables in the order in which they are dropped, references first.
func droppers() []dropper {
	return []dropper{
		tables.MergeClosed, tables.DropRecords, tables.DropBatches, tables.DropLogNodes, tables.DropMarks,
		tables.DropHolds, tables.DropOlderBases,
	}
}

// allDropped is the place at which no row is left to drop.
func allDropped() tables.DropPlace { return tables.DropPlace{Table: uint8(len(droppers()))} }

// sparseRows is how many rows a command looks at in a table that keeps most of them.
const sparseRows = 8192

// sparse reports whether a table, of droppers, keeps most of its rows.
func sparse(table uint8) bool { return table == 0 || table == 4 } // references, marks

// Drop deletes up to rows rows at or below the horizon, and reports whether none is left: then
// the closing has ended, unless that of the next period is under way. It returns ErrNothing if no
// closed period has rows to drop.
func Drop(ctx context.Context, s *store.Store, rows int) (done bool, err error) {
	err = commit(ctx, s, change{
		kind: "ledger.close_drop/1", size: rows * 16,
		fill: func(r store.Reader, w *store.Writes) error {
			c, h := tables.GetClosing(r), tables.GetHorizon(r)
			at, all := &c.Dropped, droppers()
			if c.Step == 0 || h.Period == 0 || int(at.Table) == len(all) {
				return ErrNothing
			}
			looked := rows
			if sparse(at.Table) {
				looked = max(rows, sparseRows)
			}
			next, n := all[at.Table](r, w, h, at.Cursor, looked)
			at.Cursor, at.Rows = next, at.Rows+uint64(n)
			if next == nil {
				at.Table++
			}
			if done = int(at.Table) == len(all); done {
				c.Bytes, c.Rows, at.Rows = 0, 0, 0 // they were estimates
			}
			if done && !runs(r) {
				c = tables.Closing{}
			}
			tables.PutClosing(w, c)
			return nil
		},
	})
	return done, err
}

// clearGeneration deletes a generation of the base, and what the log of names has behind its first
// names leaves. It ends with errCanceled if the generation is in use, or if another attempt than
// the given one is building it.
func clearGeneration(ctx context.Context, s *store.Store, generation, names, attempt uint64) error {
	for _, drop := range []func(store.Reader, *store.Writes, []byte) []byte{
		func(r store.Reader, w *store.Writes, cursor []byte) []byte {
			return tables.DropGeneration(r, w, generation, cursor, commandRows)
		},
		func(r store.Reader, w *store.Writes, cursor []byte) []byte {
			return tables.DropNames(r, w, names, cursor, commandRows)
		},
	} {
		for cursor := []byte(nil); ; {
			var next []byte // a command that did not fit runs again, from the same cursor
			err := commit(ctx, s, change{
				kind: "ledger.close_clear/1", size: commandRows * 16,
				fill: func(r store.Reader, w *store.Writes) error {
					other := runs(r) && tables.GetClosing(r).Attempt != attempt
					if other || tables.GetHorizon(r).Generation >= generation {
						return errCanceled
					}
					next = drop(r, w, cursor)
					return nil
				},
			})
			if err != nil {
				return err
			}
			if cursor = next; cursor == nil {
				break
			}
		}
	}
	return nil
}
