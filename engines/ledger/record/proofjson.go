package record

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// The JSON of a proof: bytes in base64, as they are hashed, digests in their text form, numbers of 64 bits as numbers. It has one form, so
// that nothing can be altered in it and go unseen; only spaces between its tokens are free.
type (
	proofWire struct {
		Format string          `json:"format"`
		Tx     inclusionWire   `json:"tx"`
		Names  []inclusionWire `json:"names"`
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

// What a file says of itself in "format".
const (
	proofFormat       = "ronbox-ledger-proof-v1"
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
	if p.Hold != nil {
		hold := p.Hold.wire()
		w.Hold = &hold
	}
	return json.Marshal(w)
}

// UnmarshalJSON takes what MarshalJSON writes, spaces between its tokens aside, with a *FormatError for anything else. It proves nothing: see
// Verify.
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
	if w.Format != proofFormat {
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
	if w.Hold == nil {
		return p, nil
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

// UnmarshalJSON takes what MarshalJSON writes, spaces between its tokens aside, with a *FormatError for anything else. It proves nothing: see
// Verify.
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

// sameForm says whether in is how v is written, spaces between the tokens aside.
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
