package main

import (
	"context"
	"fmt"
	"strconv"

	"ronbox/engines/ledger"
	"ronbox/engines/registry/rverify"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// proved is what the engines' proofs of a file have found, as far as they came.
type proved struct {
	Registry *rverify.Report  `json:"registry,omitzero"`
	Ledger   *wire.LedgerHead `json:"ledger,omitzero"`
}

// checks are the engines' proofs, which leave what they found in d.
func (d *proved) checks(ctx context.Context, o rverify.Options, p *progress) []store.Check {
	out := append([]store.Check{registryCheck(ctx, o, p, &d.Registry)}, ledger.Checks()...)
	return append(out, store.Check{Name: "ledger_head", Run: func(r store.Reader) error {
		head, err := ledger.HeadOf(r)
		if err != nil {
			return err
		}
		d.Ledger = &wire.LedgerHead{Batches: head.Batches, LogRoot: head.Root.String(), LastRoot: head.LastRoot.String(), Seq: head.Seq}
		return nil
	}})
}

// tell puts what was counted into the steps.
func (d *proved) tell(rep *store.Report) {
	for i, s := range rep.Steps {
		switch {
		case !s.OK:
		case s.Name == "registry" && d.Registry != nil:
			rep.Steps[i].Detail = fmt.Sprintf("%d versions, %d approvals, %d audit records", d.Registry.Versions, d.Registry.Approvals, d.Registry.AuditRecords)
		case s.Name == "ledger_head" && d.Ledger != nil:
			rep.Steps[i].Detail = fmt.Sprintf("%d batches, %d records, last root %s", d.Ledger.Batches, d.Ledger.Seq, d.Ledger.LastRoot)
		}
	}
}

// headRows show where the ledger ends: what a client has seen after this batch is not in the file.
func headRows(t table, h *wire.LedgerHead) {
	if h == nil {
		return
	}
	t.row("ledger batch", strconv.FormatUint(h.Batches, 10))
	t.row("ledger seq", strconv.FormatUint(h.Seq, 10))
	t.row("ledger root", h.LastRoot)
}
