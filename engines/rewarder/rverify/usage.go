package rverify

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strconv"

	"ronbox/appliance/csvfile"
)

// chunkRows is the number of rows, or of allocations, in a chunk.
const chunkRows = 512

// Row is the quantity of one metric of one actor, for one content or for none.
type Row struct {
	Actor   string
	Content string // "": none
	Metric  string
	Qty     string

	line int // line of the CSV file, until its rows are added up
}

// Line returns the row as a line of NDJSON. Its strings are checked names, which need no escapes.
func (r *Row) Line() []byte { return r.appendLine(nil) }

func (r *Row) appendLine(dst []byte) []byte {
	dst = append(append(dst, `{"actor":"`...), r.Actor...)
	if r.Content != "" {
		dst = append(append(dst, `","content":"`...), r.Content...)
	}
	dst = append(append(dst, `","metric":"`...), r.Metric...)
	return append(append(append(dst, `","qty":"`...), r.Qty...), "\"}\n"...)
}

func compareRows(a, b *Row) int {
	return cmp.Or(cmp.Compare(a.Actor, b.Actor), cmp.Compare(a.Content, b.Content), cmp.Compare(a.Metric, b.Metric))
}

// check returns a fault that names the line if the row is invalid.
func (r *Row) check(line int) error {
	var c checker
	c.match("actor", r.Actor, actorName)
	c.match("metric", r.Metric, metricName)
	if _, ok := parseQty(r.Qty); !ok {
		c.number("qty", r.Qty, most64) // reports the reason
	}
	c.fail(r.Content != "" && !digestText.MatchString(r.Content), "content", "must match %s", digestText)
	if f, bad := errors.AsType[*FieldError](c.err); bad {
		return wrong(lineName(line)+": "+f.Field, "%s", f.Reason)
	}
	return nil
}

func lineName(n int) string { return "line " + strconv.Itoa(n) }

// parseQty parses a quantity in canonical spelling.
func parseQty(s string) (qty uint64, ok bool) {
	qty, err := strconv.ParseUint(s, 10, 64)
	return qty, err == nil && (s[0] != '0' || len(s) == 1)
}

// appendTo appends the hashed form of the row. metrics must contain its metric.
func (r *Row) appendTo(raw []byte, metrics []string) []byte {
	raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(r.Actor))), r.Actor...)
	if r.Content == "" {
		raw = append(raw, 0)
	} else {
		d := digest(r.Content)
		raw = append(append(raw, 1), d[:]...)
	}
	qty, _ := parseQty(r.Qty)
	return binary.BigEndian.AppendUint64(append(raw, byte(slices.Index(metrics, r.Metric))), qty)
}

// Usage holds the rows of an epoch, sorted by actor, content and metric, without duplicates.
type Usage []Row

// each calls yield for each row until it fails.
func (u Usage) each(yield func(*Row) error) error {
	for i := range u {
		if err := yield(&u[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadCSV reads rows in any order. The first line names the columns actor, metric and qty, and
// content if rows have some. Rows of the same actor, content and metric are added up.
func ReadCSV(in io.Reader) (Usage, error) {
	r, err := csvfile.NewReader(in, []string{"actor", "metric", "qty", "content"}, "actor", "metric", "qty")
	if err != nil {
		return nil, csvFault(err)
	}
	actor, metric, qty, content := r.Column("actor"), r.Column("metric"), r.Column("qty"), r.Column("content")
	u, names := Usage{}, map[string]string{}
	for {
		rec, line, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, csvFault(err)
		}
		one := Row{Actor: rec[actor], Metric: rec[metric], Qty: rec[qty], line: line}
		if content >= 0 {
			one.Content = rec[content]
		}
		if err := one.check(line); err != nil {
			return nil, err
		}
		if _, known := names[one.Metric]; !known {
			names[one.Metric] = one.Metric
		}
		one.Metric = names[one.Metric]
		u = append(u, one)
	}
	return u.addUp()
}

// csvFault returns a fault of the file as a FieldError, and any other error as it is.
func csvFault(err error) error {
	if err == io.EOF {
		return wrong(lineName(1), "must name the columns: actor,metric,qty or actor,metric,qty,content")
	}
	if bad, ok := errors.AsType[*csvfile.Fault](err); ok {
		return wrong(lineName(bad.Line), "%v", bad.Err)
	}
	return err
}

// addUp sorts the rows of a CSV file and adds up rows of the same actor, content and metric.
func (u Usage) addUp() (Usage, error) {
	slices.SortFunc(u, func(a, b Row) int { return cmp.Or(compareRows(&a, &b), cmp.Compare(a.line, b.line)) })
	n := 0
	for i := range u {
		line := u[i].line
		u[i].line = 0
		if n == 0 || compareRows(&u[n-1], &u[i]) != 0 {
			u[n] = u[i]
			n++
			continue
		}
		qty, _ := parseQty(u[n-1].Qty)
		more, _ := parseQty(u[i].Qty)
		if qty+more < qty {
			return nil, wrong(lineName(line)+": qty", "the sum for this actor, metric and content is above %s", most64)
		}
		u[n-1].Qty = strconv.FormatUint(qty+more, 10)
	}
	return u[:n], nil
}
