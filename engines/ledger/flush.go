package ledger

import (
	"cmp"
	"slices"

	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// flushPass lists the rows that had changed when it was made, in the order of the file. It is
// immutable; the hand goes along it, and once it is through, every row has seen the records up to
// seq.
type flushPass struct {
	seq     uint64
	batches uint64
	idle    bool              // no record has come since the last pass and no row is dirty: there are only rows at rest
	home    bool              // they are taken home, as if they had rested long enough
	assets  []*asset          // declared, or given decimals
	states  []tables.StateKey // asset 0: the account itself
	names   []string
	holds   []uint64
	onces   []tables.OnceKey
	marks   []tables.MarkKey
}

// hand is the progress of a flush pass. pass is nil if no pass is in progress.
type hand struct {
	pass *flushPass
	at   int
	seen uint64         // seq of the newest record as of the last slice
	low  tables.Flushed // the position of the last complete pass
}

// begins reports whether p is to be begun. One that was made before the last complete pass is not:
// it would move low back.
func (h *hand) begins(p *flushPass) bool { return h.pass == nil && p != nil && p.seq >= h.low.Seq }

// len is how many rows the pass goes over, beside the nodes of the log. Those at rest are not
// written.
func (p *flushPass) len() int {
	return len(p.assets) + len(p.states) + len(p.names) + len(p.holds) + len(p.onces) + len(p.marks)
}

// newPass collects what waits to be written behind, for readers' eyes: it may be called from
// anywhere. nil is nothing.
func (b *books) newPass() *flushPass {
	v := b.view.Load() // before the rows: what its records changed is dirty below
	p := &flushPass{seq: v.Seq, batches: v.Batches}
	for _, a := range v.assets.byRef {
		if max(a.seq, a.scale.Seq) > v.hand.low.Seq {
			p.assets = append(p.assets, a)
		}
	}
	for _, ref := range b.accounts.pinnedKeys() {
		p.states = append(p.states, tables.StateKey{Account: ref})
	}
	p.states = append(p.states, b.states.pinnedKeys()...)
	p.names, p.holds = b.names.pinnedKeys(), b.holds.pinnedKeys()
	p.onces, p.marks = b.onces.pinnedKeys(), b.marks.pinnedKeys()
	p.idle = v.hand.low.Seq == v.Seq && b.dirty() == 0
	if p.idle && p.len() == 0 {
		return nil
	}
	slices.SortFunc(p.states, func(a, b tables.StateKey) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Asset, b.Asset))
	})
	slices.Sort(p.names)
	slices.Sort(p.holds)
	slices.SortFunc(p.onces, func(a, b tables.OnceKey) int { return slices.Compare(a.Key[:], b.Key[:]) })
	slices.SortFunc(p.marks, func(a, b tables.MarkKey) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Asset, b.Asset), cmp.Compare(a.N, b.N))
	})
	return p
}

// redoMost is how many records a boot should have to go over at most: a pass is through before half
// of them have come, and leaves the others to the next one.
const redoMost = 3 << 16

// dueMost bounds what due asks of one slice: some 2 MB of rows.
const dueMost = 1 << 14

// due is how many rows of p are to be written for so many new records.
func (p *flushPass) due(records uint64) int {
	return int(min(dueMost, uint64(p.len())*min(records, redoMost)/(redoMost/2)))
}

// logSlice is how many nodes of the log a slice writes at most: they are appended, so they cost
// little.
const logSlice = 4096

// flush is the command that writes a slice of a pass behind. A pass that is under way goes on; else
// the given one begins.
type flush struct {
	pass *flushPass
	rows int
}

var _ store.Command[bool] = flush{}

// Kind names the command.
func (flush) Kind() string { return "ledger.flush/1" }

// Size returns the weight of the command in its group, bytes.
func (f flush) Size() int { return f.rows * 128 }

// Apply reports whether the flush pass has finished.
func (f flush) Apply(r store.Reader, at store.Stamp, w *store.Writes) (bool, error) {
	b := store.GroupOf[*books](r)
	x, err := b.start(r, at, w, 0)
	if err != nil {
		return false, err
	}
	h := &b.cur.hand
	if h.begins(f.pass) {
		h.pass, h.at = f.pass, 0
	}
	if h.pass == nil {
		return true, refusal{&posted{}}
	}
	if h.at == 0 {
		h.seen = h.pass.seq
	}
	x.slice(max(f.rows, h.pass.due(b.cur.Seq-h.seen)))
	w.Then(b.keep)
	return b.cur.hand.pass == nil, nil
}

// flushRule decides when a post also flushes: it flushes as many rows as it made dirty, and at
// least rows, while dirtyMax rows or more wait. 0 is never. If no pass is under way, it writes
// pass. The rule travels in the command, as all limits do.
type flushRule struct {
	rows, dirtyMax int
	pass           *flushPass // nil: none
}

// flush writes what the rule of a post demands.
func (x *run) flush(f flushRule) {
	b := x.b
	switch h := &b.cur.hand; {
	case h.begins(f.pass):
		h.pass, h.at = f.pass, 0
		x.slice(f.pass.len())
	case f.dirtyMax != 0 && h.pass != nil && b.dirty() >= f.dirtyMax:
		x.slice(max(f.rows, b.states.soiled+b.accounts.soiled))
	}
}

// dirty is how many rows wait to be written behind.
func (b *books) dirty() int {
	return int(
		b.states.dirty.Load() + b.accounts.dirty.Load() + b.names.dirty.Load() + b.holds.dirty.Load() +
			b.onces.dirty.Load() + b.marks.dirty.Load(),
	)
}

// pinned is how many rows their own table lags behind.
func (b *books) pinned() (n int64) {
	for _, l := range b.layers {
		all, clean := l.rows()
		n += all - clean
	}
	return n
}

// slice writes the next rows of the pass.
func (x *run) slice(rows int) {
	h := &x.b.cur.hand
	h.seen = x.b.cur.Seq
	end := min(h.pass.len(), h.at+rows)
	for ; h.at < end; h.at++ {
		x.row(h.pass, h.at)
	}
	logged := x.logNodes(h.pass)
	if h.at == h.pass.len() && logged {
		h.low = tables.Flushed{Seq: h.pass.seq, Batches: h.pass.batches}
		h.pass, h.at = nil, 0
		tables.PutFlushed(x.w, h.low)
	}
}

// row writes row i of a pass, unless another pass or burst has.
func (x *run) row(p *flushPass, i int) {
	if i < len(p.assets) {
		a := p.assets[i]
		tables.PutAsset(x.w, a.ref, a.name)
		if a.scale.Seq != 0 {
			tables.PutScale(x.w, a.ref, a.scale)
		}
		return
	}
	if i -= len(p.assets); i < len(p.states) {
		x.flushState(p.states[i], p.home)
		return
	}
	if i -= len(p.states); i < len(p.names) {
		x.flushName(p.names[i])
		return
	}
	if i -= len(p.names); i < len(p.holds) {
		writeBehind(x.b.holds, p.holds[i], func(k uint64, h tables.Hold) { tables.PutHold(x.w, k, h) })
		return
	}
	if i -= len(p.holds); i < len(p.onces) {
		writeBehind(x.b.onces, p.onces[i], func(k tables.OnceKey, o tables.Once) { tables.PutOnce(x.w, k, o) })
		return
	}
	x.flushMark(p.marks[i-len(p.onces)])
}

// writeBehind writes the row of k with put, and reports whether its table lagged behind.
func writeBehind[K comparable, V any](l *layer[K, V], k K, put func(K, V)) bool {
	c := l.find(k)
	if c == nil || l.cur(c).since == 0 {
		return false
	}
	put(k, l.cur(c).v)
	l.flushed(c)
	return true
}

// recentMost is how many rows of each kind are kept side by side in the table of recent rows: some
// 30 MB of the file and 100 MB of memory.
const recentMost = 1 << 18

// flushState writes an account or a balance. One that many records change goes to the table of
// recent rows, where it costs no page of its own, and home to its table once it has come to rest,
// or at once if the whole ledger has.
func (x *run) flushState(k tables.StateKey, home bool) {
	if k.Asset == 0 {
		flushOften(x, x.b.accounts, k.Account, k, home, tables.PutRecentAccount, tables.PutAccount)
		return
	}
	if c := x.b.states.find(k); c != nil {
		x.flushMarks(k, x.b.states.cur(c).v.Postings)
	}
	flushOften(x, x.b.states, k, k, home, tables.PutRecentBalance, tables.PutBalance)
}

// flushMarks writes the marks of a balance with so many postings that are not in the file: a boot
// makes none for postings that it finds in the row.
func (x *run) flushMarks(k tables.StateKey, postings uint64) {
	for n := postings / tables.MarkEvery; n > 0 && x.flushMark(tables.MarkKey{StateKey: k, N: n}); n-- {
	}
}

// flushMark writes a mark, and reports whether the file did not have it.
func (x *run) flushMark(k tables.MarkKey) bool {
	return writeBehind(x.b.marks, k, func(k tables.MarkKey, seq uint64) {
		tables.PutMark(x.w, tables.Mark{MarkKey: k, Seq: seq})
	})
}

// flushOften writes the row with a key in its layer, and a key in the file.
func flushOften[K comparable, V any](x *run, l *layer[K, V], key K, k tables.StateKey, home bool,
	recent, own func(*store.Writes, K, V),
) {
	c := l.find(key)
	if c == nil {
		return
	}
	switch now := l.cur(c); {
	case now.since == 0:
	case l.busy(now):
		recent(x.w, key, now.v)
		l.save(c)
	case !home && l.rest(c):
	default:
		own(x.w, key, now.v)
		x.home(k, now.saved)
		l.flushed(c)
	}
}

// home takes a row out of the table of recent rows, if it is there.
func (x *run) home(k tables.StateKey, saved uint64) {
	if saved != 0 {
		tables.DropRecent(x.w, k)
	}
}

func (x *run) flushName(name string) {
	c := x.b.names.find(name)
	if c == nil || x.b.names.cur(c).since == 0 {
		return
	}
	ref := x.b.names.cur(c).v
	tables.PutName(x.w, ref, name)
	x.b.names.flushed(c)
	if byRef := x.b.refs.find(ref); byRef != nil && x.b.refs.cur(byRef).since != 0 {
		x.b.refs.flushed(byRef)
	}
}

// logNodes writes nodes of the log up to the end of the pass, and reports whether all are written.
func (x *run) logNodes(p *flushPass) bool {
	l := &x.b.cur.log
	end := merkle.LogCount(p.batches)
	if l.base >= end {
		return true
	}
	n := min(end-l.base, logSlice)
	nodes := make([]merkle.LogNode, n)
	for i := range nodes {
		nodes[i] = merkle.LogNode{Pos: l.base + uint64(i), Hash: l.nodes[i]}
	}
	tables.PutLogNodes(x.w, nodes...)
	l.base, l.nodes = l.base+n, l.nodes[n:]
	return l.base == end
}
