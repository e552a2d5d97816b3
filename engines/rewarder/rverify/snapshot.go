package rverify

import (
	"math/big"
	"slices"
	"strconv"

	"ronbox/appliance/b3"
)

// Snapshot is the header of the usage of an epoch.
type Snapshot struct {
	document
	Epoch   string
	Pool    *big.Int
	Metrics []string
}

// Snapshot returns the header of u for an epoch of the policy, without window and time.
func (u Usage) Snapshot(p *Policy, epoch, pool string) (Snapshot, error) {
	var metrics []string
	for i := range u {
		metrics = insertName(metrics, u[i].Metric)
	}
	t := chunkTree{metrics: metrics}
	for i := range u {
		t.add(&u[i])
	}
	return parseSnapshot(canonical(map[string]any{
		"asset":          p.Asset,
		"epoch_id":       epoch,
		"metrics":        append([]string{}, metrics...),
		"pool_minor":     pool,
		"produced_at_ms": "0",
		"rows":           strconv.Itoa(len(u)),
		"rows_root":      t.root().String(),
		"saturated":      "0",
		"schema":         "ronbox.rw.snapshot/1",
		"slices":         []string{},
		"tenant":         p.Tenant,
		"window":         map[string]string{"end_ms": "0", "start_ms": "0"},
	}))
}

// insertName inserts a name into a sorted list if it is new.
func insertName(names []string, name string) []string {
	if at, there := slices.BinarySearch(names, name); !there {
		return slices.Insert(names, at, name)
	}
	return names
}

// parseSnapshot parses snapshot.json.
func parseSnapshot(raw []byte) (Snapshot, error) {
	d, err := parse(raw, true, "asset", "epoch_id", "metrics.*", "pool_minor", "produced_at_ms", "rows", "rows_root",
		"saturated", "schema", "slices.*", "tenant", "window.end_ms", "window.start_ms")
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

// Ledger is the ledger ref of a run: the balance at the time of its seal.
type Ledger struct {
	document
	Available *big.Int
}

// UnseenLedger returns a ledger ref that assumes that the account has the whole pool.
func UnseenLedger(p *Policy, pool string) (Ledger, error) {
	return ParseLedger(canonical(map[string]string{
		"account":         p.Account,
		"asset":           p.Asset,
		"available_minor": pool,
		"root":            b3.Digest{}.String(),
		"schema":          "ronbox.rw.ledgerref/1",
		"seq":             "0",
	}))
}

// ParseLedger parses ledger.json.
func ParseLedger(raw []byte) (Ledger, error) {
	d, err := parse(raw, true, "account", "asset", "available_minor", "root", "schema", "seq")
	c := checker{err}
	return Ledger{d, c.number("available_minor", d.text("available_minor"), most128)}, within("ledger.json", c.err)
}

// InputsCID returns the id of usage and ledger ref together.
func InputsCID(accounting, ledger b3.Digest) b3.Digest {
	return document{
		"accounting_cid": accounting.String(),
		"ledger_cid":     ledger.String(),
		"schema":         "ronbox.rw.inputs/1",
	}.CID()
}
