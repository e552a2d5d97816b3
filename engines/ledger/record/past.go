package record

import (
	"encoding/binary"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
)

// Past is what a ledger has of its closed periods for proofs of later records.
type Past interface {
	// Closing is the text of the newest statement, and the Seq of the record that closed its
	// period.
	Closing() (statement string, seq uint64)
	// Name is the name of an account or an asset that the statement counts.
	Name(asset bool, ref uint64) (NameProof, error)
	// Hold is the place of the record of a hold that was open at the end of the period. Its LogPath
	// leads from the header's root to the peak over it.
	Hold(seq uint64) (Inclusion, error)
}

// PastProof shows names that were given in closed periods: a record has the digest of a statement,
// the statement the root of the log of names, and that log the names.
type PastProof struct {
	Names     []NameProof // of from, to, asset: those with refs that the statement counts
	Statement string
	Close     Inclusion // the record that closed the period of the statement
}

// NameProof shows that the log of names has a name.
type NameProof struct {
	Asset bool // of an asset, not of an account
	Ref   uint64
	Name  string
	Index uint64      // of its leaf in the log, from 0 on
	Path  []b3.Digest // from the leaf to the root of the log
}

// The first bytes of leaves of the log of names.
const (
	leafOfAccount = 'a'
	leafOfAsset   = 's'
)

// NameLeaf returns the content of the leaf of a name in the log of names. The log hashes it as the
// log of batch roots hashes a root.
func NameLeaf(asset bool, ref uint64, name string) b3.Digest {
	kind := byte(leafOfAccount)
	if asset {
		kind = leafOfAsset
	}
	b := binary.BigEndian.AppendUint64([]byte{kind}, ref)
	return b3.Sum(append(b, name...))
}

// Names returns the number of leaves of the log of names.
func (s *Statement) Names() uint64 { return s.Accounts + uint64(s.Assets) }

// counts reports whether s counts the account or the asset with a ref.
func (s *Statement) counts(n nameRef) bool {
	if n.asset {
		return n.ref <= uint64(s.Assets)
	}
	return n.ref <= s.Accounts
}

// nameRef is what a record says in place of a name.
type nameRef struct {
	asset bool
	ref   uint64 // 0: it has no such name
}

// nameRefs returns the refs of r: from, to, asset.
func (r *Record) nameRefs() [3]nameRef {
	return [3]nameRef{{false, r.From}, {false, r.To}, {true, uint64(r.Asset)}}
}

// statement returns the statement of a past, the zero one for nil.
func statement(past Past) (Statement, error) {
	if past == nil {
		return Statement{}, nil
	}
	text, _ := past.Closing()
	return ParseStatement(text)
}

// addClosed adds a name that was given in a closed period.
func (p *Proof) addClosed(s Source, past Past, n nameRef) error {
	name, err := past.Name(n.asset, n.ref)
	if err != nil {
		return fmt.Errorf("name of ref %d: %w", n.ref, err)
	}
	if p.Past == nil {
		text, seq := past.Closing()
		p.Past = &PastProof{Statement: text}
		if _, err := include(s, seq, p.Head.Batches, &p.Past.Close); err != nil {
			return err
		}
	}
	p.Past.Names = append(p.Past.Names, name)
	return nil
}

// includeHold fills in with the record of a hold that was open at the end of the closed periods.
func includeHold(s Source, past Past, seq, size uint64, in *Inclusion) (err error) {
	if *in, err = past.Hold(seq); err != nil {
		return fmt.Errorf("hold %d: %w", seq, err)
	}
	above, err := merkle.LogInclusionFrom(size, in.Header.No-1, len(in.LogPath), s.Node)
	in.LogPath = slices.Concat(in.LogPath, above)
	return err
}

// verify returns the statement that c shows to be one of the log with the head h, for names of the
// record r. It is the zero Statement, which counts no name, for nil.
func (c *PastProof) verify(r *Record, h Head) (Statement, error) {
	if c == nil {
		return Statement{}, nil
	}
	s, err := ParseStatement(c.Statement)
	if err != nil {
		return s, &ProofError{"statement", err.Error()}
	}
	closing, err := c.Close.verify("close", h)
	if err != nil {
		return s, err
	}
	switch want := NewClose(&s); {
	case closing.Op != want.Op || closing.Amount != want.Amount || closing.Dedupe != want.Dedupe,
		closing.Seq <= s.ToSeq:
		return s, &ProofError{"close", "it is not the record that closed the period of the statement"}
	case r.Seq <= s.ToSeq: // the names could be later ones
		return s, &ProofError{"statement", "the record is in a closed period, or before one"}
	case len(c.Names) == 0:
		return s, &ProofError{"statement", "there is no name that needs it"}
	}
	return s, nil
}

// verify returns the name that n shows to be that of a ref, in the log of names of s.
func (n *NameProof) verify(part string, s *Statement, of nameRef) (string, error) {
	check := engines.CheckAccount
	if n.Asset {
		check = engines.CheckAsset
	}
	if n.Asset != of.asset || n.Ref != of.ref {
		return "", &ProofError{part, "it is not the name that the record refers to"}
	}
	if err := check(n.Name); err != nil {
		return "", &ProofError{part, err.Error()}
	}
	leaf := NameLeaf(n.Asset, n.Ref, n.Name)
	root, ok := merkle.Climb(merkle.Leaf(leaf[:]), n.Index, s.Names(), n.Path)
	if !ok || root != s.NamesRoot {
		return "", &ProofError{part, "the name does not lead to the root of the log of names"}
	}
	return n.Name, nil
}

// The JSON of a PastProof, as that of a Proof.
type (
	pastWire struct {
		Names     []nameWire    `json:"names"`
		Statement string        `json:"statement"`
		Close     inclusionWire `json:"close"`
	}
	nameWire struct {
		Kind  string      `json:"kind"`
		Ref   uint64      `json:"ref"`
		Name  string      `json:"name"`
		Index uint64      `json:"index"`
		Path  []b3.Digest `json:"path"`
	}
)

// Values of the member "kind".
const (
	kindAccount = "account"
	kindAsset   = "asset"
)

// wire returns the JSON of c, nil for nil.
func (c *PastProof) wire() *pastWire {
	if c == nil {
		return nil
	}
	w := &pastWire{make([]nameWire, len(c.Names)), c.Statement, c.Close.wire()}
	for i, n := range c.Names {
		kind := kindAccount
		if n.Asset {
			kind = kindAsset
		}
		w.Names[i] = nameWire{kind, n.Ref, n.Name, n.Index, n.Path}
	}
	return w
}

func (w *pastWire) past() (*PastProof, error) {
	if w == nil {
		return nil, nil
	}
	c := &PastProof{Names: make([]NameProof, len(w.Names)), Statement: w.Statement}
	for i, n := range w.Names {
		c.Names[i] = NameProof{n.Kind == kindAsset, n.Ref, n.Name, n.Index, n.Path} // other kinds: sameForm
	}
	var err error
	c.Close, err = w.Close.inclusion()
	return c, err
}
