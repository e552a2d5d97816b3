package edge

import (
	"context"
	"errors"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// Buckets returns the buckets of the edge.
func Buckets() []*store.Bucket {
	return slices.Insert(tables.Buckets(), 3, pack.Buckets()...)
}

// Unsummed returns the buckets whose rows have no checksum in schema 1.
func Unsummed() []*store.Bucket { return pack.Buckets() }

// find reads a row, or returns ErrNotFound.
func find[K, V any](ctx context.Context, e *Engine, t store.Table[K, V], key K) (row V, err error) {
	err = e.d.Store.View(ctx, func(r store.Reader) error {
		var known bool
		if row, known = t.Get(r, key); !known {
			return asset.ErrNotFound
		}
		return nil
	})
	return row, err
}

// scan calls visit for every row of a table, in order, until visit returns an error. It reads
// slices of rows, each in one read transaction, and calls visit outside of them.
func scan[K, V any](ctx context.Context, e *Engine, t store.Table[K, V], visit func(K, V) error) error {
	var first K
	return scanFrom(ctx, e, t, first, visit)
}

// errScanned ends a scan that has seen enough.
var errScanned = errors.New("scanned")

// scanFrom is scan from a key.
func scanFrom[K, V any](
	ctx context.Context,
	e *Engine,
	t store.Table[K, V],
	from K,
	visit func(K, V) error,
) error {
	type row struct {
		key K
		v   V
	}
	if t.Bucket() == tables.Paths.Bucket() {
		e.walks.Add(1)
	}
	for more := true; more; {
		var slice []row
		more = false
		err := e.d.Store.View(ctx, func(r store.Reader) error {
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

// ignore returns nil if err is the error none, and err otherwise.
func ignore(err, none error) error {
	if errors.Is(err, none) {
		return nil
	}
	return err
}

// pinnedPaths returns the keys of the pinned rows of edge/paths.
func (e *Engine) pinnedPaths(ctx context.Context) (map[b3.Digest]bool, error) {
	pinned := map[b3.Digest]bool{}
	err := scan(ctx, e, tables.Keys, func(k tables.URLKey, row tables.KeyRow) error {
		if row.Pinned {
			pinned[k.Hash] = true
		}
		return nil
	})
	return pinned, err
}

// Checks returns the check of the edge for a file: every row of the edge reads, and the rows are
// consistent.
func Checks() []store.Check {
	return []store.Check{{Name: service, Schema: 2, Run: func(r store.Reader) error {
		if err := tables.Read(r).Fault(); err != nil {
			return err
		}
		if err := pack.Check(r); err != nil {
			return err
		}
		return meter.Check(r)
	}}}
}
