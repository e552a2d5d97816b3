package record

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
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
	Tx Inclusion
	// the records that opened its accounts and declared its asset: from, to, asset, those that it
	// has and Past does not show
	Names    []Inclusion
	Past     *PastProof  // its names that were given in closed periods, nil for none
	Hold     *Inclusion  // the record of the hold that it ends
	Last     Batch       // the last batch of the log
	LastPath []b3.Digest // from the root of Last to the root of the log
	Head     Head
}

// ProofError is returned for a proof that fails, with the part that fails.
type ProofError struct {
	Part   string // "tx", "names.0", "past.0", "statement", "hold", "head", ...
	Reason string
}

func (e *ProofError) Error() string {
	return fmt.Sprintf("the proof fails at %s: %s", e.Part, e.Reason)
}

// Verify checks p without the ledger and returns the receipt that it proves, or a *ProofError. The
// caller must check that Head is a head of the ledger: by a head that it trusts, or by a
// Consistency from such a head to this one.
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

// checkHead returns an error unless Last is the last leaf of the log and Head follows from both.
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
	if got, ok := merkle.Climb(merkle.Leaf(in.Record), in.Index, in.Header.Count, in.Path); !ok ||
		got != in.Header.Merkle {
		return Record{}, &ProofError{part, "the record does not lead to the root of its batch"}
	}
	return r, checkLog(part, &in.Header, in.LogPath, h)
}

// names reads what r's refs stand for from the records and the names shown for it, which must be
// those and no others.
func (p *Proof) names(r *Record) (Names, error) {
	s, err := p.Past.verify(r, p.Head)
	if err != nil {
		return Names{}, err
	}
	var names [3]string
	given, closed := 0, 0
	for i, ref := range r.nameRefs() {
		switch {
		case ref.ref == 0:
			continue
		case s.counts(ref):
			names[i], err = p.closed(closed, &s, ref)
			closed++
		default:
			names[i], err = p.given(given, r, ref)
			given++
		}
		if err != nil {
			return Names{}, err
		}
	}
	if given != len(p.Names) || p.Past != nil && closed != len(p.Past.Names) {
		return Names{}, &ProofError{"names", "there are more than the record refers to"}
	}
	hold, err := p.hold(r)
	return Names{names[0], names[1], names[2], hold}, err
}

// given returns the name that record number i of Names gives to a ref of r.
func (p *Proof) given(i int, r *Record, ref nameRef) (string, error) {
	part := fmt.Sprintf("names.%d", i)
	if i >= len(p.Names) {
		return "", &ProofError{part, "the record of a name is missing"}
	}
	open, err := p.Names[i].verify(part, p.Head)
	if err != nil {
		return "", err
	}
	op, named := OpOpen, open.From
	if ref.asset {
		op, named = OpAsset, uint64(open.Asset)
	}
	// a record may itself open the account or asset that it refers to
	if open.Op != op || named != ref.ref || open.Seq > r.Seq {
		return "", &ProofError{part, "it is not the name that the record refers to"}
	}
	return open.Name, nil
}

// closed returns name number i of Past, which is that of a ref that s counts.
func (p *Proof) closed(i int, s *Statement, ref nameRef) (string, error) {
	part := fmt.Sprintf("past.%d", i)
	if i >= len(p.Past.Names) {
		return "", &ProofError{part, "a name is missing"}
	}
	return p.Past.Names[i].verify(part, s, ref)
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

// Consistency proves that the log of one head is a prefix of the log of another.
type Consistency struct {
	From, To LogHead
	Path     []b3.Digest
}

// ErrInconsistent says that one log is not shown to be how the other began: either the proof is
// damaged, or history was rewritten.
var ErrInconsistent = errors.New("the later log is not shown to begin as the earlier one")

// Verify returns ErrInconsistent if c does not hold. A root does not determine the number of
// batches, and logs of some sizes, such as five and seven, have proofs of the same shape: the
// caller must compare both heads with known heads, sizes included.
func (c *Consistency) Verify() error {
	if !merkle.CheckLogConsistency(c.From.Batches, c.To.Batches, c.From.Root, c.To.Root, c.Path) {
		return ErrInconsistent
	}
	return nil
}

// The JSON of a proof: bytes in base64, as they are hashed, digests in their text form, numbers of
// 64 bits as numbers. It has one form, so that nothing can be altered in it and go unseen; only
// spaces between its tokens are free.
type (
	proofWire struct {
		Format string          `json:"format"`
		Tx     inclusionWire   `json:"tx"`
		Names  []inclusionWire `json:"names"`
		Past   *pastWire       `json:"past,omitempty"`
		Hold   *inclusionWire  `json:"hold,omitempty"`
		Last   lastWire        `json:"last"`
		Head   Head            `json:"head"`
	}
	inclusionWire struct {
		Record  []byte      `json:"record"`
		Index   uint64      `json:"index"`
		Path    []b3.Digest `json:"path"`
		Header  []byte      `json:"header"`
		LogPath []b3.Digest `json:"log_path"`
	}
	lastWire struct {
		Header  []byte      `json:"header"`
		LogPath []b3.Digest `json:"log_path"`
	}
	consistencyWire struct {
		Format string      `json:"format"`
		From   LogHead     `json:"from"`
		To     LogHead     `json:"to"`
		Path   []b3.Digest `json:"path"`
	}
)

// Values of the member "format".
const (
	proofFormat       = "ronbox-ledger-proof-v1"
	proofPastFormat   = "ronbox-ledger-proof-v2" // with "past", and only then
	consistencyFormat = "ronbox-ledger-consistency-v1"
)

var (
	errFormat = errors.New("format is not one that this program knows")
	errForm   = errors.New("the members are not all there, or not in their order and form")
)

// MarshalJSON writes p's one form.
func (p Proof) MarshalJSON() ([]byte, error) {
	w := proofWire{
		Format: proofFormat, Tx: p.Tx.wire(), Names: make([]inclusionWire, len(p.Names)), Head: p.Head,
		Last: lastWire{p.Last.Append(nil), p.LastPath},
	}
	for i := range p.Names {
		w.Names[i] = p.Names[i].wire()
	}
	if p.Past != nil {
		w.Format, w.Past = proofPastFormat, p.Past.wire()
	}
	if p.Hold != nil {
		hold := p.Hold.wire()
		w.Hold = &hold
	}
	return json.Marshal(w)
}

// UnmarshalJSON takes what MarshalJSON writes, spaces between its tokens aside, with a *FormatError
// for anything else. It proves nothing: see Verify.
func (p *Proof) UnmarshalJSON(b []byte) error {
	v, err := parseProof(b)
	if err == nil {
		err = sameForm(b, v)
	}
	if err != nil {
		return &FormatError{"proof", err}
	}
	*p = v
	return nil
}

func parseProof(b []byte) (Proof, error) {
	var w proofWire
	if err := json.Unmarshal(b, &w, json.RejectUnknownMembers(true)); err != nil {
		return Proof{}, err
	}
	if w.Format != proofFormat && w.Format != proofPastFormat {
		return Proof{}, errFormat
	}
	p := Proof{LastPath: w.Last.LogPath, Head: w.Head, Names: make([]Inclusion, len(w.Names))}
	var err error
	if p.Last, err = DecodeBatch(w.Last.Header); err != nil {
		return Proof{}, err
	}
	if p.Tx, err = w.Tx.inclusion(); err != nil {
		return Proof{}, err
	}
	for i := range w.Names {
		if p.Names[i], err = w.Names[i].inclusion(); err != nil {
			return Proof{}, err
		}
	}
	if p.Past, err = w.Past.past(); err != nil || w.Hold == nil {
		return p, err
	}
	hold, err := w.Hold.inclusion()
	p.Hold = &hold
	return p, err
}

func (in *Inclusion) wire() inclusionWire {
	return inclusionWire{in.Record, in.Index, in.Path, in.Header.Append(nil), in.LogPath}
}

func (w *inclusionWire) inclusion() (Inclusion, error) {
	b, err := DecodeBatch(w.Header)
	return Inclusion{w.Record, w.Index, w.Path, b, w.LogPath}, err
}

// MarshalJSON writes c's one form.
func (c Consistency) MarshalJSON() ([]byte, error) {
	return json.Marshal(consistencyWire{consistencyFormat, c.From, c.To, c.Path})
}

// UnmarshalJSON takes what MarshalJSON writes, spaces between its tokens aside, with a *FormatError
// for anything else. It proves nothing: see Verify.
func (c *Consistency) UnmarshalJSON(b []byte) error {
	var w consistencyWire
	err := json.Unmarshal(b, &w, json.RejectUnknownMembers(true))
	if err == nil && w.Format != consistencyFormat {
		err = errFormat
	}
	v := Consistency{w.From, w.To, w.Path}
	if err == nil {
		err = sameForm(b, v)
	}
	if err != nil {
		return &FormatError{"consistency proof", err}
	}
	*c = v
	return nil
}

// sameForm returns an error unless in is the JSON form of v, apart from spaces between tokens.
func sameForm(in []byte, v any) error {
	form, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tight := jsontext.Value(bytes.Clone(in))
	if err := tight.Compact(); err != nil {
		return err
	}
	if !bytes.Equal(form, tight) {
		return errForm
	}
	return nil
}
