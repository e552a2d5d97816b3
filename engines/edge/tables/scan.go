package tables

import (
	"context"

	"ronbox/engines/edge/asset"
	"ronbox/store"
)

// Find reads a row, or returns asset.ErrNotFound.
func Find[K, V any](ctx context.Context, db *store.Store, t store.Table[K, V], key K) (row V, err error) {
	err = db.View(ctx, func(r store.Reader) error {
		var known bool
		if row, known = t.Get(r, key); !known {
			return asset.ErrNotFound
		}
		return nil
	})
	return row, err
}

// Scan calls visit for every row of a table, in order, until visit returns an error. It reads
// slices of rows, each in one read transaction, and calls visit outside of them.
func Scan[K, V any](ctx context.Context, db *store.Store, t store.Table[K, V], visit func(K, V) error) error {
	var first K
	return ScanFrom(ctx, db, t, first, visit)
}

// ScanFrom is Scan from a key.
func ScanFrom[K, V any](
	ctx context.Context,
	db *store.Store,
	t store.Table[K, V],
	from K,
	visit func(K, V) error,
) error {
	type row struct {
		key K
		v   V
	}
	for more := true; more; {
		var slice []row
		more = false
		err := db.View(ctx, func(r store.Reader) error {
			for key, v := range t.From(r, from) {
				if more = len(slice) == 256; more {
					from = key
					break
				}
				slice = append(slice, row{key, v})
			}
			return nil
		})
		for i := 0; i < len(slice) && err == nil; i++ {
			err = visit(slice[i].key, slice[i].v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
