package ledger

import (
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// run is one command at work: it writes records and remembers keys, and seals what came of it into
// a batch. The books keep one and use it again.
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

	rec     record.Record // of what no op alone makes
	now     current
	decider decider
}

// start begins a command. It returns ErrSafeMode in safe mode. The command's time is after that of
// the newest batch.
func (b *books) start(r store.Reader, at store.Stamp, w *store.Writes, seed uint64) (*run, error) {
	if b.barred.Load() {
		return nil, ErrSafeMode
	}
	b.undo() // a command that was refused or panicked
	b.busy, b.open = true, true
	b.before, b.event = b.cur, Committed{}
	x := &b.run
	x.r, x.w, x.at, x.seed = r, w, max(at.At, b.cur.At+1), seed
	x.first, x.no = b.cur.Seq+1, b.cur.Batches+1
	x.now = current{b: b, r: r}
	x.decider.state, x.decider.at, x.decider.batch = &x.now, x.at, x.no
	clear(x.raws)
	x.raws = x.raws[:0]
	x.known.Clear(x.keys)
	x.keys = x.keys[:0]
	return x, nil
}

// record begins a record that no op alone makes: of a settlement, or of a batch.
func (x *run) record(op record.Op) *record.Record {
	x.rec = record.Record{Op: op, At: x.at, Batch: x.no, Seq: x.b.cur.Seq + 1}
	return &x.rec
}

// append adds rec to the journal and applies it.
func (x *run) append(rec *record.Record) uint64 {
	cur := &x.b.cur
	if rec.Seq != cur.Seq+1 {
		panic("ledger: a record out of turn")
	}
	rec.Rand = randOf(x.seed, rec.Seq)
	raw := rec.Append(x.b.arena.room(record.MaxRecord))
	x.b.arena.used += len(raw)
	x.raws = append(x.raws, raw)
	cur.Seq = rec.Seq
	switch rec.Op {
	case record.OpOpen:
		cur.Accounts++
	case record.OpAsset:
		cur.Assets++
	case record.OpHold:
		cur.OpenHolds++
	case record.OpCapture, record.OpRelease, record.OpExpire:
		cur.OpenHolds--
	}
	if err := x.now.evolve(rec); err != nil {
		panic("ledger: a record contradicts the rows: " + err.Error())
	}
	return rec.Seq
}

// randOf returns the random bits in the id of the record seq.
func randOf(seed, seq uint64) uint16 {
	n := seed + seq
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	return uint16(n ^ n>>33)
}

// raw returns the bytes of a record, of this command or an earlier one; nil if there is no record.
func (x *run) raw(seq uint64) []byte {
	if seq >= x.first {
		if i := seq - x.first; i < uint64(len(x.raws)) {
			return x.raws[i]
		}
		return nil
	}
	return tables.Raw(x.r, seq)
}

// seal makes a batch of the command's records, which there must be, hands both to the store, and
// begins the event of the batch.
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
	if len(x.b.moved.undo) > 0 {
		x.b.putMoved(x.r, x.w, dayOf(x.at))
	}
	if err := cur.log.add(x.r, h.No-1, cur.LastRoot); err != nil {
		panic(err)
	}
	x.b.event = Committed{First: h.First, Last: cur.Seq, Batch: h.No, Root: cur.LastRoot, At: h.At}
	return h
}

// arena holds the bytes of a group's records until the group has ended: the store refers to them
// until then.
type arena struct {
	chunks [][]byte
	at     int // of the chunk in use
	used   int // of that chunk
}

const (
	arenaChunk = 1 << 20 // bytes
	arenaKeep  = 8       // chunks kept from one group to the next
)

// room returns an empty slice with room for n bytes, n at most arenaChunk. The caller adds the
// bytes that it uses to a.used.
func (a *arena) room(n int) []byte {
	if len(a.chunks) == 0 {
		a.chunks = append(a.chunks, make([]byte, arenaChunk))
	}
	if a.used+n > arenaChunk {
		a.at, a.used = a.at+1, 0
		if a.at == len(a.chunks) {
			a.chunks = append(a.chunks, make([]byte, arenaChunk))
		}
	}
	return a.chunks[a.at][a.used : a.used : a.used+n]
}

// reset takes everything back.
func (a *arena) reset() {
	if len(a.chunks) > arenaKeep {
		clear(a.chunks[arenaKeep:])
		a.chunks = a.chunks[:arenaKeep]
	}
	a.at, a.used = 0, 0
}
