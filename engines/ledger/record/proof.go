package record

import (
	"errors"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/merkle"
)

// Inclusion shows that a ledger's log holds a record.
type Inclusion struct {
	Record  []byte
	Index   uint64      // of the record in its batch, from 0 on
	Path    []b3.Digest // from the record's leaf to Header.Merkle
	Header  Batch
	LogPath []b3.Digest // from the header's root to the root of the log
}

// Proof shows a record and what its refs stand for, in a log that ends with Last.
type Proof struct {
	Tx       Inclusion
	Names    []Inclusion // the records that opened its accounts and declared its asset: from, to, asset, those that it has
	Hold     *Inclusion  // the record of the hold that it ends
	Last     Batch       // the last batch of the log
	LastPath []b3.Digest // from the root of Last to the root of the log
	Head     Head
}

// ProofError says in what a proof fails. It proves nothing then.
type ProofError struct {
	Part   string // "tx", "names.0", "hold", "head", ...
	Reason string
}

func (e *ProofError) Error() string {
	return fmt.Sprintf("the proof fails at %s: %s", e.Part, e.Reason)
}

// Verify checks all that can be checked without the ledger, and answers the receipt that p proves, with a *ProofError if there is none.
// That Head is the ledger's is for the caller to know: by a head it trusts, or a Consistency from one to this.
func (p *Proof) Verify() (Receipt, error) {
	if err := p.checkHead(); err != nil {
		return Receipt{}, err
	}
	r, err := p.Tx.verify("tx", p.Head)
	if err != nil {
		return Receipt{}, err
	}
	names, err := p.names(&r)
	if err != nil {
		return Receipt{}, err
	}
	return r.Receipt(names, p.Tx.Header.Root()), nil
}

// checkHead says whether Last is the last leaf of the log, and Head what follows from both.
func (p *Proof) checkHead() error {
	last := p.Last.Root()
	switch h := p.Head; {
	case p.Last.No != h.Batches || p.Last.Count == 0:
		return &ProofError{"head", "it does not end with the batch that is shown as the last"}
	case h.LastRoot != last || h.Seq != p.Last.Last():
		return &ProofError{"head", "last_root or seq is not that of the last batch"}
	}
	return checkLog("head", &p.Last, p.LastPath, p.Head)
}

func checkLog(part string, b *Batch, path []b3.Digest, h Head) error {
	root := b.Root()
	if got, ok := merkle.Climb(merkle.Leaf(root[:]), b.No-1, h.Batches, path); !ok || got != h.Root {
		return &ProofError{part, "the batch does not lead to the root of the log"}
	}
	return nil
}

// verify answers the record that in shows to be in the log.
func (in *Inclusion) verify(part string, h Head) (Record, error) {
	r, err := Decode(in.Record)
	if err != nil {
		return Record{}, &ProofError{part, err.Error()}
	}
	if r.Batch != in.Header.No || r.Seq-in.Header.First != in.Index || r.At != in.Header.At {
		return Record{}, &ProofError{part, "the record has another place or time than is shown"}
	}
	if got, ok := merkle.Climb(merkle.Leaf(in.Record), in.Index, in.Header.Count, in.Path); !ok || got != in.Header.Merkle {
		return Record{}, &ProofError{part, "the record does not lead to the root of its batch"}
	}
	return r, checkLog(part, &in.Header, in.LogPath, h)
}

// names reads what r's refs stand for from the records shown for it, which must be those and no others.
func (p *Proof) names(r *Record) (Names, error) {
	var n Names
	rest := p.Names
	for _, w := range []struct {
		op   Op
		ref  uint64
		name *string
	}{{OpOpen, r.From, &n.From}, {OpOpen, r.To, &n.To}, {OpAsset, uint64(r.Asset), &n.Asset}} {
		if w.ref == 0 {
			continue
		}
		part := fmt.Sprintf("names.%d", len(p.Names)-len(rest))
		if len(rest) == 0 {
			return Names{}, &ProofError{part, "the record of a name is missing"}
		}
		open, err := rest[0].verify(part, p.Head)
		if err != nil {
			return Names{}, err
		}
		if open.Op != w.op || open.named() != w.ref || open.Seq > r.Seq { // a record may name what it refers to itself
			return Names{}, &ProofError{part, "it is not the name that the record refers to"}
		}
		*w.name, rest = open.Name, rest[1:]
	}
	if len(rest) != 0 {
		return Names{}, &ProofError{"names", "there are more than the record refers to"}
	}
	hold, err := p.hold(r)
	n.Hold = hold
	return n, err
}

// named is the ref that r gives a name to.
func (r *Record) named() uint64 {
	if r.Op == OpAsset {
		return uint64(r.Asset)
	}
	return r.From
}

func (p *Proof) hold(r *Record) (TxID, error) {
	if (p.Hold == nil) != (r.Hold == 0) {
		return TxID{}, &ProofError{"hold", "the record of the hold is missing, or there is none to show"}
	}
	if p.Hold == nil {
		return TxID{}, nil
	}
	h, err := p.Hold.verify("hold", p.Head)
	if err != nil {
		return TxID{}, err
	}
	if h.Op != OpHold || h.Seq != r.Hold || h.Seq >= r.Seq || h.From != r.From || h.To != r.To || h.Asset != r.Asset {
		return TxID{}, &ProofError{"hold", "it is not the hold that the record refers to"}
	}
	return h.TxID(), nil
}

// Consistency shows that the log grew from one head to the other by nothing but appending.
type Consistency struct {
	From, To LogHead
	Path     []b3.Digest
}

// ErrInconsistent says that one log is not shown to be how the other began: either the proof is damaged, or history was rewritten.
var ErrInconsistent = errors.New("the later log is not shown to begin as the earlier one")

// Verify says whether c shows what it claims, with ErrInconsistent if not. A root does not say of how many batches it is, and logs of some sizes,
// five and seven, have proofs of one shape: whoever checks holds both heads against heads that he knows, sizes too.
func (c *Consistency) Verify() error {
	if !merkle.CheckLogConsistency(c.From.Batches, c.To.Batches, c.From.Root, c.To.Root, c.Path) {
		return ErrInconsistent
	}
	return nil
}
