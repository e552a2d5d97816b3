package rewarder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// The tables. What is hashed or served is stored raw. Every row has a checksum: one that a disk has changed is an error of the store, not a run.
var (
	policies = store.NewTable(&store.Bucket{Name: "rw/policy"}, store.String[string](), store.CBOR[Policy]()).Summed().Alone()     // tenant‖0‖id
	uploads  = store.NewTable(&store.Bucket{Name: "rw/upload"}, store.Array32[b3.Digest](), store.CBOR[Upload]()).Summed().Alone() // id
	chunks   = store.NewTable(&store.Bucket{Name: "rw/chunk"}, pieceKeys(), store.Raw()).Summed()                                  // rows of an upload
	inputs   = store.NewTable(&store.Bucket{Name: "rw/input"}, store.Array32[b3.Digest](), store.CBOR[Input]()).Summed().Alone()   // inputs cid
	slots    = store.NewTable(&store.Bucket{Name: "rw/epoch"}, store.String[string](), store.CBOR[Run]()).Summed().Alone()         // tenant‖0‖epoch
	sealed   = store.NewTable(&store.Bucket{Name: "rw/sealed"}, store.Array32[b3.Digest](), store.CBOR[sealedRow]()).Summed()      // run key
	allocs   = store.NewTable(&store.Bucket{Name: "rw/alloc"}, pieceKeys(), store.Raw()).Summed()                                  // of a run, 512 a row
	intents  = store.NewTable(&store.Bucket{Name: "rw/intent"}, pieceKeys(), store.CBOR[Intent]()).Summed().Alone()                // of a run, those that are done
	todos    = store.NewTable(&store.Bucket{Name: "rw/todo"}, pieceKeys(), store.Raw()).Summed()                                   // run key, what is left to do → slot
)

// Buckets lists the rewarder's buckets.
func Buckets() []*store.Bucket {
	return []*store.Bucket{
		policies.Bucket(), uploads.Bucket(), chunks.Bucket(), inputs.Bucket(), slots.Bucket(), sealed.Bucket(), allocs.Bucket(), intents.Bucket(), todos.Bucket(),
	}
}

func textKey(b []byte) (string, error) { return string(b), nil }

func digestKey(b []byte) (d b3.Digest, err error) {
	if len(b) != b3.Size {
		return d, errLength
	}
	return b3.Digest(b), nil
}

// sealedRow is what a run has come to, beside its slot.
type sealedRow struct {
	Header []byte      `cbor:"1,keyasint"`
	Roots  []b3.Digest `cbor:"2,keyasint"` // of its chunks
}

// scoped is a name of a tenant, as a key.
func scoped(tenant, name string) string { return tenant + "\x00" + name }

// piece is a numbered part of something: a chunk of an upload, a chunk or an intent of a run, what is left to do for it.
type piece struct {
	id b3.Digest
	n  uint32
}

// What is left to do for a run, which a boot finds again.
const (
	toCompute uint32 = iota
	toPay
	toWrite // to disk
)

var (
	errLength  = errors.New("wrong length")
	errMissing = errors.New("is missing")
	errRoot    = errors.New("is not what was sealed")
)

func pieceKeys() store.Key[piece] {
	return store.Key[piece]{
		Append: func(dst []byte, p piece) []byte { return binary.BigEndian.AppendUint32(append(dst, p.id[:]...), p.n) },
		Decode: func(b []byte) (piece, error) {
			if len(b) != b3.Size+4 {
				return piece{}, errLength
			}
			return piece{b3.Digest(b[:b3.Size]), binary.BigEndian.Uint32(b[b3.Size:])}, nil
		},
	}
}

// must reads a row that another one speaks of: without it the file is damaged.
func must[K, V any](r store.Reader, t store.Table[K, V], key K) V {
	v, ok := get(r, t, key)
	if !ok {
		panic(&store.RowError{Bucket: t.Bucket().Name, Key: keyOf(key), Cause: errMissing})
	}
	return v
}

// get reads the row of key. A table that is alone believes that a row is absent only if the rows beside its place are sound. One damaged
// row there is passed over here if it is not the row of key with a damaged key, and the row beyond it shows that the search did not go astray: so a
// damaged row stands in the way of its own run alone.
func get[K, V any](r store.Reader, t store.Table[K, V], key K) (v V, ok bool) {
	bad := attempt(func() { v, ok = t.Get(r, key) })
	if bad == nil {
		return v, ok
	}
	k, b := keyOf(key), t.Bucket()
	if bytes.Equal(bad.Key, k) || !passes(r.RangeBack(b, nil, k), k, -1) || !passes(r.Range(b, k, nil), k, 1) {
		panic(bad)
	}
	return v, false
}

// passes reports whether rows, which begin beside the place of key, show that key has no row on this side: a sound row beyond it is the first or the
// second one, and the one before that is not the row of key.
func passes(rows iter.Seq2[[]byte, []byte], key []byte, side int) bool {
	damaged := 0
	for k, row := range rows {
		if _, err := store.CutSum(k, row); err == nil {
			return bytes.Compare(k, key) == side
		}
		if _, err := store.CutSum(key, row); err == nil || damaged > 0 {
			return false
		}
		damaged++
	}
	return true
}

// keyOf returns the bytes of a key of any table.
func keyOf[K any](key K) []byte {
	switch k := any(key).(type) {
	case piece:
		return pieceKeys().Append(nil, k)
	case b3.Digest:
		return k[:]
	case string:
		return []byte(k)
	}
	return nil
}

// readChunk reads the allocations of a chunk of a run with their leaves, which must have the root that was sealed.
func readChunk(r store.Reader, key b3.Digest, roots []b3.Digest, c uint32) (all []record.Allocation, leaves []b3.Digest) {
	all, leaves, ok := cutChunk(key, c, must(r, allocs, piece{key, c}))
	if !ok || int(c) >= len(roots) || record.Root(leaves) != roots[c] {
		panic(&store.RowError{Bucket: allocs.Bucket().Name, Key: keyOf(piece{key, c}), Cause: errRoot})
	}
	return all, leaves
}

// command is a change of the file, whose values were decided before it was made.
type command[R any] struct {
	kind string
	size int
	do   func(r store.Reader, w *store.Writes) (R, error)
}

func (c command[R]) Kind() string { return service + "." + c.kind + "/1" }
func (c command[R]) Size() int    { return c.size }

func (c command[R]) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (R, error) {
	return c.do(r, w)
}
