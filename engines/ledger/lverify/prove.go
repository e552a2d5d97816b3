package lverify

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// ErrNotFound is returned if no file has the record that was asked for.
var ErrNotFound = errors.New("no file of a closed period has it")

// Prove proves the record of an id in the log as of the end of its period, and returns the
// statement of the period, which has the head of the proof. It reads the file of the period twice,
// and once those back to the one in which the accounts and the asset of the record were opened. It
// returns ErrNotFound, or a *FileError for a file that is missing or bad.
func (f *Files) Prove(
	ctx context.Context,
	id record.TxID,
	o Options,
) (proof record.Proof, end record.Statement, err error) {
	p := &prover{files: f, o: o}
	if err = p.find(ctx, id); err == nil {
		err = p.begin()
	}
	for i := p.from; err == nil && i <= p.to; i++ {
		err = p.file(ctx, i)
	}
	if err == nil {
		proof, err = p.proof()
	}
	return proof, p.end, err
}

// prover follows a record, and those that it refers to, through the log.
type prover struct {
	files    *Files
	o        Options
	from, to int           // files to read for the proof; the last one has the record
	want     record.Record // to be proved
	done     uint64        // records read

	places
	log   frontier
	root  b3.Digest     // of the last batch
	rec   record.Record // the last one
	tx    *placed
	names [3]*placed // the records that opened from and to, and declared asset
	hold  *placed
	last  *placed          // the last batch
	end   record.Statement // of the last file
}

// read decodes the record of a line.
func (p *prover) read(in *fileLines, r *record.Record, raw []byte) error {
	if p.done++; p.done%1024 == 0 && p.o.Progress != nil {
		p.o.Progress(p.done, 0)
	}
	if err := r.Decode(raw); err != nil {
		return in.bad("%v", err)
	}
	return nil
}

// find reads the record of an id.
func (p *prover) find(ctx context.Context, id record.TxID) (err error) {
	if p.to, err = p.files.with(id.Seq()); err != nil {
		return err
	}
	return p.files.each(ctx, p.to, func(in *fileLines) (bool, error) {
		raw, err := in.hashed()
		switch {
		case err != nil:
			return false, err
		case in.kind == record.LineClose:
			return false, p.lacks(in, id)
		case in.kind != record.LineRecord:
			return true, nil
		}
		if err := p.read(in, &p.want, raw); err != nil || p.want.Seq != id.Seq() {
			return true, err
		}
		if p.want.TxID() != id {
			return false, ErrNotFound
		}
		return false, nil
	})
}

// lacks returns why a file does not have the record of an id.
func (p *prover) lacks(in *fileLines, id record.TxID) error {
	s, err := in.statement()
	if err == nil && s.ToSeq >= id.Seq() {
		return in.bad("record %d is not in the file", id.Seq())
	}
	return cmp.Or(err, ErrNotFound)
}

// begin finds the first file to read: the one in which the first of the names was given.
func (p *prover) begin() error {
	r := &p.want
	older := func(s *record.Statement) bool {
		return r.From != 0 && r.From <= s.Accounts || r.To != 0 && r.To <= s.Accounts ||
			r.Asset != 0 && r.Asset <= s.Assets
	}
	for p.from = p.to; older(&p.files.prevs[p.from]); p.from-- {
		if p.from == 0 {
			return missing(p.files.prevs[0].Period,
				"an account or the asset of record %d was opened in it, or in a file before", r.Seq)
		}
	}
	s := &p.files.prevs[p.from]
	p.log, p.places = frontier{s.ToBatch, slices.Clone(s.Peaks)}, newPlaces(s.ToBatch)
	p.root, p.rec.Seq = s.LastRoot, s.ToSeq
	return nil
}

// file takes all lines of a file.
func (p *prover) file(ctx context.Context, i int) error {
	p.end = record.Statement{}
	return p.files.each(ctx, i, func(in *fileLines) (bool, error) {
		raw, err := in.hashed()
		switch {
		case err != nil:
		case in.kind == record.LineRecord:
			err = p.record(in, raw)
		case in.kind == record.LineBatch:
			err = p.header(in, raw)
		case in.kind == record.LineClose:
			return false, p.closing(in, i)
		case i == p.to && p.before() && bytes.HasPrefix(in.line, []byte(`{"base":"hold",`)):
			err = p.base(in)
		}
		return true, err
	})
}

// before reports whether the record ends a hold of a period before its own.
func (p *prover) before() bool { return p.want.Hold != 0 && p.want.Hold <= p.files.prevs[p.to].ToSeq }

// base takes the hold that the record ends.
func (p *prover) base(in *fileLines) error {
	l, err := record.ParsePeriodLine(in.line)
	if err != nil || l.Base.Seq != p.want.Hold {
		return in.badIf(err)
	}
	row := tables.BaseRowOf(&l.Base)
	_, h, err := row.Hold()
	if err == nil {
		p.hold = &placed{Inclusion: h.Inclusion}
		err = p.had(p.log.size, p.hold)
	}
	return in.badIf(err)
}

// record takes a record.
func (p *prover) record(in *fileLines, raw []byte) error {
	seq := p.rec.Seq + 1
	if err := p.read(in, &p.rec, raw); err != nil {
		return err
	}
	r, want := &p.rec, &p.want
	if r.Seq != seq || r.Batch != p.log.size+1 || len(p.leaves) == maxBatch {
		return in.bad("it is record %d of batch %d, record %d of batch %d was to come", r.Seq, r.Batch, seq,
			p.log.size+1)
	}
	p.leaves = append(p.leaves, merkle.Leaf(raw))
	if r.Seq == want.Seq {
		p.tx = p.keep(raw)
	}
	if r.Seq == want.Hold && !p.before() {
		p.hold = p.keep(raw)
	}
	if r.Op == record.OpOpen && r.From == want.From {
		p.names[0] = p.keep(raw)
	}
	if r.Op == record.OpOpen && r.From == want.To {
		p.names[1] = p.keep(raw)
	}
	if r.Op == record.OpAsset && r.Asset == want.Asset {
		p.names[2] = p.keep(raw)
	}
	return nil
}

// header takes the header after the last record of a batch.
func (p *prover) header(in *fileLines, raw []byte) error {
	b, err := record.DecodeBatch(raw)
	if err != nil {
		return in.bad("%v", err)
	}
	if b.No != p.log.size+1 || b.Prev != p.root || b.Last() != p.rec.Seq || b.Count != uint64(len(p.leaves)) ||
		b.Count == 0 || b.Merkle != merkle.Root(p.leaves) {
		return in.bad("it is not the header of batch %d, or the batch has other records", p.log.size+1)
	}
	if p.last != nil {
		p.last.ended = true
	}
	p.last = &placed{}
	p.made = append(p.made, p.last)
	p.batch(&p.log, &b)
	p.root = b.Root()
	p.log.add(p.root)
	return nil
}

// closing takes the statement at the end of a file.
func (p *prover) closing(in *fileLines, i int) error {
	s, err := in.statement()
	if err != nil {
		return err
	}
	head := record.Head{Batches: p.log.size, Root: p.log.root(), LastRoot: p.root, Seq: p.rec.Seq}
	if err := s.Follows(&p.files.prevs[i]); err != nil {
		return in.bad("%v", err)
	}
	if s.Head() != head || len(p.leaves) != 0 {
		return in.bad("the records before it end with batch %d and the root %s, the statement says batch %d and %s",
			head.Batches, head.Root, s.ToBatch, s.LogRoot)
	}
	if i+1 < len(p.files.prevs) && s.Digest() != p.files.prevs[i+1].Digest() {
		return in.bad("the next file begins with another statement")
	}
	p.end = s
	return nil
}

// proof makes the proof of what was followed.
func (p *prover) proof() (proof record.Proof, err error) {
	refs := []uint64{p.want.From, p.want.To, uint64(p.want.Asset), p.want.Hold, p.want.Seq, p.want.Seq}
	ins := make([]record.Inclusion, 0, len(refs))
	for i, h := range append(p.names[:], p.hold, p.tx, p.last) {
		if refs[i] == 0 {
			continue
		}
		in, err := p.included(h)
		if err != nil {
			return proof, p.fails(err)
		}
		ins = append(ins, in)
	}
	last, tx, names := len(ins)-1, len(ins)-2, len(ins)-2
	if p.want.Hold != 0 {
		names--
		proof.Hold = &ins[names]
	}
	proof.Tx, proof.Names, proof.Last, proof.LastPath = ins[tx], ins[:names], ins[last].Header, ins[last].LogPath
	proof.Head = p.end.Head()
	_, err = proof.Verify()
	return proof, p.fails(err)
}

// fails returns the error of a proof that cannot be made of the files, nil for nil.
func (p *prover) fails(err error) error {
	if err == nil {
		return nil
	}
	return &FileError{File: record.PeriodFile(p.end.Period), Reason: err.Error()}
}

// included returns the place of a record with its path to the root of the log.
func (p *prover) included(h *placed) (in record.Inclusion, err error) {
	if h == nil {
		return in, fmt.Errorf("the record that it refers to is not there: record %d cannot be proved", p.want.Seq)
	}
	in = h.Inclusion
	peaks := merkle.LogPeaks(p.log.size)
	above, err := merkle.LogInclusionFrom(p.log.size, in.Header.No-1, len(in.LogPath),
		func(pos uint64) (b3.Digest, error) {
			i, known := slices.BinarySearch(peaks, pos)
			if !known {
				return b3.Digest{}, errors.New("a path does not lead to a peak")
			}
			return p.log.open[i], nil
		})
	in.LogPath = slices.Concat(in.LogPath, above)
	return in, err
}

// places follows some records of a log that grows: their paths lead to the peak over their batch.
type places struct {
	leaves []b3.Digest // of the batch under way
	made   []*placed   // in the batch under way
	peaks  [][]*placed // under each peak of the log, the largest first
}

// placed is a record with its place in the log, or only the place of a header.
type placed struct {
	record.Inclusion
	ended bool // its path is of no more use
}

// newPlaces returns the places of no records in a log of batches.
func newPlaces(batches uint64) places {
	return places{peaks: make([][]*placed, bits.OnesCount64(batches))}
}

// had takes a record that was placed in the log of batches. The error is returned if the log has no
// such batch.
func (p *places) had(batches uint64, h *placed) error {
	if h.Header.No == 0 || h.Header.No > batches {
		return fmt.Errorf("batch %d is not closed", h.Header.No)
	}
	left, i := h.Header.No-1, 0
	for size := uint64(1) << (bits.Len64(batches) - 1); ; size >>= 1 {
		switch {
		case batches&size == 0:
			continue
		case left < size:
			p.peaks[i] = append(p.peaks[i], h)
			return nil
		}
		left -= size
		i++
	}
}

// keep follows the last record of leaves.
func (p *places) keep(raw []byte) *placed {
	h := &placed{Inclusion: record.Inclusion{Record: bytes.Clone(raw), Index: uint64(len(p.leaves) - 1)}}
	p.made = append(p.made, h)
	return h
}

// batch ends a batch: its records get their place in it, and paths grow where the batch completes
// subtrees of the log, to which it is not added yet.
func (p *places) batch(log *frontier, b *record.Batch) {
	for _, h := range p.made {
		if h.Header = *b; h.Record != nil {
			h.Path = merkle.Path(p.leaves, h.Index)
		}
	}
	root := b.Root()
	d, right := merkle.Leaf(root[:]), p.made
	for i := range bits.TrailingZeros64(log.size + 1) {
		left, beside := p.peaks[len(p.peaks)-1], log.open[len(log.open)-1-i]
		right = append(grow(left, d), grow(right, beside)...)
		p.peaks = p.peaks[:len(p.peaks)-1]
		d = merkle.Node(beside, d)
	}
	p.peaks = append(p.peaks, right)
	p.leaves, p.made = p.leaves[:0], nil
}

// grow appends a digest to the paths of the records that are of use, and returns these.
func grow(all []*placed, beside b3.Digest) []*placed {
	all = slices.DeleteFunc(all, func(h *placed) bool { return h.ended })
	for _, h := range all {
		h.LogPath = append(slices.Clip(h.LogPath), beside)
	}
	return all
}
