package ledger

import (
	"encoding/binary"

	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/merkle"
	"ronbox/store"
)

// run is one command at work: it writes records and remembers keys, and seals what came of it into a batch. The books keep one and use it
// again.
type run struct {
	b     *books
	r     store.Reader
	w     *store.Writes
	at    int64
	first uint64 // seq of the command's first record
	no    uint64 // of the batch that its records make
	seed  uint64 // of the random bits in ids

	raws  [][]byte
	tree  merkle.Tree
	keys  []idem.Entry // dedupe keys of the command's records
	known idem.Table   // of the same keys

	rec    record.Record
	images [2]record.Image
	m      move
	nobody tables.Account // the account of a side that is not known
	none   record.State   // and its state
}

// start begins a command, unless nothing is to be written any more. Time does not run back, whatever wrote the newest batch.
func (b *books) start(r store.Reader, at store.Stamp, w *store.Writes, seed uint64) (*run, error) {
	if b.barred.Load() {
		return nil, ErrSafeMode
	}
	b.begin()
	x := &b.run
	x.r, x.w, x.at, x.seed = r, w, max(at.At, b.cur.At+1), seed
	x.first, x.no = b.cur.Seq+1, b.cur.Batches+1
	clear(x.raws)
	x.raws = x.raws[:0]
	x.forget()
	return x, nil
}

// forget drops the keys of the command.
func (x *run) forget() {
	x.known.Clear(x.keys)
	x.keys = x.keys[:0]
}

// remember notes that a key led to a record.
func (x *run) remember(k idem.Key, seq uint64) {
	x.keys = append(x.keys, idem.Entry{Key: k, Seq: seq})
	x.known.Put(k, seq)
}

// merge hands the command's keys to the index.
func (x *run) merge() {
	for _, e := range x.keys {
		x.b.idem.Insert(e.Key, e.Seq, x.at)
	}
	x.forget()
}

// next is the seq that the next record gets.
func (x *run) next() uint64 { return x.b.cur.Seq + 1 }

// record gives the run's record op and time, empty but for them.
func (x *run) record(op record.Op) *record.Record {
	x.rec = record.Record{Op: op, At: x.at, Batch: x.no}
	return &x.rec
}

// write renders rec as the next record.
func (x *run) write(rec *record.Record) uint64 {
	seq := x.next()
	rec.Seq, rec.Rand = seq, randOf(x.seed, seq)
	raw := rec.Append(x.b.arena.room(record.MaxRecord))
	x.b.arena.took(len(raw))
	x.raws = append(x.raws, raw)
	x.b.cur.Seq = seq
	return seq
}

// randOf are the random bits of the record seq.
func randOf(seed, seq uint64) uint16 { return uint16(mix(seed + seq)) }

// raw is a record's bytes, of this command or one before it; nil is none.
func (x *run) raw(seq uint64) []byte {
	if seq >= x.first {
		if i := seq - x.first; i < uint64(len(x.raws)) {
			return x.raws[i]
		}
		return nil
	}
	return tables.Raw(x.r, seq)
}

// seal makes the command's records a batch and hands everything to the store. Without records there is nothing to seal.
func (x *run) seal() record.Batch {
	cur := &x.b.cur
	for _, raw := range x.raws {
		x.tree.Add(raw)
	}
	h := record.Batch{
		No: x.no, First: x.first, Count: uint64(len(x.raws)), At: x.at, Merkle: x.tree.Root(), Prev: cur.LastRoot,
	}
	tables.PutBatch(x.w, &cur.Head, &h, x.raws)
	tables.PutHead(x.w, cur.Head)
	x.b.putMoved(x.r, x.w, dayOf(x.at))
	if err := cur.log.add(x.r, h.No-1, cur.LastRoot); err != nil {
		panic(err)
	}
	return h
}

// seedOf makes the seed of a command from random bytes.
func seedOf(b [8]byte) uint64 { return binary.LittleEndian.Uint64(b[:]) }
