package idem

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyOf returns a key distributed as uniformly as the keys of the ledger.
func keyOf(n uint64) Key {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, n))
	return Key(sum[:16])
}

var errRefused = errors.New("refused")

// command is a command implemented by a function.
type command func(r store.Reader, w *store.Writes) error

func (command) Kind() string { return "ledger.test/1" }

func (c command) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	return struct{}{}, c(r, w)
}

// entry is a record with a key, as in the journal.
type entry struct {
	Entry
	at int64
}

// journal writes records that lead from keys. Each record is its own batch.
func journal(w *store.Writes, entries []entry) {
	for _, e := range entries {
		rec := record.Record{
			Op:     record.OpFlags,
			Seq:    e.Seq,
			Batch:  e.Seq,
			At:     e.at,
			From:   1,
			Dedupe: record.Dedupe{Kind: record.DedupeKey, Key: e.Key, Fingerprint: [32]byte{1}},
		}
		tables.PutBatch(w, &tables.Head{Batches: e.Seq - 1}, &record.Batch{No: e.Seq, First: e.Seq, Count: 1, At: e.at},
			[][]byte{rec.Append(nil)})
	}
}
