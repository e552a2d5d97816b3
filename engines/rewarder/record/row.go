package record

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines/canon"
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

// CutRow reads the first row of b. What is no row is not ok.
func CutRow(b []byte) (r Row, rest []byte, ok bool) {
	actor, rest := cutActor(b)
	if len(actor) == 0 || len(rest) == 0 || rest[0] > 1 {
		return r, nil, false
	}
	r.Actor = string(actor)
	content, rest := rest[0] == 1, rest[1:]
	if content && len(rest) >= b3.Size {
		r.Content, rest, content = b3.Digest(rest[:b3.Size]), rest[b3.Size:], false
	}
	if content || len(rest) < 9 {
		return r, nil, false
	}
	r.Metric, r.Qty = rest[0], binary.BigEndian.Uint64(rest[1:])
	return r, rest[9:], true
}

// cutActor cuts u16 len‖actor off b; actor is nil if there is none.
func cutActor(b []byte) (actor, rest []byte) {
	if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
		return nil, nil
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	return b[2:n], b[n:]
}

// AppendJSON appends the row as a line of rows.ndjson.
func (r Row) AppendJSON(dst []byte, metrics []string) []byte {
	content := ""
	if !r.Content.IsZero() {
		content = `"content":"` + r.Content.String() + `",`
	}
	return fmt.Appendf(dst, `{"actor":"%s",%s"metric":"%s","qty":"%d"}`+"\n", r.Actor, content, metrics[r.Metric], r.Qty)
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
		f := canon.NewFields()
		switch text := strings.TrimSuffix(string(line), "\r"); {
		case !csv:
			f = canon.Read(line)
		case columns == nil:
			if columns = strings.Split(text, ","); text != csvHeader && text != csvHeader+",content" {
				return nil, canon.Fault("line 1", "must be the header %s or %s,content", csvHeader, csvHeader)
			}
			continue
		default:
			cells := strings.Split(text, ",")
			if len(cells) != len(columns) {
				return nil, canon.Fault("line "+strconv.Itoa(n), "has %d columns, the header has %d", len(cells), len(columns))
			}
			for i, cell := range cells {
				if columns[i] != "content" || cell != "" {
					f.Set(columns[i], cell)
				}
			}
		}
		row, err := in.row(f)
		if err != nil {
			return nil, canon.Fault("line "+strconv.Itoa(n)+"."+err.Field, "%s", err.Reason)
		}
		rows = append(rows, *row)
	}
	return rows, nil
}

// row checks one row, and that it follows the one before.
func (in *Rows) row(f *canon.Fields) (*Row, *FieldError) {
	row := &Row{Actor: f.Text("actor"), Qty: f.Number("qty")}
	m, known := slices.BinarySearch(in.Snapshot.Metrics, f.Text("metric"))
	row.Metric = uint8(m)
	if f.Has("content") {
		if row.Content = f.Digest("content"); row.Content.IsZero() {
			f.Fail(canon.Fault("content", "is the digest that stands for none: leave it out"))
		}
	}
	err := f.End()
	if err == nil {
		err = CheckActor("actor", row.Actor)
	}
	switch {
	case err != nil:
	case row.Actor == in.Payer:
		err = canon.Fault("actor", "is the funding account")
	case !known:
		err = canon.Fault("metric", "is not one of the metrics that the upload declares")
	case in.After != nil && in.After.Compare(*row) == 0:
		err = canon.Fault("actor", "repeats the row before: add rows of one actor, content and metric up")
	case in.After != nil && in.After.Compare(*row) > 0:
		err = canon.Fault("actor", "does not ascend: sort rows by actor, content and metric")
	default:
		in.After = row
		return row, nil
	}
	return nil, err.(*FieldError)
}
