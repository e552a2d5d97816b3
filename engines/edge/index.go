package edge

import (
	"context"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// The edge's buckets, beside those of the packs. They are derived: the objects lie beside the file, and what is lost is fetched again.
var (
	bPaths = &store.Bucket{Name: "edge/paths", Class: store.Derived}
	bBlobs = &store.Bucket{Name: "edge/blobs", Class: store.Derived}
)

// Buckets lists the edge's buckets.
func Buckets() []*store.Bucket { return []*store.Bucket{bPaths, bBlobs, bPacks} }

// Stored is what is stored of a URL: a row, under the BLAKE3 of the URL, which may be longer than a key.
type Stored struct {
	URL    string    `cbor:"1,keyasint"`
	Path   string    `cbor:"2,keyasint"` // below /edge/assets/
	Digest b3.Digest `cbor:"3,keyasint"`
	Size   int64     `cbor:"4,keyasint"`
	Type   string    `cbor:"5,keyasint"` // media type
}

// blobRow is an object that has a file, under its digest.
type blobRow struct {
	Size int64  `cbor:"1,keyasint"`
	Type string `cbor:"2,keyasint"` // as first stored
	Refs int64  `cbor:"3,keyasint"` // URLs that lead to it, at least 1
}

// The tables.
var (
	paths = store.NewTable(bPaths, store.Array32[b3.Digest](), store.CBOR[Stored]()).Summed().Alone()
	blobs = store.NewTable(bBlobs, store.Array32[b3.Digest](), store.CBOR[blobRow]()).Summed().Alone()
)

func pathKey(url string) b3.Digest { return b3.Sum([]byte(url)) }

// change is what a command has done to the content store.
type change struct {
	tally
	freed []b3.Digest // objects without a row from now on
	moved bool        // a URL leads elsewhere, or nowhere, from now on
}

func (c *change) add(d change) {
	c.tally.add(d.tally)
	c.freed, c.moved = append(c.freed, d.freed...), c.moved || d.moved
}

// installCmd enters an object whose file has its name. A URL that led to another object leaves that, which goes with the last one.
type installCmd struct{ Row Stored }

func (installCmd) Kind() string { return "edge.install/1" }

func (c installCmd) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done change, err error) {
	key := pathKey(c.Row.URL)
	old, known := paths.Get(r, key)
	paths.Put(w, key, c.Row)
	done.moved = known
	if known && old.Digest == c.Row.Digest {
		return done, nil
	}
	if known {
		b, _ := blobs.Get(r, old.Digest)
		done.leave(w, old.Digest, b, 1)
	} else {
		done.urls++
	}
	b, stored := blobs.Get(r, c.Row.Digest)
	if !stored {
		b = blobRow{Size: c.Row.Size, Type: c.Row.Type}
		done.bytes, done.objects = done.bytes+b.Size, done.objects+1
	}
	b.Refs++
	blobs.Put(w, c.Row.Digest, b)
	return done, nil
}

// leave takes n URLs from an object.
func (done *change) leave(w *store.Writes, name b3.Digest, b blobRow, n int64) {
	if b.Refs -= n; b.Refs > 0 {
		blobs.Put(w, name, b)
		return
	}
	blobs.Delete(w, name)
	done.bytes, done.objects, done.freed = done.bytes-b.Size, done.objects-1, append(done.freed, name)
}

// dropCmd takes URLs away, and each object with its last one.
type dropCmd struct{ Keys []b3.Digest } // distinct

func (dropCmd) Kind() string { return "edge.drop/1" }

func (c dropCmd) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done change, err error) {
	var names []b3.Digest
	left := map[b3.Digest]int64{}
	for _, key := range c.Keys {
		if row, known := paths.Get(r, key); known {
			paths.Delete(w, key)
			done.urls, done.moved = done.urls-1, true
			if left[row.Digest]++; left[row.Digest] == 1 {
				names = append(names, row.Digest)
			}
		}
	}
	for _, name := range names {
		b, _ := blobs.Get(r, name)
		done.leave(w, name, b, left[name])
	}
	return done, nil
}

// find reads a row, or returns ErrNotFound.
func find[V any](ctx context.Context, e *Engine, t store.Table[b3.Digest, V], key b3.Digest) (row V, err error) {
	err = e.d.Store.View(ctx, func(r store.Reader) error {
		var known bool
		if row, known = t.Get(r, key); !known {
			return ErrNotFound
		}
		return nil
	})
	return row, err
}

// scan calls visit for every row of a table, in order, until visit returns an error. Slices of rows share a read transaction, in which visit
// is not called.
func scan[V any](ctx context.Context, e *Engine, t store.Table[b3.Digest, V], visit func(b3.Digest, V) error) error {
	type row struct {
		key b3.Digest
		v   V
	}
	var from b3.Digest
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

// ignore returns err, or nil where it is the error none.
func ignore(err, none error) error {
	if errors.Is(err, none) {
		return nil
	}
	return err
}
