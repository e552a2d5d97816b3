package record

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// The kinds of lines that a period file has beside LineRecord and LineBatch: LinePeriod is the
// first, then come the rows of the base that the period begins with, the records and batches, and
// LineClose.
const (
	LinePeriod LineKind = iota + LineBatch + 1
	LineBase
	LineClose
)

// periodFormat is the format name in the first line of a period file.
const periodFormat = "ronbox-ledger-period-v1"

// PeriodFile returns the name of the file of a period.
func PeriodFile(n uint64) string { return fmt.Sprintf("period-%06d.ndjson.zst", n) }

// PeriodLine is one line of a period file.
type PeriodLine struct {
	Kind    LineKind
	Opening PeriodOpening // of LinePeriod
	Base    BaseLine      // of LineBase
	Entry   Line          // of LineRecord and LineBatch: the line as an export has it
	Close   string        // of LineClose: the text of the period's statement
}

// PeriodOpening is the first line of a period file.
type PeriodOpening struct {
	Period   uint64
	FromSeq  uint64    // of the first record
	PrevRoot b3.Digest // of the batch before that record's, zero for none
	Opening  string    // text of the statement of the period before, "" for the first period
}

// NewPeriodOpening returns the opening of the period after that of prev. The period before the
// first one has the zero Statement.
func NewPeriodOpening(prev *Statement) PeriodOpening {
	o := PeriodOpening{Period: prev.Period + 1, FromSeq: prev.ToSeq + 1, PrevRoot: prev.LastRoot}
	if prev.Period != 0 {
		o.Opening = prev.Text()
	}
	return o
}

// BaseLine is a row of the state that a period begins with.
type BaseLine struct {
	Base  string   // one of the words of base lines
	Ref   uint64   // BaseAccount, BaseBalance: of the account
	Seq   uint64   // BaseHold: of the record that made it
	Asset uint32   // BaseBalance, BaseAsset
	Key   [16]byte // BaseOnce, BaseGuard
	Name  string   // BaseAccount, BaseAsset
	Row   []byte   // as ledger/base has it, without its checksum
}

// The words of base lines, in the order of the file.
const (
	BaseAccount = "account"
	BaseBalance = "balance"
	BaseHold    = "hold"
	BaseGuard   = "guard"
	BaseOnce    = "once"
	BaseAsset   = "asset"
)

// baseMembers lists the members of a base line by its word.
var baseMembers = map[string]struct{ ref, seq, asset, key, name bool }{
	BaseAccount: {ref: true, name: true},
	BaseBalance: {ref: true, asset: true},
	BaseHold:    {seq: true},
	BaseGuard:   {key: true},
	BaseOnce:    {key: true},
	BaseAsset:   {asset: true, name: true},
}

// MaxPeriodLine is the longest line of a period file in bytes, its newline included: the text of a
// statement doubles at most as a member, and 300 is ample for the rest. A row of an open hold takes
// 5,000 bytes of it: a record, a header, and at most 60 digests.
const MaxPeriodLine = 2*MaxStatement + 300

// Append appends l in its one form, a newline at its end.
func (l *PeriodLine) Append(dst []byte) []byte {
	switch l.Kind {
	case LinePeriod:
		o := &l.Opening
		dst = append(append(append(dst, `{"format":"`...), periodFormat...), `","period":`...)
		dst = strconv.AppendUint(dst, o.Period, 10)
		dst = strconv.AppendUint(append(dst, `,"from_seq":`...), o.FromSeq, 10)
		dst, _ = o.PrevRoot.AppendText(append(dst, `,"prev_root":"`...))
		dst = appendText(append(dst, `","opening":`...), o.Opening)
	case LineBase:
		dst = l.Base.append(dst)
	case LineRecord, LineBatch:
		return l.Entry.Append(dst)
	case LineClose:
		dst = appendText(append(dst, `{"close":`...), l.Close)
	default:
		panic("record: a line of a period file without a kind")
	}
	return append(dst, '}', '\n')
}

// appendText appends the text of a statement, which is valid UTF-8, as a string of JSON.
func appendText(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}

func (l *BaseLine) append(dst []byte) []byte {
	has := baseMembers[l.Base]
	dst = append(append(append(dst, `{"base":"`...), l.Base...), '"')
	if has.ref {
		dst = strconv.AppendUint(append(dst, `,"ref":`...), l.Ref, 10)
	}
	if has.seq {
		dst = strconv.AppendUint(append(dst, `,"seq":`...), l.Seq, 10)
	}
	if has.asset {
		dst = strconv.AppendUint(append(dst, `,"asset":`...), uint64(l.Asset), 10)
	}
	if has.key {
		dst = append(hex.AppendEncode(append(dst, `,"key":"`...), l.Key[:]), '"')
	}
	dst = appendMember(dst, `,"name":"`, l.Name)
	return append(base64.StdEncoding.AppendEncode(append(dst, `,"row":"`...), l.Row), '"')
}

// periodWire is the JSON of a line that period files alone have.
type periodWire struct {
	Format  string     `json:"format"`
	Period  uint64     `json:"period"`
	From    uint64     `json:"from_seq"`
	Prev    *b3.Digest `json:"prev_root"`
	Opening string     `json:"opening"`

	Base  string `json:"base"`
	Ref   uint64 `json:"ref"`
	Seq   uint64 `json:"seq"`
	Asset uint32 `json:"asset"`
	Key   string `json:"key"`
	Name  string `json:"name"`
	Row   []byte `json:"row"`

	Close string `json:"close"`
}

var (
	errPeriodKind = errors.New("it is none of format, base, record, batch and close, or of another version")
	errOpening    = errors.New("its numbers are not those of a period after its opening statement")
	errBaseLine   = errors.New("a row of no known kind, or with other members than its kind has")
)

// ParsePeriodLine reads one line as Append wrote it, with or without its newline. It returns a
// *FormatError for any other. The statements in a line are valid, and an opening fits its
// statement. Rows of the base are not decoded.
func ParsePeriodLine(b []byte) (PeriodLine, error) {
	l, err := parsePeriodLine(bytes.TrimSuffix(b, []byte{'\n'}))
	if err != nil {
		return PeriodLine{}, &FormatError{"line of a period file", err}
	}
	return l, nil
}

// ownLines are the beginnings of the lines that period files alone have.
var ownLines = [][]byte{[]byte(`{"format":`), []byte(`{"base":`), []byte(`{"close":`)}

func parsePeriodLine(b []byte) (l PeriodLine, err error) {
	if len(b) >= MaxPeriodLine {
		return l, errLineLong
	}
	if !slices.ContainsFunc(ownLines, func(begin []byte) bool { return bytes.HasPrefix(b, begin) }) {
		entry, err := parseLine(b)
		return PeriodLine{Kind: entry.Kind, Entry: entry}, err
	}
	var w periodWire
	if err := json.Unmarshal(b, &w); err != nil {
		return l, err
	}
	if l, err = w.line(); err != nil {
		return l, err
	}
	form := l.Append(make([]byte, 0, len(b)+1))
	if !bytes.Equal(form[:len(form)-1], b) {
		return l, errLineForm
	}
	return l, nil
}

// line is w by the one of its members that says the kind.
func (w *periodWire) line() (l PeriodLine, err error) {
	switch {
	case w.Format == periodFormat && w.Prev != nil:
		l.Kind, l.Opening = LinePeriod, PeriodOpening{w.Period, w.From, *w.Prev, w.Opening}
		var prev Statement
		if w.Opening != "" {
			if prev, err = ParseStatement(w.Opening); err != nil {
				return l, err
			}
		}
		if l.Opening != NewPeriodOpening(&prev) {
			return l, errOpening
		}
	case w.Base != "":
		l.Kind = LineBase
		l.Base = BaseLine{Base: w.Base, Ref: w.Ref, Seq: w.Seq, Asset: w.Asset, Name: w.Name, Row: w.Row}
		if n, err := hex.Decode(l.Base.Key[:], []byte(w.Key[:min(len(w.Key), 32)])); err != nil || n != 16 && n != 0 {
			return l, errBaseLine
		}
		return l, l.Base.check()
	case w.Close != "":
		l.Kind, l.Close = LineClose, w.Close
		_, err = ParseStatement(w.Close)
	default:
		err = errPeriodKind
	}
	return l, err
}

// check returns an error if l has another member than its kind, or a name that is not valid. A
// member that its kind does not have is not in its form.
func (l *BaseLine) check() error {
	has, known := baseMembers[l.Base]
	if !known || has.ref != (l.Ref != 0) || has.seq != (l.Seq != 0) || has.asset != (l.Asset != 0) ||
		has.name != (l.Name != "") || len(l.Row) == 0 {
		return errBaseLine
	}
	switch l.Base {
	case BaseAccount:
		return engines.CheckAccount(l.Name)
	case BaseAsset:
		return engines.CheckAsset(l.Name)
	}
	return nil
}
