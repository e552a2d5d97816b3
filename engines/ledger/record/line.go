package record

import (
	"encoding/base64"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// LineKind says what a line of an export holds.
type LineKind uint8

// The kinds of lines: one of format first, then the records in the order of Seq, and after the last record of a batch the batch.
const (
	LineFormat LineKind = iota + 1
	LineRecord
	LineBatch
)

// exportFormat is what an export says of itself.
const exportFormat = "ronbox-ledger-export-v1"

// Line is one line of an export: a JSON object that carries what is hashed as it is, in base64, and beside it what people read. An import
// takes the bytes, so it comes to the same roots.
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
		dst = appendDigest(append(dst, `,"prev_root":"`...), l.Prev)
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
	dst = appendDigest(append(dst, `","root":"`...), b.Root())
	return base64.StdEncoding.AppendEncode(append(dst, `","header":"`...), b.Append(raw[:0]))
}
