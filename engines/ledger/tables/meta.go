package tables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/store"
)

// Flushed is how far the derived tables have followed the journal; what lies beyond is redone at
// open.
type Flushed struct {
	Seq     uint64 // every row has seen the records up to it; some have seen later ones
	Batches uint64 // the log of batch roots holds this many leaves
}

// Format is the layout of the tables, written when a ledger begins. Its own row has no checksum, so
// that any layout can be told.
const Format = 4

// FormatClosed is the layout from the first closed period on: records below the horizon are in no
// table, and what came of them is in the base.
const FormatClosed = 5

// StoreKey hashes the idempotency keys of one ledger, so that nobody can choose their hashes.
type StoreKey [32]byte

var (
	formats   = store.NewTable(bMeta, store.String[string](), u64Value())
	storeKeys = store.NewTable(bMeta, store.String[string](), fixed(1, len(StoreKey{}),
		func(b []byte, k *StoreKey) { copy(b, k[:]) },
		func(b []byte, k *StoreKey) error { copy(k[:], b); return nil })).Summed()
	// The note has no checksum: a damaged one has the same effect.
	doubts = store.NewTable(bMeta, store.String[string](), store.Value[string]{
		Encode: func(why string) ([]byte, error) { return []byte(why), nil },
		Decode: func(b []byte) (string, error) { return string(b), nil },
	})
	imports = store.NewTable(bMeta, store.String[string](), u64Value()).Summed()
	flushes = store.NewTable(bFlush, store.String[string](), fixed(1, 16,
		func(b []byte, f *Flushed) { le.PutUint64(b, f.Seq); le.PutUint64(b[8:], f.Batches) },
		func(b []byte, f *Flushed) error { f.Seq, f.Batches = le.Uint64(b), le.Uint64(b[8:]); return nil })).Summed()
)

// Keys of ledger/meta and ledger/flush.
const (
	keyHead     = "head"
	keyFormat   = "format"
	keyStoreKey = "store_key"
	keyDoubt    = "doubt"
	keyLow      = "low_seq"
	keyHorizon  = "horizon"
	keyClosing  = "closing"
	keyImported = "imported"
)

// metaNames lists the keys of ledger/meta.
var metaNames = []string{keyHead, keyFormat, keyStoreKey, keyDoubt, keyHorizon, keyClosing, keyImported}

// GetFormat reads the layout the ledger began with.
func GetFormat(r store.Reader) (uint64, bool) { return formats.Get(r, keyFormat) }

// CheckFormat refuses tables that are laid out as this program does not know. A ledger that has not
// begun has none.
func CheckFormat(r store.Reader) error {
	if f, begun := GetFormat(r); begun && f != Format && f != FormatClosed {
		return fmt.Errorf("the format of the ledger's tables is %d, this program knows %d and %d: %w", f, Format,
			FormatClosed, store.ErrSchema)
	}
	return nil
}

// GetStoreKey reads the key of the idempotency keys' hashes.
func GetStoreKey(r store.Reader) (StoreKey, bool) { return storeKeys.Get(r, keyStoreKey) }

// CheckMeta returns an error if ledger/meta has a row with an unknown name, or lacks a row of a
// ledger that has begun. Only a ledger without records, batches and rows of ledger/meta has not
// begun.
func CheckMeta(r store.Reader) error {
	has := make(map[string]bool, len(metaNames))
	for key := range r.Range(bMeta, nil, nil) {
		if !slices.Contains(metaNames, string(key)) {
			return wrong(bMeta, key, "this name is unknown")
		}
		has[string(key)] = true
	}
	_, _, headers := batches.Last(r)
	written := LastSeq(r) != 0 || headers
	for _, must := range []struct {
		key string
		be  bool
	}{{keyHead, written}, {keyFormat, written || len(has) > 0}, {keyStoreKey, written || len(has) > 0}} {
		if must.be && !has[must.key] {
			return missing(bMeta, []byte(must.key))
		}
	}
	GetHead(r) // each ends the view if its row is damaged
	GetStoreKey(r)
	GetHorizon(r)
	GetImported(r)
	return nil
}

// CheckNames returns store.ErrCorrupt if the store has counted other names in the buckets that do
// not follow from the journal.
func CheckNames(r store.Reader) error {
	return store.CheckNames(r, 0, bMeta, bMoved, bFlush, Scales, bPeriods)
}

// CheckRecents is CheckNames for ledger/recent. A missing row of it means that ledger/state has an
// older one.
func CheckRecents(r store.Reader) error { return store.CheckNames(r, 0, bRecent) }

// PutGenesis writes the first rows of a new ledger.
func PutGenesis(w *store.Writes, key StoreKey) {
	formats.Put(w, keyFormat, Format)
	storeKeys.Put(w, keyStoreKey, key)
}

// GetImported reads the seq up to which records that close a period are of the ledger from which
// this one was imported, and close nothing here. It is 0 if there are none.
func GetImported(r store.Reader) uint64 {
	seq, _ := imports.Get(r, keyImported)
	return seq
}

// PutImported writes it.
func PutImported(w *store.Writes, seq uint64) { imports.Put(w, keyImported, seq) }

// maxDoubt bounds the note, bytes: an error's words.
const maxDoubt = 512

// GetDoubt reads why the ledger is not written until all of it was verified, "" for no reason.
func GetDoubt(r store.Reader) string {
	why, _ := doubts.Get(r, keyDoubt)
	return why
}

// PutDoubt writes it; "" takes it out.
func PutDoubt(w *store.Writes, why string) {
	if why == "" {
		doubts.Delete(w, keyDoubt)
		return
	}
	doubts.Put(w, keyDoubt, strings.ToValidUTF8(why[:min(len(why), maxDoubt)], ""))
}

// GetFlushed reads how far the derived tables have come; the zero Flushed is nowhere.
func GetFlushed(r store.Reader) Flushed {
	f, _ := flushes.Get(r, keyLow)
	return f
}

// PutFlushed writes how far the derived tables have come.
func PutFlushed(w *store.Writes, f Flushed) { flushes.Put(w, keyLow, f) }

// The ledger's buckets. Integers in keys are big-endian.
var (
	bJournal = &store.Bucket{Name: "ledger/journal", Append: true, Proven: true} // seq: record
	bBatches = &store.Bucket{Name: "ledger/batches", Append: true, Proven: true} // batch number: header
	bMeta    = &store.Bucket{Name: "ledger/meta"}                                // head, format, store key
	bMoved   = &store.Bucket{Name: "ledger/moved"}                               // day, token, asset: amount

	// account, asset: balance; asset 0: the account itself
	bState = &store.Bucket{Name: "ledger/state", Class: store.Derived, Proven: true}
	// the same, of rows that change often: newer than those of ledger/state
	bRecent = &store.Bucket{Name: "ledger/recent", Class: store.Derived}
	bNames  = &store.Bucket{Name: "ledger/names", Class: store.Derived, Proven: true} // kind, name: ref
	bRefs   = &store.Bucket{Name: "ledger/refs", Class: store.Derived, Proven: true}  // kind, ref: name
	bHolds  = &store.Bucket{Name: "ledger/holds", Class: store.Derived, Proven: true} // seq: hold
	// expiry, seq of every open hold
	bEnds  = &store.Bucket{Name: "ledger/hold_ends", Class: store.Derived, Proven: true}
	bMarks = &store.Bucket{Name: "ledger/marks", Class: store.Derived, Proven: true} // account, asset, number: seq
	// position: node of the log of batch roots
	bMlog  = &store.Bucket{Name: "ledger/mlog", Class: store.Derived, Append: true, Proven: true}
	bOnce  = &store.Bucket{Name: "ledger/once", Class: store.Derived, Proven: true} // permanent ids and guards
	bFlush = &store.Bucket{Name: "ledger/flush", Class: store.Derived}              // how far the derived rows lag

	// Scales holds the decimals of assets: asset: decimals, seq of the record that set them.
	// Nothing else shows that a row is lost.
	Scales = &store.Bucket{Name: "ledger/scales", Class: store.Derived}

	// Idem holds the sealed runs of the idempotency index, one sub-bucket each.
	Idem = &store.Bucket{Name: "ledger/idem", Class: store.Derived, Append: true, Subs: true, Proven: true}
)

// Buckets lists the ledger's buckets.
func Buckets() []*store.Bucket {
	all := append([]*store.Bucket{bJournal, bBatches, bMeta}, DerivedBuckets()...)
	return append(append(all, bMoved), PeriodBuckets()...)
}

// DerivedBuckets lists those that a rebuild makes again.
func DerivedBuckets() []*store.Bucket {
	return []*store.Bucket{bState, bRecent, bNames, bRefs, bHolds, bEnds, bMarks, bMlog, bOnce, bFlush, Scales, Idem}
}

var (
	errLength  = errors.New("wrong length")
	errVersion = errors.New("unknown version")
	errNumber  = errors.New("a number is out of its range")
)

// fixed is a value of size bytes behind the version byte. put fills them, get reads them.
func fixed[V any](version byte, size int, put func(b []byte, v *V), get func(b []byte, v *V) error) store.Value[V] {
	return store.Value[V]{
		Encode: func(v V) ([]byte, error) {
			b := make([]byte, 1+size, 1+size+store.SumSize)
			b[0] = version
			put(b[1:], &v)
			return b, nil
		},
		Decode: func(b []byte) (v V, err error) {
			if len(b) != 1+size {
				return v, errLength
			}
			if b[0] != version {
				return v, errVersion
			}
			err = get(b[1:], &v)
			return v, err
		},
	}
}

func u64Value() store.Value[uint64] {
	return fixed(1, 8,
		func(b []byte, v *uint64) { le.PutUint64(b, *v) },
		func(b []byte, v *uint64) error { *v = le.Uint64(b); return nil })
}

func digestValue() store.Value[b3.Digest] {
	return fixed(1, b3.Size,
		func(b []byte, d *b3.Digest) { copy(b, d[:]) },
		func(b []byte, d *b3.Digest) error { copy(d[:], b); return nil })
}

// textValue is a version byte and a text.
func textValue() store.Value[string] {
	return store.Value[string]{
		Encode: func(s string) ([]byte, error) { return append([]byte{1}, s...), nil },
		Decode: func(b []byte) (string, error) {
			if len(b) < 2 {
				return "", errLength
			}
			if b[0] != 1 {
				return "", errVersion
			}
			return string(b[1:]), nil
		},
	}
}

// rawValue stores bytes as they are. Bytes that are read are valid until the end of the view.
func rawValue() store.Value[[]byte] {
	return store.Value[[]byte]{
		Encode: func(b []byte) ([]byte, error) { return b, nil },
		Decode: func(b []byte) ([]byte, error) { return b, nil },
	}
}

var le = binary.LittleEndian

func putAmount(b []byte, a engines.Amount) {
	hi, lo := a.Parts()
	le.PutUint64(b, lo)
	le.PutUint64(b[8:], hi)
}

// missing says that a row is not there that another one leads to.
func missing(b *store.Bucket, key []byte) error { return wrong(b, key, "it is not there") }

func wrong(b *store.Bucket, key []byte, format string, args ...any) error {
	return &store.RowError{Bucket: b.Name, Key: slices.Clone(key), Cause: fmt.Errorf(format, args...)}
}
