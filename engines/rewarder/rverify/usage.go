package rverify

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"io"
	"math/big"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
)

// chunkRows is how many rows, or allocations, stand in one chunk.
const chunkRows = 512

// Row is what one actor did in one metric, for one content or for none.
type Row struct {
	Actor   string `json:"actor"`
	Content string `json:"content,omitzero"`
	Metric  string `json:"metric"`
	Qty     string `json:"qty"`
}

// Line is the row as a line of NDJSON.
func (r *Row) Line() []byte { return append(canonical(r), '\n') }

func compareRows(a, b Row) int {
	return cmp.Or(cmp.Compare(a.Actor, b.Actor), cmp.Compare(a.Content, b.Content), cmp.Compare(a.Metric, b.Metric))
}

// check refuses a row that stands in a line.
func (r *Row) check(line int) error {
	var c checker
	at := "line " + strconv.Itoa(line)
	c.match(at+": actor", r.Actor, actorName)
	c.match(at+": metric", r.Metric, metricName)
	c.number(at+": qty", r.Qty, most64)
	c.fail(r.Content != "" && !digestText.MatchString(r.Content), at+": content", "must match %s", digestText)
	return c.err
}

// Usage is the rows of an epoch in their order: by actor, content and metric, each once.
type Usage []Row

// ReadCSV reads rows in any order under a header actor,metric,qty[,content]; those of one actor, content and metric are added up.
func ReadCSV(in io.Reader) (Usage, error) {
	r := csv.NewReader(in)
	head, err := r.Read()
	if err != nil || len(head) < 3 || !slices.Equal(head, []string{"actor", "metric", "qty", "content"}[:min(len(head), 4)]) {
		return nil, wrong("line 1", "must be actor,metric,qty or actor,metric,qty,content")
	}
	sums := map[Row]uint64{} // by row without its quantity
	for {
		rec, err := r.Read()
		if err == io.EOF {
			break
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			return nil, wrong("line "+strconv.Itoa(bad.Line), "%v", bad.Err)
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		one := Row{Actor: rec[0], Content: append(rec, "")[3], Metric: rec[1], Qty: rec[2]}
		if err := one.check(line); err != nil {
			return nil, err
		}
		qty, _ := strconv.ParseUint(one.Qty, 10, 64)
		one.Qty = ""
		if sums[one] += qty; sums[one] < qty {
			return nil, wrong("line "+strconv.Itoa(line)+": qty", "the sum for this actor, metric and content is above %s", most64)
		}
	}
	u := make(Usage, 0, len(sums))
	for row, qty := range sums {
		row.Qty = strconv.FormatUint(qty, 10)
		u = append(u, row)
	}
	slices.SortFunc(u, compareRows)
	return u, nil
}

// readRows reads rows.ndjson: canonical lines in strictly ascending order.
func readRows(all []byte) (u Usage, err error) {
	for raw := range bytes.Lines(all) {
		var row Row
		line := len(u) + 1
		if json.Unmarshal(raw, &row) != nil || !bytes.Equal(raw, row.Line()) {
			return nil, wrong("line "+strconv.Itoa(line), "is no row in canonical form: members sorted, texts, no spaces, no others, a line end")
		}
		if err := row.check(line); err != nil {
			return nil, err
		}
		if len(u) > 0 && compareRows(u[len(u)-1], row) >= 0 {
			return nil, wrong("line "+strconv.Itoa(line), "must come before the line above it: rows are sorted by actor, content and metric, each once")
		}
		u = append(u, row)
	}
	return u, nil
}

// root is the root of the tree whose leaves are the chunks of 512 rows. metrics has all that rows name.
func (u Usage) root(metrics []string) b3.Digest {
	var leaves []b3.Digest
	for chunk := range slices.Chunk(u, chunkRows) {
		var raw []byte
		for _, r := range chunk {
			raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(r.Actor))), r.Actor...)
			if r.Content == "" {
				raw = append(raw, 0)
			} else {
				d := digest(r.Content)
				raw = append(append(raw, 1), d[:]...)
			}
			qty, _ := strconv.ParseUint(r.Qty, 10, 64)
			raw = binary.BigEndian.AppendUint64(append(raw, byte(slices.Index(metrics, r.Metric))), qty)
		}
		leaves = append(leaves, leafHash(raw))
	}
	return treeHash(leaves)
}

// metrics are the names of those that have a row, sorted.
func (u Usage) metrics() []string {
	out := []string{}
	for i := range u {
		if at, there := slices.BinarySearch(out, u[i].Metric); !there {
			out = slices.Insert(out, at, u[i].Metric)
		}
	}
	return out
}

// Snapshot is the header of an epoch's usage.
type Snapshot struct {
	document
	Epoch   string
	Pool    *big.Int
	Metrics []string
}

// Snapshot makes the header of u for an epoch of the policy, with no window and no time.
func (u Usage) Snapshot(p *Policy, epoch, pool string) (Snapshot, error) {
	metrics := u.metrics()
	return parseSnapshot(canonical(map[string]any{
		"asset": p.Asset, "epoch_id": epoch, "metrics": metrics, "pool_minor": pool, "produced_at_ms": "0", "rows": strconv.Itoa(len(u)),
		"rows_root": u.root(metrics).String(), "saturated": "0", "schema": "ronbox.rw.snapshot/1", "slices": []string{}, "tenant": p.Tenant,
		"window": map[string]string{"end_ms": "0", "start_ms": "0"},
	}))
}

// parseSnapshot reads snapshot.json.
func parseSnapshot(raw []byte) (Snapshot, error) {
	d, err := parse(raw, true, "asset", "epoch_id", "metrics.*", "pool_minor", "produced_at_ms", "rows", "rows_root", "saturated", "schema", "slices.*",
		"tenant", "window.end_ms", "window.start_ms")
	c := checker{err}
	c.match("epoch_id", d.text("epoch_id"), epochName)
	s := Snapshot{document: d, Epoch: d.text("epoch_id"), Pool: c.number("pool_minor", d.text("pool_minor"), most128)}
	metrics, _ := d["metrics"].([]any)
	for _, m := range metrics {
		name, _ := m.(string)
		s.Metrics = append(s.Metrics, name)
	}
	return s, c.err
}

// Ledger is what the ledger had for the run when its inputs were sealed.
type Ledger struct {
	document
	Available *big.Int
}

// UnseenLedger stands for a ledger that was not asked: the whole pool is taken to be there.
func UnseenLedger(p *Policy, pool string) (Ledger, error) {
	return ParseLedger(canonical(map[string]string{
		"account": p.Account, "asset": p.Asset, "available_minor": pool, "root": b3.Digest{}.String(), "schema": "ronbox.rw.ledgerref/1", "seq": "0",
	}))
}

// ParseLedger reads ledger.json.
func ParseLedger(raw []byte) (Ledger, error) {
	d, err := parse(raw, true, "account", "asset", "available_minor", "root", "schema", "seq")
	c := checker{err}
	return Ledger{d, c.number("available_minor", d.text("available_minor"), most128)}, within("ledger.json", c.err)
}

// InputsCID identifies usage and ledger together.
func InputsCID(accounting, ledger b3.Digest) b3.Digest {
	return document{"accounting_cid": accounting.String(), "ledger_cid": ledger.String(), "schema": "ronbox.rw.inputs/1"}.CID()
}
