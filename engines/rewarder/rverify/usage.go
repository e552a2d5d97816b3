package rverify

import (
	"cmp"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
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

// ReadCSV reads rows in any order under a header actor,metric,qty[,content]. Rows of the same
// actor, content and metric are added up.
func ReadCSV(in io.Reader) (Usage, error) {
	r := csv.NewReader(in)
	r.ReuseRecord = true
	head, err := r.Read()
	columns := []string{"actor", "metric", "qty", "content"}
	if err != nil || len(head) < 3 || !slices.Equal(head, columns[:min(len(head), 4)]) {
		return nil, wrong("line 1", "must be actor,metric,qty or actor,metric,qty,content")
	}
	u, names := Usage{}, map[string]string{}
	for {
		rec, err := r.Read()
		if err == io.EOF {
			break
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			return nil, wrong(lineName(bad.Line), "%v", bad.Err)
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		one := Row{Actor: rec[0], Metric: rec[1], Qty: rec[2], line: line}
		if len(rec) > 3 {
			one.Content = rec[3]
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
