package record

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// LineKind is the kind of a line of an export.
type LineKind uint8

// The kinds of lines: one of format first, then the records in the order of Seq, and after the last
// record of a batch the batch.
const (
	LineFormat LineKind = iota + 1
	LineRecord
	LineBatch
)

// exportFormat is the format name in the first line of an export.
const exportFormat = "ronbox-ledger-export-v1"

// Line is one line of an export: a JSON object with the hashed bytes in base64 and a readable form
// beside them. An import uses the bytes, so it has the same roots.
type Line struct {
	Kind LineKind

	// Of LineFormat.
	From uint64    // Seq of the first record that follows, from 1 on
	Prev b3.Digest // root of the batch before that record's, zero for none

	// Of LineRecord. Hold of the names is not shown.
	Raw    []byte // the bytes of Record
	Record Record
	Names  Names

	// Of LineBatch.
	Batch Batch
}

// Append appends l in its one form, a newline at its end.
func (l *Line) Append(dst []byte) []byte {
	switch l.Kind {
	case LineFormat:
		dst = append(append(append(dst, `{"format":"`...), exportFormat...), `","from_seq":`...)
		dst = strconv.AppendUint(dst, l.From, 10)
		dst, _ = l.Prev.AppendText(append(dst, `,"prev_root":"`...))
	case LineRecord:
		dst = l.appendRecord(dst)
	case LineBatch:
		dst = appendBatchLine(dst, &l.Batch)
	default:
		panic("record: a line of an export without a kind")
	}
	return append(dst, '"', '}', '\n')
}

func (l *Line) appendRecord(dst []byte) []byte {
	r := &l.Record
	dst = strconv.AppendUint(append(dst, `{"seq":`...), r.Seq, 10)
	dst = strconv.AppendUint(append(dst, `,"batch":`...), r.Batch, 10)
	dst = r.TxID().append(append(dst, `,"txid":"`...))
	dst = append(append(append(dst, `","op":"`...), r.Op.String()...), '"')
	dst = appendMember(dst, `,"from":"`, l.Names.From)
	dst = appendMember(dst, `,"to":"`, l.Names.To)
	dst = appendMember(dst, `,"asset":"`, l.Names.Asset)
	if r.Op.MovesMoney() {
		dst, _ = r.Amount.AppendText(append(dst, `,"amount_minor":"`...))
		dst = append(dst, '"')
	}
	if r.Op == OpScale {
		dst, _ = r.Amount.AppendText(append(dst, `,"decimals":`...))
	}
	if r.Nonce != 0 {
		dst = strconv.AppendUint(append(dst, `,"nonce":`...), r.Nonce, 10)
	}
	if r.Hold != 0 {
		dst = strconv.AppendUint(append(dst, `,"hold_seq":`...), r.Hold, 10)
	}
	if r.Expires != 0 {
		dst = append(appendStamp(append(dst, `,"expires":"`...), r.Expires), '"')
	}
	dst = appendMember(dst, `,"set":"`, r.Set.String())
	dst = appendMember(dst, `,"clear":"`, r.Clear.String())
	dst = appendMember(dst, `,"idem":"`, r.Idem)
	if r.Memo != "" {
		// A memo is valid UTF-8, which is all that could be wrong with it here.
		dst, _ = jsontext.AppendQuote(append(dst, `,"memo":`...), r.Memo)
	}
	dst = appendStamp(append(dst, `,"ts":"`...), r.At)
	return base64.StdEncoding.AppendEncode(append(dst, `","record":"`...), l.Raw)
}

func appendBatchLine(dst []byte, b *Batch) []byte {
	var raw [BatchSize]byte
	dst = strconv.AppendUint(append(dst, `{"batch":`...), b.No, 10)
	dst = strconv.AppendUint(append(dst, `,"first_seq":`...), b.First, 10)
	dst = strconv.AppendUint(append(dst, `,"count":`...), b.Count, 10)
	dst = appendStamp(append(dst, `,"ts":"`...), b.At)
	dst, _ = b.Root().AppendText(append(dst, `","root":"`...))
	return base64.StdEncoding.AppendEncode(append(dst, `","header":"`...), b.Append(raw[:0]))
}

// MaxLine is the longest line of an export in bytes, its newline included: a record of MaxRecord is
// 1068 in base64, two accounts, an asset and a key are 592 more, a memo is at most six bytes a
// byte, and 700 is ample for the rest.
const MaxLine = 1068 + 2*engines.MaxAccount + engines.MaxAsset + MaxIdem + 6*MaxMemo + 700

// lineWire is the JSON of a line of whatever kind. What only people read is not read back: it
// follows from the bytes, and is compared.
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

// ParseLine reads one line as Append wrote it, with or without its newline. It returns a
// *FormatError for any other. The readable form must match the bytes, except for the names of a
// record's refs, which only a reader of the whole export can check.
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

// line is w by the one of its members that says the kind. Members of other kinds are not in the
// form of this one.
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

// checkNames returns an error unless l names exactly the refs of its record, with valid names.
func (l *Line) checkNames() error {
	r, n := &l.Record, l.Names
	switch {
	case (r.From == 0) != (n.From == ""), (r.To == 0) != (n.To == ""), (r.Asset == 0) != (n.Asset == ""):
		return errLineNames
	case r.Op == OpOpen && n.From != r.Name, r.Op == OpAsset && n.Asset != r.Name:
		return errLineNames
	}
	return errors.Join(given(n.From, engines.CheckAccount), given(n.To, engines.CheckAccount),
		given(n.Asset, engines.CheckAsset))
}
