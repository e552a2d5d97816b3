package record

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// MaxLine is the longest line of an export in bytes, its newline included: a record of MaxRecord is 1068 in base64, two accounts, an asset
// and a key are 592 more, a memo is at most six bytes a byte, and 700 is ample for the rest.
const MaxLine = 1068 + 2*engines.MaxAccount + engines.MaxAsset + MaxIdem + 6*MaxMemo + 700

// lineWire is the JSON of a line of whatever kind. What only people read is not read back: it follows from the bytes, and is compared.
type lineWire struct {
	Format string     `json:"format"`
	From   uint64     `json:"from_seq"`
	Prev   *b3.Digest `json:"prev_root"`

	FromName string `json:"from"`
	ToName   string `json:"to"`
	Asset    string `json:"asset"`
	Record   []byte `json:"record"`

	Header []byte `json:"header"`
}

var (
	errLineLong  = errors.New("it is longer than a line can be")
	errLineKind  = errors.New("it is none of format, record and batch, or of another version")
	errLineNames = errors.New("from, to and asset are not those that the record has")
	errLineForm  = errors.New("what it shows is not what its bytes say")
)

// ParseLine takes one line as Append wrote it, with or without its newline, with a *FormatError for anything else. What is shown beside
// the bytes must be what they say; only the names of a record's refs are for the reader of the whole export to judge.
func ParseLine(b []byte) (Line, error) {
	l, err := parseLine(bytes.TrimSuffix(b, []byte{'\n'}))
	if err != nil {
		return Line{}, &FormatError{"line of an export", err}
	}
	return l, nil
}

func parseLine(b []byte) (Line, error) {
	if len(b) >= MaxLine {
		return Line{}, errLineLong
	}
	var w lineWire
	if err := json.Unmarshal(b, &w); err != nil {
		return Line{}, err
	}
	l, err := w.line()
	if err != nil {
		return Line{}, err
	}
	form := l.Append(make([]byte, 0, MaxLine))
	if !bytes.Equal(form[:len(form)-1], b) {
		return Line{}, errLineForm
	}
	return l, nil
}

// line is w by the one of its members that says the kind. Members of other kinds are not in the form of this one.
func (w *lineWire) line() (l Line, err error) {
	switch {
	case w.Format == exportFormat && w.Prev != nil && w.From != 0:
		return Line{Kind: LineFormat, From: w.From, Prev: *w.Prev}, nil
	case w.Record != nil:
		l = Line{Kind: LineRecord, Raw: w.Record, Names: Names{From: w.FromName, To: w.ToName, Asset: w.Asset}}
		if l.Record, err = Decode(w.Record); err != nil {
			return Line{}, err
		}
		return l, l.checkNames()
	case w.Header != nil:
		l.Kind = LineBatch
		l.Batch, err = DecodeBatch(w.Header)
		return l, err
	}
	return Line{}, errLineKind
}

// checkNames says whether l names what its record refers to and nothing else, and each name is within its grammar.
func (l *Line) checkNames() error {
	r, n := &l.Record, l.Names
	switch {
	case (r.From == 0) != (n.From == ""), (r.To == 0) != (n.To == ""), (r.Asset == 0) != (n.Asset == ""):
		return errLineNames
	case r.Op == OpOpen && n.From != r.Name, r.Op == OpAsset && n.Asset != r.Name:
		return errLineNames
	}
	return errors.Join(given(n.From, engines.CheckAccount), given(n.To, engines.CheckAccount), given(n.Asset, engines.CheckAsset))
}
