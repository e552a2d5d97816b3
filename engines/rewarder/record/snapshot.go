package record

import (
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/canon"
)

// Schemas of the inputs' documents.
const (
	snapshotSchema = "ronbox.rw.snapshot/1"
	ledgerSchema   = "ronbox.rw.ledgerref/1"
	inputsSchema   = "ronbox.rw.inputs/1"
)

// Snapshot is the header of sealed usage. Its rows are stored separately, in chunks of ChunkRows.
type Snapshot struct {
	Asset, EpochID, Tenant     string
	Metrics                    []string // ascending
	Pool                       engines.Amount
	ProducedAtMS               uint64
	Rows                       uint64
	RowsRoot                   b3.Digest
	Saturated                  uint64 // number of overflowed sums of the recorder; such usage is not paid
	WindowStartMS, WindowEndMS uint64
}

// ParseSnapshot parses a header in canonical spelling.
func ParseSnapshot(b []byte) (Snapshot, error) {
	f := canon.Read(b)
	f.Text("schema", snapshotSchema)
	if len(f.List("slices")) > 0 {
		f.Fail(canon.Fault("slices", "are not supported yet"))
	}
	s := Snapshot{
		Asset:         f.Text("asset"),
		EpochID:       f.Text("epoch_id"),
		Tenant:        f.Text("tenant"),
		Metrics:       f.List("metrics"),
		Pool:          f.Amount("pool_minor"),
		ProducedAtMS:  f.Number("produced_at_ms"),
		Rows:          f.Number("rows"),
		RowsRoot:      f.Digest("rows_root"),
		Saturated:     f.Number("saturated"),
		WindowStartMS: f.Number("window.start_ms"),
		WindowEndMS:   f.Number("window.end_ms"),
	}
	f.Fail(s.Check())
	return s, f.Spelled(b, s.Bytes)
}

// Check refuses invalid names, metrics out of order, and a window that ends before it begins.
func (s *Snapshot) Check() error {
	for _, err := range []error{CheckTenant(s.Tenant), CheckEpoch(s.EpochID), checkAsset(s.Asset)} {
		if err != nil {
			return err
		}
	}
	unknown := slices.ContainsFunc(s.Metrics, func(m string) bool { return !slices.Contains(metrics, m) })
	switch {
	case unknown || !sortedSet(s.Metrics):
		return canon.Fault("metrics", "must be some of %v, ascending, each once", metrics)
	case s.WindowEndMS < s.WindowStartMS:
		return canon.Fault("window.end_ms", "is before window.start_ms")
	}
	return nil
}

// Bytes returns the canonical document. Its digest is the accounting cid.
func (s *Snapshot) Bytes() []byte {
	return canon.Append(nil, canon.Object{
		"asset":          s.Asset,
		"epoch_id":       s.EpochID,
		"metrics":        s.Metrics,
		"pool_minor":     s.Pool,
		"produced_at_ms": s.ProducedAtMS,
		"rows":           s.Rows,
		"rows_root":      s.RowsRoot,
		"saturated":      s.Saturated,
		"schema":         snapshotSchema,
		"slices":         []string{},
		"tenant":         s.Tenant,
		"window":         canon.Object{"end_ms": s.WindowEndMS, "start_ms": s.WindowStartMS},
	})
}

// LedgerRef is the balance of the funding account after a record of the ledger.
type LedgerRef struct {
	Account, Asset string
	Available      engines.Amount
	Root           b3.Digest // of the ledger's log
	Seq            uint64
}

// Bytes returns the canonical document.
func (l *LedgerRef) Bytes() []byte {
	return canon.Append(nil, canon.Object{
		"account":         l.Account,
		"asset":           l.Asset,
		"available_minor": l.Available,
		"root":            l.Root,
		"schema":          ledgerSchema,
		"seq":             l.Seq,
	})
}

// ParseLedgerRef parses a ref in canonical spelling.
func ParseLedgerRef(b []byte) (LedgerRef, error) {
	f := canon.Read(b)
	f.Text("schema", ledgerSchema)
	l := LedgerRef{f.Text("account"), f.Text("asset"), f.Amount("available_minor"), f.Digest("root"), f.Number("seq")}
	return l, f.Spelled(b, l.Bytes)
}

// InputsCID returns the id of usage and ledger ref together.
func InputsCID(accounting, ledger b3.Digest) b3.Digest {
	return b3.Sum(canon.Append(nil,
		canon.Object{"accounting_cid": accounting, "ledger_cid": ledger, "schema": inputsSchema}))
}

// Root returns the root over the roots of chunks. All chunks but the last are full subtrees. The
// root of no chunk is the digest of no bytes.
func Root(chunks []b3.Digest) b3.Digest {
	if len(chunks) == 0 {
		return b3.Sum(nil)
	}
	return merkle.Root(chunks)
}
