package record

import (
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
)

// Source is a ledger to read from, as it was at one moment. A slice it answers is not changed
// afterwards.
type Source interface {
	// Record is the bytes of the record seq.
	Record(seq uint64) ([]byte, error)
	// Batch is the header of the batch no.
	Batch(no uint64) (Batch, error)
	// Node is the digest at a position of the log of batch roots.
	Node(pos uint64) (b3.Digest, error)
	// Opened is the Seq of the record that opened the account.
	Opened(account uint64) (seq uint64, err error)
	// Declared is the Seq of the record that declared the asset.
	Declared(asset uint32) (seq uint64, err error)
	// Past is the past of the closed periods. It is nil if there are none, or if the first batches
	// do not have the record that closed the newest.
	Past(batches uint64) Past
}

// HeadOf is where the ledger stood after the batch no, the zero Head for 0.
func HeadOf(s Source, no uint64) (Head, error) {
	if no == 0 {
		return Head{}, nil
	}
	b, err := s.Batch(no)
	if err != nil {
		return Head{}, fmt.Errorf("batch %d: %w", no, err)
	}
	root, err := merkle.LogRoot(no, s.Node)
	return Head{Batches: no, Root: root, LastRoot: b.Root(), Seq: b.Last()}, err
}

// Prove proves the record seq in the log as of batch no, the batch of the record or a later one. It
// reads all records of up to five batches: of the record, of the records that it refers to, and of
// the record that closed the newest period if it refers to older names.
func Prove(s Source, seq, no uint64) (Proof, error) {
	if no == 0 {
		return Proof{}, fmt.Errorf("record: an empty log proves nothing")
	}
	last, err := s.Batch(no)
	if err != nil {
		return Proof{}, fmt.Errorf("batch %d: %w", no, err)
	}
	p := Proof{Last: last}
	if p.Head, err = HeadOf(s, no); err != nil {
		return Proof{}, err
	}
	if p.LastPath, err = merkle.LogInclusion(no, no-1, s.Node); err != nil {
		return Proof{}, err
	}
	r, err := include(s, seq, no, &p.Tx)
	if err != nil {
		return Proof{}, err
	}
	return p, p.addRefs(s, &r)
}

// addRefs adds the records and the names of closed periods that r refers to.
func (p *Proof) addRefs(s Source, r *Record) error {
	past := s.Past(p.Head.Batches)
	last, err := statement(past)
	if err != nil {
		return err
	}
	p.Names = make([]Inclusion, 0, 3)
	for _, n := range r.nameRefs() {
		switch {
		case n.ref == 0:
		case last.counts(n):
			err = p.addClosed(s, past, n)
		default:
			err = p.addName(s, n)
		}
		if err != nil {
			return err
		}
	}
	if r.Hold == 0 {
		return nil
	}
	p.Hold = new(Inclusion)
	if r.Hold <= last.ToSeq {
		return includeHold(s, past, r.Hold, p.Head.Batches, p.Hold)
	}
	_, err = include(s, r.Hold, p.Head.Batches, p.Hold)
	return err
}

// addName adds the record that opened an account or declared an asset.
func (p *Proof) addName(s Source, n nameRef) error {
	var seq uint64
	var err error
	if n.asset {
		if seq, err = s.Declared(uint32(n.ref)); err != nil {
			return fmt.Errorf("asset %d: %w", n.ref, err)
		}
	} else if seq, err = s.Opened(n.ref); err != nil {
		return fmt.Errorf("account %d: %w", n.ref, err)
	}
	var in Inclusion
	_, err = include(s, seq, p.Head.Batches, &in)
	p.Names = append(p.Names, in)
	return err
}

// include fills in with the record seq in the log of size batches, and answers the record.
func include(s Source, seq, size uint64, in *Inclusion) (Record, error) {
	raw, err := s.Record(seq)
	if err != nil {
		return Record{}, fmt.Errorf("record %d: %w", seq, err)
	}
	r, err := Decode(raw)
	if err != nil {
		return Record{}, fmt.Errorf("record %d: %w", seq, err)
	}
	if r.Batch > size {
		return Record{}, fmt.Errorf("record: record %d came in batch %d, the log ends with %d", seq, r.Batch, size)
	}
	b, err := s.Batch(r.Batch)
	if err != nil {
		return Record{}, fmt.Errorf("batch %d: %w", r.Batch, err)
	}
	leaves, err := leavesOf(s, b)
	if err != nil {
		return Record{}, err
	}
	*in = Inclusion{Record: raw, Index: seq - b.First, Header: b}
	if in.Index >= b.Count {
		return Record{}, fmt.Errorf("record: record %d is not within its batch %d", seq, b.No)
	}
	in.Path = merkle.Path(leaves, in.Index)
	in.LogPath, err = merkle.LogInclusion(size, b.No-1, s.Node)
	return r, err
}

// leavesOf are the digests of the records of b.
func leavesOf(s Source, b Batch) ([]b3.Digest, error) {
	if _, err := s.Record(b.Last()); err != nil { // before its count is believed
		return nil, fmt.Errorf("record %d: %w", b.Last(), err)
	}
	var gang b3.Gang
	leaves := make([]b3.Digest, b.Count)
	for i := range leaves {
		seq := b.First + uint64(i)
		raw, err := s.Record(seq)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", seq, err)
		}
		gang.Add(&leaves[i], merkle.LeafPrefix, raw, nil)
	}
	gang.Flush()
	return leaves, nil
}

// ProveConsistency shows that the log after the batch from is how the log after the batch to began.
func ProveConsistency(s Source, from, to uint64) (Consistency, error) {
	path, err := merkle.LogConsistency(from, to, s.Node)
	if err != nil {
		return Consistency{}, err
	}
	c := Consistency{From: LogHead{Batches: from}, To: LogHead{Batches: to}, Path: path}
	if c.From.Root, err = merkle.LogRoot(from, s.Node); err != nil {
		return Consistency{}, err
	}
	c.To.Root, err = merkle.LogRoot(to, s.Node)
	return c, err
}
