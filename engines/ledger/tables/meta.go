package tables

import (
	"fmt"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// Head is where the journal ends, and what the next command counts on from. It is written by the commit that answers.
type Head struct {
	Seq       uint64    // of the newest record
	Batches   uint64    // how many there are
	At        int64     // of the newest batch, Unix ns
	LastRoot  b3.Digest // of the newest batch
	Accounts  uint64    // refs given to accounts: 1 to this
	Assets    uint32    // refs given to assets: 1 to this
	OpenHolds uint64
	Tail      Tail // the headers of the newest batches
}

// Flushed is how far the derived tables have followed the journal; what lies beyond is redone at open.
type Flushed struct {
	Seq     uint64 // every row has seen the records up to it; some have seen later ones
	Batches uint64 // the log of batch roots holds this many leaves
}

// Format is the layout of the tables, written when a ledger begins. Its own row has no checksum, so that any layout can be told.
const Format = 4

// StoreKey hashes the idempotency keys of one ledger, so that nobody can choose their hashes.
type StoreKey [32]byte

var (
	heads     = store.NewTable(bMeta, store.String[string](), headValue()).Summed()
	formats   = store.NewTable(bMeta, store.String[string](), u64Value())
	storeKeys = store.NewTable(bMeta, store.String[string](), fixed(1, len(StoreKey{}),
		func(b []byte, k *StoreKey) { copy(b, k[:]) },
		func(b []byte, k *StoreKey) error { copy(k[:], b); return nil })).Summed()
	// It has no checksum: damaged, it says doubt all the same.
	doubts = store.NewTable(bMeta, store.String[string](), store.Value[string]{
		Encode: func(why string) ([]byte, error) { return []byte(why), nil },
		Decode: func(b []byte) (string, error) { return string(b), nil },
	})
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
)

// GetHead reads the head; the zero Head is that of a ledger without records.
func GetHead(r store.Reader) (Head, bool) { return heads.Get(r, keyHead) }

// PutHead writes the head.
func PutHead(w *store.Writes, h Head) { heads.Put(w, keyHead, h) }

// GetFormat reads the layout the ledger began with.
func GetFormat(r store.Reader) (uint64, bool) { return formats.Get(r, keyFormat) }

// CheckFormat refuses tables that are laid out as this program does not know. A ledger that has not begun has none.
func CheckFormat(r store.Reader) error {
	if f, begun := GetFormat(r); begun && f != Format {
		return fmt.Errorf("the format of the ledger's tables is %d, this program knows %d: %w", f, Format, store.ErrSchema)
	}
	return nil
}

// GetStoreKey reads the key of the idempotency keys' hashes.
func GetStoreKey(r store.Reader) (StoreKey, bool) { return storeKeys.Get(r, keyStoreKey) }

// PutGenesis writes what a ledger begins with.
func PutGenesis(w *store.Writes, key StoreKey) {
	formats.Put(w, keyFormat, Format)
	storeKeys.Put(w, keyStoreKey, key)
}

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

// The row of the head: its version, the numbers, then the headers that wait.
const (
	headV2   = 2
	headSize = 36 + b3.Size + 8
)

func headValue() store.Value[Head] {
	numbers := fixed(headV2, headSize, putHead, getHead)
	return store.Value[Head]{
		Encode: func(h Head) ([]byte, error) {
			b, err := numbers.Encode(h)
			return append(b, h.Tail.raw...), err
		},
		Decode: func(b []byte) (Head, error) {
			n := min(len(b), 1+headSize)
			h, err := numbers.Decode(b[:n])
			if h.Tail.raw = string(b[n:]); err == nil && (len(b)-n)%record.BatchSize != 0 {
				err = errLength
			}
			return h, err
		},
	}
}

func putHead(b []byte, h *Head) {
	le.PutUint64(b, h.Seq)
	le.PutUint64(b[8:], h.Batches)
	le.PutUint64(b[16:], uint64(h.At))
	le.PutUint64(b[24:], h.Accounts)
	le.PutUint32(b[32:], h.Assets)
	copy(b[36:], h.LastRoot[:])
	le.PutUint64(b[36+b3.Size:], h.OpenHolds)
}

func getHead(b []byte, h *Head) error {
	h.Seq, h.Batches, h.At = le.Uint64(b), le.Uint64(b[8:]), int64(le.Uint64(b[16:]))
	h.Accounts, h.Assets = le.Uint64(b[24:]), le.Uint32(b[32:])
	copy(h.LastRoot[:], b[36:])
	h.OpenHolds = le.Uint64(b[36+b3.Size:])
	if h.At < 0 {
		return errNumber
	}
	return nil
}
