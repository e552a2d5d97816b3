package rverify

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"

	"ronbox/appliance/b3"
)

// salt begins the input of every run key.
const salt = "svc-rewarder|v1"

// Inputs holds the inputs of a run.
type Inputs struct {
	Policy   Policy
	Snapshot Snapshot
	Usage    Usage
	Ledger   Ledger
}

// rows passes the rows of an epoch to yield, in order, until yield fails. A row is valid only
// during the call of yield.
type rows func(yield func(*Row) error) error

// Run is the result of a computation. Reason is the reason of a quarantine; such a run pays no
// actor.
type Run struct {
	Epoch                  string
	RunKey, Commitment     b3.Digest
	Reason                 string
	Pool, Payout, Residual *big.Int
	Actors                 uint64 // number of paid actors

	in       Inputs
	rows     rows
	shares   shares
	manifest document // the input of the commitment
}

// commit returns the commitment to a manifest.
func commit(header []byte) b3.Digest {
	return b3.Sum(append([]byte("ronbox.rw.commitment/1\n"), header...))
}

// Recompute computes a run. It returns a *FieldError if the inputs do not fit each other.
func Recompute(in Inputs) (Run, error) { return recompute(in, in.Usage.each) }

// recompute passes over the rows twice: for the scores, and for the names of the paid actors. It
// holds 48 bytes per actor.
func recompute(in Inputs, all rows) (Run, error) {
	p, s := &in.Policy, &in.Snapshot
	seen, err := look(&in, all)
	if err == nil {
		err = in.check(seen)
	}
	if err != nil {
		return Run{}, err
	}
	o := compute(seen.scores, p, s.Pool, in.Ledger.Available, s.text("saturated") != "0")
	r := Run{
		Epoch: s.Epoch, Reason: o.breach, Pool: o.pool, Payout: o.paid, Residual: new(big.Int).Sub(o.pool, o.paid),
		Actors: o.actors, in: in, rows: all, shares: o.shares,
	}
	inputs := InputsCID(s.CID(), in.Ledger.CID())
	r.RunKey = b3.Sum([]byte(salt + "|" + s.Epoch + "|" + p.CID().String() + "|" + inputs.String()))
	var t tree
	var raw []byte
	if err := r.each(func(index uint64, actor string, of *share) error {
		raw = appendAllocation(append(raw[:0], leafPrefix), r.RunKey, index, actor, of.amount, of.score)
		t.add(b3.Sum(raw))
		return nil
	}); err != nil {
		return Run{}, err
	}
	r.describe(&in, &o, inputs, t.root())
	r.Commitment = commit(canonical(r.manifest))
	return r, nil
}

// seen is the result of a pass over the rows of an epoch.
type seen struct {
	rows    uint64
	root    b3.Digest
	metrics []string // sorted
	payer   bool     // the funding account is an actor
	scores  *scorer
}

func look(in *Inputs, all rows) (*seen, error) {
	out, t := &seen{scores: newScorer(&in.Policy)}, chunkTree{metrics: in.Snapshot.Metrics}
	err := all(func(r *Row) error {
		t.add(r)
		out.scores.add(r)
		out.metrics = insertName(out.metrics, r.Metric)
		out.payer = out.payer || r.Actor == in.Policy.Account
		return nil
	})
	out.scores.end()
	out.rows, out.root = t.rows, t.root()
	return out, err
}

// check checks that the parts of the inputs fit each other.
func (in *Inputs) check(rows *seen) error {
	s, p, l := &in.Snapshot, &in.Policy, &in.Ledger
	var c checker
	for _, same := range [][3]string{
		{"snapshot.schema", s.text("schema"), "ronbox.rw.snapshot/1"},
		{"snapshot.rows", s.text("rows"), strconv.FormatUint(rows.rows, 10)},
		{"snapshot.rows_root", s.text("rows_root"), rows.root.String()},
		{"snapshot.tenant", s.text("tenant"), p.Tenant},
		{"snapshot.asset", s.text("asset"), p.Asset},
		{"ledger.asset", l.text("asset"), p.Asset},
		{"ledger.account", l.text("account"), p.Account},
	} {
		c.fail(same[1] != same[2], same[0], "must be %s", same[2])
	}
	c.fail(!slices.IsSorted(s.Metrics), "snapshot.metrics", "must be sorted")
	for _, m := range rows.metrics {
		c.fail(!slices.Contains(s.Metrics, m), "snapshot.metrics", "lacks %s, which a row has", m)
	}
	for _, m := range s.Metrics {
		c.fail(!slices.Contains(p.metrics, m), "policy.metrics",
			"lacks %s, which the usage has: give it a weight, of 0 if it is not to count", m)
	}
	c.fail(rows.payer, "rows", "name %s as an actor, which pays them", p.Account)
	return c.err
}

// each calls yield for each paid actor, in order, until it fails. It passes over the rows for the
// names.
func (r *Run) each(yield func(index uint64, actor string, of *share) error) error {
	if r.Actors == 0 {
		return nil
	}
	last, at, paid := "", -1, uint64(0)
	return r.rows(func(row *Row) error {
		if row.Actor == last {
			return nil
		}
		last = row.Actor
		at++
		s := r.shares.at(at)
		if s.amount.isZero() {
			return nil
		}
		paid++
		return yield(paid-1, row.Actor, s)
	})
}

// EachAllocation calls yield for each allocation, in the order of actors, until it fails.
func (r *Run) EachAllocation(yield func(Allocation) error) error {
	var n big.Int
	return r.each(func(index uint64, actor string, of *share) error {
		a := Allocation{Actor: actor, Index: index}
		a.Amount = of.amount.into(&n).String()
		a.Score = of.score.into(&n).String()
		return yield(a)
	})
}

// describe builds the manifest.
func (r *Run) describe(in *Inputs, o *outcome, inputs, root b3.Digest) {
	p, status := &in.Policy, "ok"
	if o.breach != "" {
		status = "quarantined"
	}
	r.manifest = document{
		"alloc": document{
			"chunk_rows": strconv.Itoa(chunkRows), "count": strconv.FormatUint(r.Actors, 10), "root": root.String(),
		},
		"asset": p.Asset, "calculus": p.text("calculus"), "epoch_id": r.Epoch, "funding": p.document["funding"],
		"inputs": document{
			"accounting_cid": in.Snapshot.CID().String(),
			"inputs_cid":     inputs.String(),
			"ledger_cid":     in.Ledger.CID().String(),
		},
		"policy": document{"hash": p.CID().String(), "id": p.ID}, "reason": o.breach, "run_key": r.RunKey.String(),
		"salt": salt, "schema": "ronbox.rw.manifest/1", "status": status, "tenant": p.Tenant,
		"totals": document{
			"eligible":             strconv.Itoa(o.eligible),
			"payout_minor_units":   o.paid.String(),
			"pool_minor_units":     o.pool.String(),
			"residual_minor_units": r.Residual.String(),
			"score":                o.score.String(),
		},
	}
}

// fileNames lists the files of a run's folder, inputs first.
var fileNames = []string{"policy.json", "snapshot.json", "ledger.json", "rows.ndjson", "run.json", "commitment.txt"}

// writeFile writes a file of the run.
func (r *Run) writeFile(name string, to io.Writer) error {
	w := bufio.NewWriterSize(to, bufferSize)
	var err error
	switch name {
	case "policy.json":
		_, err = w.Write(r.in.Policy.Bytes())
	case "snapshot.json":
		_, err = w.Write(r.in.Snapshot.Bytes())
	case "ledger.json":
		_, err = w.Write(r.in.Ledger.Bytes())
	case "rows.ndjson":
		var line []byte
		err = r.rows(func(row *Row) error {
			line = row.appendLine(line[:0])
			_, err := w.Write(line)
			return err
		})
	case "run.json":
		err = r.writeRun(w)
	case "commitment.txt":
		_, err = w.WriteString(r.Commitment.String() + "\n")
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// writeRun writes the manifest with the allocations inserted.
func (r *Run) writeRun(w *bufio.Writer) error {
	whole := maps.Clone(r.manifest)
	whole["allocations"] = []string{}
	head, tail, _ := bytes.Cut(canonical(whole), []byte(`"allocations":[`)) // names contain no quotes
	if _, err := w.Write(append(head, `"allocations":[`...)); err != nil {
		return err
	}
	var n big.Int
	var raw []byte
	if err := r.each(func(index uint64, actor string, of *share) error {
		raw = raw[:0]
		if index > 0 {
			raw = append(raw, ',')
		}
		raw = append(append(append(raw, `{"actor":"`...), actor...), `","amount_minor":"`...)
		raw = append(of.amount.into(&n).Append(raw, 10), `","score":"`...)
		raw = append(of.score.into(&n).Append(raw, 10), `"}`...)
		_, err := w.Write(raw)
		return err
	}); err != nil {
		return err
	}
	_, err := w.Write(tail)
	return err
}
