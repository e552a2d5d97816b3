package edge

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/store"
)

// The buckets of the edge, beside that of the packs. They are derived: the objects are files
// beside the database, and a lost object can be fetched again.
var (
	bPaths = &store.Bucket{Name: "edge/paths", Class: store.Derived}
	bBlobs = &store.Bucket{Name: "edge/blobs", Class: store.Derived}
)

// Buckets returns the buckets of the edge.
func Buckets() []*store.Bucket {
	return slices.Concat([]*store.Bucket{bPaths, bBlobs, bKeys}, pack.Buckets(), []*store.Bucket{bAnnounced})
}

// Unsummed returns the buckets whose rows have no checksum in schema 1.
func Unsummed() []*store.Bucket { return pack.Buckets() }

// Stored is a row of edge/paths. It describes the object of a URL. Its key is the BLAKE3 of the
// URL, because a URL may be longer than a key.
type Stored struct {
	URL    string    `cbor:"1,keyasint"`
	Path   string    `cbor:"2,keyasint"` // below /edge/assets/
	Digest b3.Digest `cbor:"3,keyasint"`
	Size   int64     `cbor:"4,keyasint"`
	Type   string    `cbor:"5,keyasint"` // media type
}

// blobRow is a row of edge/blobs. It describes an object with a file; its key is the digest.
type blobRow struct {
	Size int64  `cbor:"1,keyasint"`
	Type string `cbor:"2,keyasint"` // as stored first
	Refs int64  `cbor:"3,keyasint"` // URLs that lead to it, at least 1
}

// digests is the form of keys that are digests.
var digests = store.Array32[b3.Digest]()

// The tables.
var (
	paths = store.NewTable(bPaths, digests, store.CBOR[Stored]()).Summed().Alone()
	blobs = store.NewTable(bBlobs, digests, store.CBOR[blobRow]()).Summed().Alone()
)

func pathKey(url string) b3.Digest { return b3.Sum([]byte(url)) }

// bKeys lists the URLs of edge/paths in order, with their pins.
var bKeys = &store.Bucket{Name: "edge/keys", Class: store.Derived}

// keyRow is a row of edge/keys. It describes a URL beside its row of edge/paths.
type keyRow struct {
	Fetched int64  `cbor:"1,keyasint"`           // Unix ns of the last fill; 0 if an older release made it
	Size    int64  `cbor:"2,keyasint"`           // bytes of the object; 0 if it is lost
	Tail    string `cbor:"3,keyasint,omitempty"` // the part of the URL after the first keyHead bytes
	Pinned  bool   `cbor:"4,keyasint,omitempty"` // not evicted
	Lost    bool   `cbor:"5,keyasint,omitempty"` // pinned, without a row of edge/paths: the object was damaged
}

// urlKey is the key of a keyRow.
type urlKey struct {
	head string // the first bytes of the URL
	hash b3.Digest
}

// keyHead is the number of bytes of a URL that its key holds: a key has at most store.MaxKey
// bytes.
const keyHead = 400

var urlKeys = store.Key[urlKey]{
	Append: func(dst []byte, k urlKey) []byte { return append(append(append(dst, k.head...), 0), k.hash[:]...) },
	Decode: func(b []byte) (k urlKey, err error) {
		at := len(b) - b3.Size - 1
		if at < 0 || bytes.IndexByte(b, 0) != at {
			return k, errors.New("a key is a URL, NUL and a hash")
		}
		return urlKey{string(b[:at]), b3.Digest(b[at+1:])}, nil
	},
}

var keys = store.NewTable(bKeys, urlKeys, store.CBOR[keyRow]()).Summed().Alone()

func keyOf(url string) urlKey { return urlKey{url[:min(len(url), keyHead)], pathKey(url)} }

// url returns the whole URL of the row with key k.
func (r keyRow) url(k urlKey) string { return k.head + r.Tail }

// pins returns the contribution of the row to a tally.
func (r keyRow) pins() tally {
	if !r.Pinned {
		return tally{}
	}
	t := tally{pinned: r.Size, pins: 1}
	if r.Lost {
		t.lost = 1
	}
	return t
}

// put writes the row of a URL in place of old, and adds the change of pins to done.
func (r keyRow) put(w *store.Writes, url string, old keyRow, done *change) {
	r.Tail = url[min(len(url), keyHead):]
	keys.Put(w, keyOf(url), r)
	done.tally.add(r.pins())
	done.tally.sub(old.pins())
}

// drop deletes the row of a URL, and adds the change of pins to done.
func (r keyRow) drop(w *store.Writes, url string, done *change) {
	keys.Delete(w, keyOf(url))
	done.tally.sub(r.pins())
}

// markLost records that the object of a URL was lost by damage. A pinned row stays.
func (r keyRow) markLost(w *store.Writes, url string, done *change) {
	if !r.Pinned {
		r.drop(w, url, done)
		return
	}
	keyRow{Fetched: r.Fetched, Pinned: true, Lost: true}.put(w, url, r, done)
}

// pinnedPaths returns the keys of the pinned rows of edge/paths.
func (e *Engine) pinnedPaths(ctx context.Context) (map[b3.Digest]bool, error) {
	pinned := map[b3.Digest]bool{}
	err := scan(ctx, e, keys, func(k urlKey, row keyRow) error {
		if row.Pinned {
			pinned[k.hash] = true
		}
		return nil
	})
	return pinned, err
}

// change describes the effect of a command on the content store.
type change struct {
	tally
	freed []b3.Digest // objects that no longer have a row
	moved bool        // a URL leads to another object, or to none
}

func (c *change) add(d change) {
	c.tally.add(d.tally)
	c.freed, c.moved = append(c.freed, d.freed...), c.moved || d.moved
}

// installCmd adds the row of an object after its file has its final name. A URL that led to
// another object no longer leads to that one, which is removed with its last URL.
type installCmd struct {
	Row  Stored
	Grow int64 // bytes by which a pinned URL may grow; one that grows by more loses its pin
}

func (installCmd) Kind() string { return "edge.install/1" }

func (c installCmd) Apply(r store.Reader, at store.Stamp, w *store.Writes) (change, error) {
	listed, _ := keys.Get(r, keyOf(c.Row.URL))
	return c.Row.install(r, at, w, listed.Pinned && c.Row.Size-listed.Size <= c.Grow), nil
}

// install adds the row of a stored object, and makes it the object of its URL.
func (s Stored) install(r store.Reader, at store.Stamp, w *store.Writes, pinned bool) (done change) {
	key := pathKey(s.URL)
	old, known := paths.Get(r, key)
	listed, _ := keys.Get(r, keyOf(s.URL))
	keyRow{Fetched: at.At, Size: s.Size, Pinned: pinned}.put(w, s.URL, listed, &done)
	paths.Put(w, key, s)
	done.moved = known
	if known && old.Digest == s.Digest {
		return done
	}
	if known {
		b, _ := blobs.Get(r, old.Digest)
		done.unlink(w, old.Digest, b, 1)
	} else {
		done.urls++
	}
	b, stored := blobs.Get(r, s.Digest)
	if !stored {
		b = blobRow{Size: s.Size, Type: s.Type}
		done.bytes, done.objects = done.bytes+b.Size, done.objects+1
	}
	b.Refs++
	blobs.Put(w, s.Digest, b)
	return done
}

// unlink removes n URLs from an object, and deletes an object without URLs.
func (done *change) unlink(w *store.Writes, name b3.Digest, b blobRow, n int64) {
	if b.Refs -= n; b.Refs > 0 {
		blobs.Put(w, name, b)
		return
	}
	blobs.Delete(w, name)
	done.bytes, done.objects, done.freed = done.bytes-b.Size, done.objects-1, append(done.freed, name)
}

// dropCmd removes URLs, and each object with its last URL.
type dropCmd struct {
	Keys []b3.Digest // distinct
	Lost bool        // the object is damaged, and its URLs keep their pins; if false, no URL is pinned
}

func (dropCmd) Kind() string { return "edge.drop/1" }

func (c dropCmd) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done change, err error) {
	var rows []Stored
	for _, key := range c.Keys {
		row, known := paths.Get(r, key)
		if !known {
			continue
		}
		rows = append(rows, row)
		listed, _ := keys.Get(r, keyOf(row.URL))
		if c.Lost {
			listed.markLost(w, row.URL, &done)
		} else {
			listed.drop(w, row.URL, &done)
		}
	}
	done.removePaths(r, w, rows)
	return done, nil
}

// removePaths removes rows of edge/paths, and each object with its last URL. It skips the zero
// Stored.
func (done *change) removePaths(r store.Reader, w *store.Writes, rows []Stored) {
	var names []b3.Digest
	left := map[b3.Digest]int64{}
	for _, row := range rows {
		if row.URL == "" {
			continue
		}
		paths.Delete(w, pathKey(row.URL))
		done.urls, done.moved = done.urls-1, true
		if left[row.Digest]++; left[row.Digest] == 1 {
			names = append(names, row.Digest)
		}
	}
	for _, name := range names {
		b, _ := blobs.Get(r, name)
		done.unlink(w, name, b, left[name])
	}
}

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
	if t.Bucket() == bPaths {
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
