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

// The tables. Hashed and served bytes are stored raw. Every row has a checksum, so a row that the
// disk has changed is an error of the store.
var (
	// tenant‖0‖id
	policies = store.NewTable(&store.Bucket{Name: "rw/policy"}, store.String[string](), store.CBOR[Policy]()).
			Summed().
			Alone()
	// id
	uploads = store.NewTable(&store.Bucket{Name: "rw/upload"}, store.Array32[b3.Digest](), store.CBOR[Upload]()).
		Summed().
		Alone()
	// rows of an upload
	chunks = store.NewTable(&store.Bucket{Name: "rw/chunk"}, pieceKeys(), store.Raw()).Summed()
	// inputs cid
	inputs = store.NewTable(&store.Bucket{Name: "rw/input"}, store.Array32[b3.Digest](), store.CBOR[Input]()).
		Summed().
		Alone()
	// tenant‖0‖epoch
	slots = store.NewTable(&store.Bucket{Name: "rw/epoch"}, store.String[string](), store.CBOR[Run]()).Summed().Alone()
	// run key
	sealed = store.NewTable(&store.Bucket{Name: "rw/sealed"}, store.Array32[b3.Digest](), store.CBOR[sealedRow]()).
		Summed()
	// allocations of a run, 512 per row
	allocs = store.NewTable(&store.Bucket{Name: "rw/alloc"}, pieceKeys(), store.Raw()).Summed()
	// paid or parked intents of a run
	intents = store.NewTable(&store.Bucket{Name: "rw/intent"}, pieceKeys(), store.CBOR[Intent]()).Summed().Alone()
	// parked payees of a run, by leaf
	parked = store.NewTable(&store.Bucket{Name: "rw/parked"}, pieceKeys(), store.CBOR[Parked]()).Summed().Alone()
	// token → number of runs that it has started, if it has max_runs
	started = store.NewTable(&store.Bucket{Name: "rw/started"}, store.String[string](), store.CBOR[uint64]()).
		Summed().
		Alone()
	// run key, kind of pending work → slot
	todos = store.NewTable(&store.Bucket{Name: "rw/todo"}, pieceKeys(), store.Raw()).Summed()
)

// Buckets lists the rewarder's buckets.
func Buckets() []*store.Bucket {
	return []*store.Bucket{
		policies.Bucket(),
		uploads.Bucket(),
		chunks.Bucket(),
		inputs.Bucket(),
		slots.Bucket(),
		sealed.Bucket(),
		allocs.Bucket(),
		intents.Bucket(),
		parked.Bucket(),
		started.Bucket(),
		todos.Bucket(),
	}
}

func textKey(b []byte) (string, error) { return string(b), nil }

func digestKey(b []byte) (d b3.Digest, err error) {
	if len(b) != b3.Size {
		return d, errLength
	}
	return b3.Digest(b), nil
}

// sealedRow is the result of a run, beside its slot.
type sealedRow struct {
	Header []byte      `cbor:"1,keyasint"`
	Roots  []b3.Digest `cbor:"2,keyasint"` // of its chunks
}

// scoped returns the key of a name of a tenant.
func scoped(tenant, name string) string { return tenant + "\x00" + name }

// piece is the key of a numbered part: a chunk of an upload, a chunk or an intent of a run, or a
// kind of pending work of a run.
type piece struct {
	id b3.Digest
	n  uint32
}

// Kinds of pending work of a run, which survive a restart.
const (
	toCompute uint32 = iota
	toPay
	toWrite // write the artifact files
	paused  // nothing to do until Emit: the row exists to be counted
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

// must reads a row that another row refers to. It panics with a *store.RowError if the row is
// missing.
func must[K, V any](r store.Reader, t store.Table[K, V], key K) V {
	v, ok := get(r, t, key)
	if !ok {
		panic(&store.RowError{Bucket: t.Bucket().Name, Key: keyOf(key), Cause: errMissing})
	}
	return v
}

// get reads the row of key. A table with Alone trusts that a row is absent only if its neighbours
// are sound. get steps over one damaged neighbour if it cannot be the row of key with a damaged key
// and the next row is sound and on the expected side of key. So a damaged row blocks only its own
// run.
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

// passes reports whether rows, which begin next to the place of key, show that key has no row on
// this side: the first or second row is sound and on the expected side, and a damaged row before it
// is not the row of key.
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

// keyOf returns the encoded key of any table.
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

// readChunk reads the allocations of a chunk with their leaves. It panics with a *store.RowError
// unless they have the sealed root.
func readChunk(
	r store.Reader, key b3.Digest, roots []b3.Digest, c uint32,
) (all []record.Allocation, leaves []b3.Digest) {
	all, leaves, ok := cutChunk(key, c, must(r, allocs, piece{key, c}))
	if !ok || int(c) >= len(roots) || record.Root(leaves) != roots[c] {
		panic(&store.RowError{Bucket: allocs.Bucket().Name, Key: keyOf(piece{key, c}), Cause: errRoot})
	}
	return all, leaves
}

// command is a change of the file. Its values were decided before it was made.
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
