package rverify

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"ronbox/appliance/b3"
)

// salt goes into every run key.
const salt = "svc-rewarder|v1"

// Inputs are what a run is computed from.
type Inputs struct {
	Policy   Policy
	Snapshot Snapshot
	Usage    Usage
	Ledger   Ledger
}

// Run is a run that was computed here. One that may pay nobody is a run too: its Reason is the word for it.
type Run struct {
	Epoch                  string
	RunKey, Commitment     b3.Digest
	Reason                 string
	Pool, Payout, Residual *big.Int
	Allocations            []Allocation // by actor

	leaves   []b3.Digest
	manifest document // which the commitment is made over
	files    map[string][]byte
}

// fileNames are those of a run's folder, what it is computed from first.
var fileNames = []string{"policy.json", "snapshot.json", "ledger.json", "rows.ndjson", "run.json", "commitment.txt"}

// commit is the commitment to a manifest.
func commit(header []byte) b3.Digest {
	return b3.Sum(append([]byte("ronbox.rw.commitment/1\n"), header...))
}

// Recompute computes a run. The inputs must fit each other.
func Recompute(in Inputs) (Run, error) {
	if err := in.check(); err != nil {
		return Run{}, err
	}
	p, s := &in.Policy, &in.Snapshot
	o := compute(in.Usage, p, s.Pool, in.Ledger.Available, s.text("saturated") != "0")
	r := Run{Epoch: s.Epoch, Reason: o.breach, Pool: o.pool, Payout: o.paid, Residual: new(big.Int).Sub(o.pool, o.paid)}
	inputs, paid := InputsCID(s.CID(), in.Ledger.CID()), []any{}
	r.RunKey = b3.Sum([]byte(salt + "|" + s.Epoch + "|" + p.CID().String() + "|" + inputs.String()))
	for i, s := range o.shares {
		a := Allocation{Actor: s.actor, Amount: s.amount.String(), Score: s.score.String(), Index: uint64(i)}
		r.Allocations = append(r.Allocations, a)
		paid = append(paid, map[string]string{"actor": a.Actor, "amount_minor": a.Amount, "score": a.Score})
		r.leaves = append(r.leaves, allocationHash(r.RunKey, a.Index, s.actor, s.amount, s.score))
	}
	r.describe(&in, o, inputs)
	r.Commitment = commit(canonical(r.manifest))
	whole := maps.Clone(r.manifest)
	whole["allocations"] = paid
	var rows []byte
	for i := range in.Usage {
		rows = append(rows, in.Usage[i].Line()...)
	}
	r.files = map[string][]byte{
		"policy.json": p.Bytes(), "snapshot.json": s.Bytes(), "rows.ndjson": rows, "ledger.json": in.Ledger.Bytes(), "run.json": whole.Bytes(),
		"commitment.txt": []byte(r.Commitment.String() + "\n"),
	}
	return r, nil
}

// check holds the parts of the inputs against each other.
func (in *Inputs) check() error {
	s, p, l := &in.Snapshot, &in.Policy, &in.Ledger
	var c checker
	for _, same := range [][3]string{
		{"snapshot.schema", s.text("schema"), "ronbox.rw.snapshot/1"}, {"snapshot.rows", s.text("rows"), strconv.Itoa(len(in.Usage))},
		{"snapshot.rows_root", s.text("rows_root"), in.Usage.root(s.Metrics).String()}, {"snapshot.tenant", s.text("tenant"), p.Tenant},
		{"snapshot.asset", s.text("asset"), p.Asset}, {"ledger.asset", l.text("asset"), p.Asset}, {"ledger.account", l.text("account"), p.Account},
	} {
		c.fail(same[1] != same[2], same[0], "must be %s", same[2])
	}
	c.fail(!slices.IsSorted(s.Metrics), "snapshot.metrics", "must be sorted")
	for _, m := range in.Usage.metrics() {
		c.fail(!slices.Contains(s.Metrics, m), "snapshot.metrics", "lacks %s, which a row has", m)
	}
	for _, m := range s.Metrics {
		c.fail(!slices.Contains(p.metrics, m), "policy.metrics", "lacks %s, which the usage has: give it a weight, of 0 if it is not to count", m)
	}
	c.fail(slices.ContainsFunc(in.Usage, func(r Row) bool { return r.Actor == p.Account }), "rows", "name %s as an actor, which pays them", p.Account)
	return c.err
}

// describe makes the manifest.
func (r *Run) describe(in *Inputs, o outcome, inputs b3.Digest) {
	p, status := &in.Policy, "ok"
	if o.breach != "" {
		status = "quarantined"
	}
	r.manifest = document{
		"alloc": document{"chunk_rows": strconv.Itoa(chunkRows), "count": strconv.Itoa(len(r.leaves)), "root": treeHash(r.leaves).String()},
		"asset": p.Asset, "calculus": p.text("calculus"), "epoch_id": r.Epoch, "funding": p.document["funding"],
		"inputs": document{"accounting_cid": in.Snapshot.CID().String(), "inputs_cid": inputs.String(), "ledger_cid": in.Ledger.CID().String()},
		"policy": document{"hash": p.CID().String(), "id": p.ID}, "reason": o.breach, "run_key": r.RunKey.String(), "salt": salt,
		"schema": "ronbox.rw.manifest/1", "status": status, "tenant": p.Tenant,
		"totals": document{
			"eligible": strconv.Itoa(o.eligible), "payout_minor_units": o.paid.String(), "pool_minor_units": o.pool.String(),
			"residual_minor_units": r.Residual.String(), "score": o.score.String(),
		},
	}
}

// Write makes the folder dir with the files of the run. It must not be there, or be empty.
func (r *Run) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(dir); err != nil || len(there) > 0 {
		return cmp.Or(err, fmt.Errorf("%s is not empty: name a new folder", dir))
	}
	for _, name := range fileNames {
		if err := os.WriteFile(filepath.Join(dir, name), r.files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Verify computes the run of a folder again and holds each byte of it against what is there. A *FieldError says what is wrong with the folder.
func Verify(dir string) (r Run, err error) {
	has := map[string][]byte{}
	for _, name := range fileNames {
		has[name], err = os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			err = wrong(name, "is missing")
		}
		if err != nil {
			return r, err
		}
	}
	var in Inputs
	var faults [4]error
	in.Policy, faults[0] = ParsePolicy(has["policy.json"])
	in.Snapshot, faults[1] = parseSnapshot(has["snapshot.json"])
	in.Ledger, faults[2] = ParseLedger(has["ledger.json"])
	in.Usage, faults[3] = readRows(has["rows.ndjson"])
	for i, err := range faults {
		if err != nil {
			return r, within(fileNames[i], err)
		}
	}
	if r, err = Recompute(in); err != nil {
		return r, err
	}
	for _, name := range fileNames {
		if !bytes.Equal(has[name], r.files[name]) {
			return Run{}, wrong(name, "is not in canonical form, or not what the other files give: %s", difference(has[name], r.files[name]))
		}
	}
	return r, nil
}

// difference shows where a file leaves what it must be: the object around the first byte that differs, such as an actor's.
func difference(has, want []byte) string {
	at := 0
	for at < min(len(has), len(want)) && has[at] == want[at] {
		at++
	}
	at = max(bytes.LastIndexByte(want[:at], '{'), 0)
	return fmt.Sprintf("from byte %d on it must be %.200s", at, want[at:])
}
