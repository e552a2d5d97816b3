package record

import (
	"bytes"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/merkle"
)

// Schemas of the inputs' documents.
const (
	snapshotSchema = "ronbox.rw.snapshot/1"
	ledgerSchema   = "ronbox.rw.ledgerref/1"
	inputsSchema   = "ronbox.rw.inputs/1"
)

// Snapshot is the header of sealed usage. Its rows are beside it, in chunks of ChunkRows.
type Snapshot struct {
	Asset, EpochID, Tenant     string
	Metrics                    []string // ascending
	Pool                       engines.Amount
	ProducedAtMS               uint64
	Rows                       uint64
	RowsRoot                   b3.Digest
	Saturated                  uint64 // sums of the recorder that did not fit; such usage is not paid
	WindowStartMS, WindowEndMS uint64
}

// ParseSnapshot reads a header in its one spelling.
func ParseSnapshot(b []byte) (Snapshot, error) {
	f := read(b)
	f.text("schema", snapshotSchema)
	if len(f.list("slices")) > 0 {
		f.fail(fault("slices", "are not supported yet"))
	}
	s := Snapshot{
		Asset: f.text("asset"), EpochID: f.text("epoch_id"), Tenant: f.text("tenant"), Metrics: f.list("metrics"), Pool: f.amount("pool_minor"),
		ProducedAtMS: f.number("produced_at_ms"), Rows: f.number("rows"), RowsRoot: f.digest("rows_root"), Saturated: f.number("saturated"),
		WindowStartMS: f.number("window.start_ms"), WindowEndMS: f.number("window.end_ms"),
	}
	f.fail(s.Check())
	return s, f.spelled(b, s.Bytes)
}

// spelled is the first fault of a document that has one spelling.
func (f *fields) spelled(b []byte, want func() []byte) error {
	if err := f.end(); err != nil || bytes.Equal(b, want()) {
		return err
	}
	return fault("document", "is not in its canonical spelling")
}

// Check refuses names that are none, metrics out of order, and a window that ends before it begins.
func (s *Snapshot) Check() error {
	for _, err := range []error{CheckTenant(s.Tenant), CheckEpoch(s.EpochID), checkAsset(s.Asset)} {
		if err != nil {
			return err
		}
	}
	unknown := slices.ContainsFunc(s.Metrics, func(m string) bool { return !slices.Contains(metrics, m) })
	switch {
	case unknown || !sortedSet(s.Metrics):
		return fault("metrics", "must be some of %v, ascending, each once", metrics)
	case s.WindowEndMS < s.WindowStartMS:
		return fault("window.end_ms", "is before window.start_ms")
	}
	return nil
}

// Bytes is the document, whose id is the accounting cid.
func (s *Snapshot) Bytes() []byte {
	return canonical(nil, object{
		"asset": s.Asset, "epoch_id": s.EpochID, "metrics": s.Metrics, "pool_minor": s.Pool, "produced_at_ms": s.ProducedAtMS, "rows": s.Rows,
		"rows_root": s.RowsRoot, "saturated": s.Saturated, "schema": snapshotSchema, "slices": []string{}, "tenant": s.Tenant,
		"window": object{"end_ms": s.WindowEndMS, "start_ms": s.WindowStartMS},
	})
}

// LedgerRef is what the funding account had after a record of the ledger.
type LedgerRef struct {
	Account, Asset string
	Available      engines.Amount
	Root           b3.Digest // of the ledger's log
	Seq            uint64
}

// Bytes is the document.
func (l *LedgerRef) Bytes() []byte {
	return canonical(nil, object{
		"account": l.Account, "asset": l.Asset, "available_minor": l.Available, "root": l.Root, "schema": ledgerSchema, "seq": l.Seq,
	})
}

// ParseLedgerRef reads a ref in its one spelling.
func ParseLedgerRef(b []byte) (LedgerRef, error) {
	f := read(b)
	f.text("schema", ledgerSchema)
	l := LedgerRef{f.text("account"), f.text("asset"), f.amount("available_minor"), f.digest("root"), f.number("seq")}
	return l, f.spelled(b, l.Bytes)
}

// InputsCID names usage and ledger ref together.
func InputsCID(accounting, ledger b3.Digest) b3.Digest {
	return b3.Sum(canonical(nil, object{"accounting_cid": accounting, "ledger_cid": ledger, "schema": inputsSchema}))
}

// Root is the root over the roots of chunks: all but the last are full subtrees. That of nothing is the digest of nothing.
func Root(chunks []b3.Digest) b3.Digest {
	if len(chunks) == 0 {
		return b3.Sum(nil)
	}
	return merkle.Root(chunks)
}
