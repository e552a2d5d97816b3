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

// ChunkRows is the number of rows of usage, and of allocations, in a chunk. The last chunk may have
// fewer.
const ChunkRows = 512

// MaxPart bounds a part of an upload in bytes.
const MaxPart = 1 << 20

// Row is the quantity of a metric that an actor has, for one content or for none.
type Row struct {
	Actor   string
	Content b3.Digest // zero: none
	Metric  uint8     // index into the snapshot's metrics
	Qty     uint64
}

// Compare orders rows by actor, content and metric; a row without content comes first.
func (r Row) Compare(o Row) int {
	return cmp.Or(strings.Compare(r.Actor, o.Actor), bytes.Compare(r.Content[:], o.Content[:]),
		cmp.Compare(r.Metric, o.Metric))
}

// Append appends the hashed form of the row: u16 len‖actor‖u8 has_content[‖content]‖u8 metric‖u64
// qty, big-endian.
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

// CutRow decodes the first row of b. ok is false if b does not begin with a row.
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

// cutActor cuts u16 len‖actor off b. actor is nil if b is too short.
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
	return fmt.Appendf(dst, `{"actor":"%s",%s"metric":"%s","qty":"%d"}`+"\n",
		r.Actor, content, metrics[r.Metric], r.Qty)
}

// Rows parses the rows of consecutive parts.
type Rows struct {
	Snapshot *Snapshot // header with the metrics of the rows
	Payer    string    // the funding account, which is never paid
	After    *Row      // the previous row; nil: none
}

// csvHeader is the header of a CSV part. A column content may follow.
const csvHeader = "actor,metric,qty"

// Read parses a part of JSON lines or, with csv, of CSV with a header line and without quotes.
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
				return nil, canon.Fault("line "+strconv.Itoa(n), "has %d columns, the header has %d", len(cells),
					len(columns))
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

// row checks one row and its order after the previous one.
func (in *Rows) row(f *canon.Fields) (*Row, *FieldError) {
	row := &Row{Actor: f.Text("actor"), Qty: f.Number("qty")}
	m, known := slices.BinarySearch(in.Snapshot.Metrics, f.Text("metric"))
	row.Metric = uint8(m)
	if f.Has("content") {
		if row.Content = f.Digest("content"); row.Content.IsZero() {
			f.Fail(canon.Fault("content", "is the zero digest: omit content instead"))
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
