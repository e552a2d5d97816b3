package record

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"ronbox/appliance/b3"
)

// ChunkRows is how many rows of usage, and how many allocations, a chunk has; the last one may have fewer.
const ChunkRows = 512

// MaxPart is the longest part of an upload, bytes.
const MaxPart = 1 << 20

// Row says how much of a metric an actor had, by a content or as such.
type Row struct {
	Actor   string
	Content b3.Digest // zero: none
	Metric  uint8     // index into the snapshot's metrics
	Qty     uint64
}

// Compare orders rows by actor, content and metric; a row without content comes first.
func (r Row) Compare(o Row) int {
	return cmp.Or(strings.Compare(r.Actor, o.Actor), bytes.Compare(r.Content[:], o.Content[:]), cmp.Compare(r.Metric, o.Metric))
}

// Append appends the row as it is hashed: u16 len‖actor‖u8 has_content[‖content]‖u8 metric‖u64 qty, big-endian.
func (r Row) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(r.Actor)))
	dst = append(dst, r.Actor...)
	if r.Content.IsZero() {
		dst = append(dst, 0)
	} else {
		dst = append(append(dst, 1), r.Content[:]...)
	}
	dst = append(dst, r.Metric)
	return binary.BigEndian.AppendUint64(dst, r.Qty)
}

// RawRow is a Row whose actor lies in the bytes that it was read from.
type RawRow struct {
	Actor   []byte
	Content []byte // nil: none
	Metric  uint8
	Qty     uint64
}

// CutRow reads the first row of b. What is no row is not ok.
func CutRow(b []byte) (r RawRow, rest []byte, ok bool) {
	if len(b) < 2 {
		return r, nil, false
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	if len(b) < n+1 || n == 2 {
		return r, nil, false
	}
	r.Actor = b[2:n:n]
	switch b[n] {
	case 0:
		n++
	case 1:
		if len(b) < n+1+b3.Size {
			return r, nil, false
		}
		r.Content = b[n+1 : n+1+b3.Size : n+1+b3.Size]
		n += 1 + b3.Size
	default:
		return r, nil, false
	}
	if len(b) < n+9 {
		return r, nil, false
	}
	r.Metric, r.Qty = b[n], binary.BigEndian.Uint64(b[n+1:])
	return r, b[n+9:], true
}

// Row is r with texts of its own.
func (r RawRow) Row() *Row {
	row := &Row{Actor: string(r.Actor), Metric: r.Metric, Qty: r.Qty}
	copy(row.Content[:], r.Content)
	return row
}

// AppendJSON appends the row as a line of rows.ndjson.
func (r RawRow) AppendJSON(dst []byte, metrics []string) []byte {
	dst = append(dst, `{"actor":"`...)
	dst = append(dst, r.Actor...)
	if r.Content != nil {
		dst = append(dst, `","content":"`...)
		dst, _ = b3.Digest(r.Content).AppendText(dst) // never fails
	}
	dst = append(dst, `","metric":"`...)
	dst = append(dst, metrics[r.Metric]...)
	dst = append(dst, `","qty":"`...)
	dst = strconv.AppendUint(dst, r.Qty, 10)
	return append(dst, '"', '}', '\n')
}

// Rows reads the rows of parts, in order.
type Rows struct {
	Snapshot *Snapshot // whose metrics they name
	Payer    string    // the funding account, which is never paid
	After    *Row      // the row before the next one; nil: none
}

// header of a part in CSV; a column of contents may follow.
const csvHeader = "actor,metric,qty"

// Read reads a part of JSON lines or, with a header line, of CSV, none of whose values needs quotes.
func (in *Rows) Read(part []byte, csv bool) (rows []Row, err error) {
	var columns []string
	for n := 1; len(part) > 0; n++ {
		line, rest, _ := bytes.Cut(part, []byte{'\n'})
		part = rest
		f := &fields{flat: map[string]any{}}
		switch text := strings.TrimSuffix(string(line), "\r"); {
		case !csv:
			f = read(line)
		case columns == nil:
			if columns = strings.Split(text, ","); text != csvHeader && text != csvHeader+",content" {
				return nil, fault("line 1", "must be the header %s or %s,content", csvHeader, csvHeader)
			}
			continue
		default:
			cells := strings.Split(text, ",")
			if len(cells) != len(columns) {
				return nil, fault("line "+strconv.Itoa(n), "has %d columns, the header has %d", len(cells), len(columns))
			}
			for i, cell := range cells {
				if columns[i] != "content" || cell != "" {
					f.flat[columns[i]] = cell
				}
			}
		}
		row, err := in.row(f)
		if err != nil {
			return nil, fault("line "+strconv.Itoa(n)+"."+err.Field, "%s", err.Reason)
		}
		rows = append(rows, *row)
	}
	return rows, nil
}

// row checks one row, and that it follows the one before.
func (in *Rows) row(f *fields) (*Row, *FieldError) {
	row := &Row{Actor: f.text("actor"), Qty: f.number("qty")}
	m, known := slices.BinarySearch(in.Snapshot.Metrics, f.text("metric"))
	row.Metric = uint8(m)
	if f.has("content") {
		if row.Content = f.digest("content"); row.Content.IsZero() {
			f.fail(fault("content", "is the digest that stands for none: leave it out"))
		}
	}
	err := f.end()
	if err == nil {
		err = CheckActor("actor", row.Actor)
	}
	switch {
	case err != nil:
	case row.Actor == in.Payer:
		err = fault("actor", "is the funding account")
	case !known:
		err = fault("metric", "is not one of the metrics that the upload declares")
	case in.After != nil && in.After.Compare(*row) == 0:
		err = fault("actor", "repeats the row before: add rows of one actor, content and metric up")
	case in.After != nil && in.After.Compare(*row) > 0:
		err = fault("actor", "does not ascend: sort rows by actor, content and metric")
	default:
		in.After = row
		return row, nil
	}
	return nil, err.(*FieldError)
}
