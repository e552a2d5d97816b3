package lverify

import (
	"fmt"
	"hash/maphash"
	"math/bits"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// wide is a sum modulo 2^128: that two such sums are equal says that the true ones are, or are
// 2^128 apart.
type wide struct{ hi, lo uint64 }

func (w *wide) add(a engines.Amount) {
	hi, lo := a.Parts()
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
}

func (w *wide) sub(a engines.Amount) {
	hi, lo := a.Parts()
	var borrow uint64
	w.lo, borrow = bits.Sub64(w.lo, lo, 0)
	w.hi, _ = bits.Sub64(w.hi, hi, borrow)
}

// totals are the sums of one asset over all accounts.
type totals struct{ credits, debits, coming, held wide }

func (t *totals) put(s *record.State) {
	t.credits.add(s.CreditsPosted)
	t.debits.add(s.DebitsPosted)
	t.coming.add(s.CreditsHeld)
	t.held.add(s.DebitsHeld)
}

func (t *totals) take(s *record.State) {
	t.credits.sub(s.CreditsPosted)
	t.debits.sub(s.DebitsPosted)
	t.coming.sub(s.CreditsHeld)
	t.held.sub(s.DebitsHeld)
}

// sum lets a state take the place of another in the totals of its asset.
func (c *chain) sum(asset uint32, was, is *record.State) {
	t := c.totals[asset]
	if t == nil {
		t = new(totals)
		c.totals[asset] = t
	}
	t.take(was)
	t.put(is)
}

// balanced checks, unless a state was out of reach, that in each asset all that was credited was
// debited, and all that is set aside is set aside for someone. A finding is in where.
func (c *chain) balanced(where string) {
	if c.blind {
		return
	}
	for asset, t := range c.totals {
		if t.credits != t.debits {
			c.rep.found(Finding{Where: where, Detail: fmt.Sprintf("asset %d: credits and debits differ", asset)})
		}
		if t.coming != t.held {
			c.rep.found(
				Finding{Where: where, Detail: fmt.Sprintf("asset %d: held credits and held debits differ", asset)},
			)
		}
	}
}

// ends tells the newest states of all accounts, as sums of keyed hashes: a state enters with the
// record that made it, and leaves with the one that names it as the one before. Nobody outside
// knows the key, so that no two sets of states have one sum.
type ends struct {
	seed   maphash.Seed
	newest uint64 // of the hashes of the newest states
	count  uint64 // of how many accounts and assets
	// of a hash an image, without its place: a product modulo 2^64 would lose high bits of a number
	// of postings
	images wide
}

// stateAt is a state as it is hashed: where, and after which record.
type stateAt struct {
	key tables.StateKey
	seq uint64
}

func newEnds() ends { return ends{seed: maphash.MakeSeed()} }

func (e *ends) add(im *record.Image) {
	k := tables.StateKey{Account: im.Account, Asset: im.Asset}
	e.newest += e.of(k, im.State.LastSeq)
	if im.Prev != 0 {
		e.newest -= e.of(k, im.Prev)
	} else {
		e.count++
	}
	e.images.add(engines.AmountOf(0, e.of(k, 0)))
}

func (e *ends) of(k tables.StateKey, seq uint64) uint64 {
	return maphash.Comparable(e.seed, stateAt{k, seq})
}

// row adds a newest state and its number of postings.
func (e *ends) row(k tables.StateKey, b *tables.Balance) {
	e.newest += e.of(k, b.State.LastSeq)
	e.images.add(engines.AmountOf(bits.Mul64(e.of(k, 0), b.Postings)))
	e.count++
}

func show(s *record.State) string {
	return fmt.Sprintf("+%s -%s, held -%s +%s, %s on day %d", s.CreditsPosted, s.DebitsPosted, s.DebitsHeld,
		s.CreditsHeld, s.DayDebits, s.Day)
}

// frontier is the right end of the log of batch roots: the digests of its largest full subtrees,
// the largest first.
type frontier struct {
	size uint64
	open []b3.Digest
}

// add appends a batch root, and returns the new nodes.
func (f *frontier) add(root b3.Digest) []merkle.LogNode {
	pos, d := merkle.LogCount(f.size), merkle.Leaf(root[:])
	nodes := []merkle.LogNode{{Pos: pos, Hash: d}}
	f.size++
	for range bits.TrailingZeros64(f.size) {
		d = merkle.Node(f.open[len(f.open)-1], d)
		f.open = f.open[:len(f.open)-1]
		pos++
		nodes = append(nodes, merkle.LogNode{Pos: pos, Hash: d})
	}
	f.open = append(f.open, d)
	return nodes
}

// root is that of the log, the zero Digest of an empty one.
func (f *frontier) root() b3.Digest { return merkle.FoldPeaks(f.open) }

// checkPeaks returns an error unless the peaks of a statement are those of a log of its size and
// root.
func checkPeaks(s *record.Statement) error {
	if len(s.Peaks) != bits.OnesCount64(s.ToBatch) || merkle.FoldPeaks(s.Peaks) != s.LogRoot {
		return fmt.Errorf("the peaks do not make the root of a log of %d batches", s.ToBatch)
	}
	return nil
}

// node checks the nodes of the log that a batch brings, as far as they are flushed.
func (v *file) node(b record.Batch) {
	if !v.rep.Whole {
		v.tailNode(b)
		return
	}
	nodes, flushed := v.log.add(b.Root()), tables.GetFlushed(v.r).Batches
	v.compare(b, nodes, flushed)
}

// tailNode takes what lies before the batches that are checked from the table itself.
func (v *file) tailNode(b record.Batch) {
	flushed := tables.GetFlushed(v.r).Batches
	if b.No > flushed {
		return
	}
	nodes, err := merkle.LogNodes(b.No-1, b.Root(), tables.LogNodes(v.r))
	if err != nil {
		v.rep.found(Finding{Where: "mlog", Batch: b.No, Detail: err.Error()})
		return
	}
	v.compare(b, nodes, flushed)
}

// compare holds nodes against the table: those of flushed batches are there, others may be.
func (v *file) compare(b record.Batch, nodes []merkle.LogNode, flushed uint64) {
	for _, n := range nodes {
		stored, known := tables.LogNode(v.r, n.Pos)
		if known && stored != n.Hash || !known && b.No <= flushed {
			v.rep.found(
				Finding{Where: "mlog", Batch: b.No, Detail: "the log of batch roots has another node, or none, for it"},
			)
			return
		}
	}
}
