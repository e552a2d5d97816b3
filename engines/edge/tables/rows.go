package tables

import (
	"bytes"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/store"
)

// The buckets of objects. They are derived: the objects are files
// beside the database, and a lost object can be fetched again.
var (
	bPaths = &store.Bucket{Name: "edge/paths", Class: store.Derived}
	bBlobs = &store.Bucket{Name: "edge/blobs", Class: store.Derived}
)

// Buckets returns the buckets of the content store.
func Buckets() []*store.Bucket { return []*store.Bucket{bPaths, bBlobs, bKeys, bAnnounced} }

// Stored is a row of edge/paths. It describes the object of a URL. Its key is the BLAKE3 of the
// URL, because a URL may be longer than a key.
type Stored struct {
	URL    string    `cbor:"1,keyasint"`
	Path   string    `cbor:"2,keyasint"` // below /edge/assets/
	Digest b3.Digest `cbor:"3,keyasint"`
	Size   int64     `cbor:"4,keyasint"`
	Type   string    `cbor:"5,keyasint"` // media type

	// Checked is the time of the host's last answer for the URL, in Unix ns. It is 0 in a row of a
	// file of schema 5 or earlier, whose URL may have an old spelling.
	Checked int64  `cbor:"6,keyasint,omitempty"`
	Fresh   int64  `cbor:"7,keyasint,omitempty"` // the object is stale from then on, in Unix ns
	Tag     string `cbor:"8,keyasint,omitempty"` // the host's entity tag
	Demand  bool   `cbor:"9,keyasint,omitempty"` // the host demands that a stale object is not used unasked
}

// RowOf returns the row of an object that has no URL of a host.
func RowOf(d b3.Digest, size int64, kind string) Stored {
	return Stored{URL: d.String(), Path: asset.PathOf(d), Digest: d, Size: size, Type: kind}
}

// BlobRow is a row of edge/blobs. It describes an object with a file; its key is the digest.
type BlobRow struct {
	Size int64  `cbor:"1,keyasint"`
	Type string `cbor:"2,keyasint"` // as stored first
	Refs int64  `cbor:"3,keyasint"` // URLs that lead to it, at least 1
}

// digests is the form of keys that are digests.
var digests = store.Array32[b3.Digest]()

// The tables.
var (
	Paths = store.NewTable(bPaths, digests, store.CBOR[Stored]()).Summed().Alone()
	Blobs = store.NewTable(bBlobs, digests, store.CBOR[BlobRow]()).Summed().Alone()
)

// PathKey returns the key of a URL in edge/paths.
func PathKey(url string) b3.Digest { return b3.Sum([]byte(url)) }

// bKeys lists the URLs of edge/paths in order, with their pins.
var bKeys = &store.Bucket{Name: "edge/keys", Class: store.Derived}

// KeyRow is a row of edge/keys. It describes a URL beside its row of edge/paths.
type KeyRow struct {
	Fetched int64  `cbor:"1,keyasint"`           // Unix ns of the last fill; 0 if an older release made it
	Size    int64  `cbor:"2,keyasint"`           // bytes of the object; 0 if it is lost
	Tail    string `cbor:"3,keyasint,omitempty"` // the part of the URL after the first KeyHead bytes
	Pinned  bool   `cbor:"4,keyasint,omitempty"` // not evicted
	Lost    bool   `cbor:"5,keyasint,omitempty"` // pinned, without a row of edge/paths: the object was damaged
}

// URLKey is the key of a KeyRow.
type URLKey struct {
	Head string // the first bytes of the URL
	Hash b3.Digest
}

// KeyHead is the number of bytes of a URL that its key holds: a key has at most store.MaxKey
// bytes.
const KeyHead = 400

var urlKeys = store.Key[URLKey]{
	Append: func(dst []byte, k URLKey) []byte { return append(append(append(dst, k.Head...), 0), k.Hash[:]...) },
	Decode: func(b []byte) (k URLKey, err error) {
		at := len(b) - b3.Size - 1
		if at < 0 || bytes.IndexByte(b, 0) != at {
			return k, errors.New("a key is a URL, NUL and a hash")
		}
		return URLKey{string(b[:at]), b3.Digest(b[at+1:])}, nil
	},
}

// Keys is the table of edge/keys.
var Keys = store.NewTable(bKeys, urlKeys, store.CBOR[KeyRow]()).Summed().Alone()

// KeyOf returns the key of a URL in edge/keys.
func KeyOf(url string) URLKey { return URLKey{url[:min(len(url), KeyHead)], PathKey(url)} }

// URL returns the whole URL of the row with key k.
func (r KeyRow) URL(k URLKey) string { return k.Head + r.Tail }

// Pins returns the contribution of the row to a tally.
func (r KeyRow) Pins() Tally {
	if !r.Pinned {
		return Tally{}
	}
	t := Tally{Pinned: r.Size, Pins: 1}
	if r.Lost {
		t.lost = 1
	}
	return t
}

// put writes the row of a URL in place of old, and adds the change of pins to done.
func (r KeyRow) put(w *store.Writes, url string, old KeyRow, done *Change) {
	r.Tail = url[min(len(url), KeyHead):]
	Keys.Put(w, KeyOf(url), r)
	done.Tally.Add(r.Pins())
	done.Tally.Sub(old.Pins())
}

// drop deletes the row of a URL, and adds the change of pins to done.
func (r KeyRow) drop(w *store.Writes, url string, done *Change) {
	Keys.Delete(w, KeyOf(url))
	done.Tally.Sub(r.Pins())
}

// markLost records that the object of a URL was lost by damage. A pinned row stays.
func (r KeyRow) markLost(w *store.Writes, url string, done *Change) {
	if !r.Pinned {
		r.drop(w, url, done)
		return
	}
	KeyRow{Fetched: r.Fetched, Pinned: true, Lost: true}.put(w, url, r, done)
}

// Change describes the effect of a command on the content store.
type Change struct {
	Tally
	Freed []b3.Digest // objects that no longer have a row
	Moved bool        // a URL leads to another object, or to none
}

// Add adds the effect of another command.
func (c *Change) Add(d Change) {
	c.Tally.Add(d.Tally)
	c.Freed, c.Moved = append(c.Freed, d.Freed...), c.Moved || d.Moved
}

// Install adds the row of an object after its file has its final name. A URL that led to
// another object no longer leads to that one, which is removed with its last URL.
type Install struct {
	Row  Stored
	Grow int64 // bytes by which a pinned URL may grow; one that grows by more loses its pin
}

// Kind returns a name that is stored in the file.
func (Install) Kind() string { return "edge.install/1" }

// Apply adds the row.
func (c Install) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Change, error) {
	listed, _ := Keys.Get(r, KeyOf(c.Row.URL))
	return c.Row.install(r, at, w, listed.Pinned && c.Row.Size-listed.Size <= c.Grow), nil
}

// install adds the row of a stored object, and makes it the object of its URL.
func (s Stored) install(r store.Reader, at store.Stamp, w *store.Writes, pinned bool) (done Change) {
	key := PathKey(s.URL)
	old, known := Paths.Get(r, key)
	listed, _ := Keys.Get(r, KeyOf(s.URL))
	KeyRow{Fetched: at.At, Size: s.Size, Pinned: pinned}.put(w, s.URL, listed, &done)
	Paths.Put(w, key, s)
	done.Moved = known
	if known && old.Digest == s.Digest {
		return done
	}
	if known {
		b, _ := Blobs.Get(r, old.Digest)
		done.unlink(w, old.Digest, b, 1)
	} else {
		done.URLs++
	}
	b, stored := Blobs.Get(r, s.Digest)
	if !stored {
		b = BlobRow{Size: s.Size, Type: s.Type}
		done.Bytes, done.Objects = done.Bytes+b.Size, done.Objects+1
	}
	b.Refs++
	Blobs.Put(w, s.Digest, b)
	return done
}

// unlink removes n URLs from an object, and deletes an object without URLs.
func (done *Change) unlink(w *store.Writes, name b3.Digest, b BlobRow, n int64) {
	if b.Refs -= n; b.Refs > 0 {
		Blobs.Put(w, name, b)
		return
	}
	Blobs.Delete(w, name)
	done.Bytes, done.Objects, done.Freed = done.Bytes-b.Size, done.Objects-1, append(done.Freed, name)
}

// Drop removes URLs, and each object with its last URL.
type Drop struct {
	Keys []b3.Digest // distinct
	Lost bool        // the object is damaged, and its URLs keep their pins; if false, no URL is pinned
}

// Kind returns a name that is stored in the file.
func (Drop) Kind() string { return "edge.drop/1" }

// Apply skips URLs without a row.
func (c Drop) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done Change, err error) {
	var rows []Stored
	for _, key := range c.Keys {
		row, known := Paths.Get(r, key)
		if !known {
			continue
		}
		rows = append(rows, row)
		listed, _ := Keys.Get(r, KeyOf(row.URL))
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
func (done *Change) removePaths(r store.Reader, w *store.Writes, rows []Stored) {
	var names []b3.Digest
	left := map[b3.Digest]int64{}
	for _, row := range rows {
		if row.URL == "" {
			continue
		}
		Paths.Delete(w, PathKey(row.URL))
		done.URLs, done.Moved = done.URLs-1, true
		if left[row.Digest]++; left[row.Digest] == 1 {
			names = append(names, row.Digest)
		}
	}
	for _, name := range names {
		b, _ := Blobs.Get(r, name)
		done.unlink(w, name, b, left[name])
	}
}

// Tally counts stored content, or a difference between two such counts.
type Tally struct {
	Bytes, Objects, URLs int64
	Pinned, Pins         int64 // pinned bytes and URLs; an object counts for each of its pinned URLs
	lost                 int64 // pins without an object, which URLs does not count
}

// Add adds a difference.
func (t *Tally) Add(d Tally) {
	t.Bytes += d.Bytes
	t.Objects += d.Objects
	t.URLs += d.URLs
	t.Pinned += d.Pinned
	t.Pins += d.Pins
	t.lost += d.lost
}

// Sub subtracts a difference.
func (t *Tally) Sub(d Tally) {
	t.Add(Tally{-d.Bytes, -d.Objects, -d.URLs, -d.Pinned, -d.Pins, -d.lost})
}

// Loose returns how much of the content is not pinned. bytes is a lower bound, because an object
// with several pinned URLs is subtracted for each of them.
func (t Tally) Loose() (bytes, urls int64) {
	return max(0, t.Bytes-t.Pinned), max(0, t.URLs-t.Pins+t.lost)
}
