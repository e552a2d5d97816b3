package main

import (
	"fmt"
	"time"

	"ronbox/engines/ledger/record"
)

// stampLayout shows a time as receipts do.
const stampLayout = "2006-01-02T15:04:05.000Z"

func stamp(at time.Time) string { return at.UTC().Format(stampLayout) }

// showReceipt prints a receipt: its own bytes with --json.
func (a *app) showReceipt(raw []byte) error {
	if a.flags.json {
		return a.raw(append(raw[:len(raw):len(raw)], '\n'))
	}
	r, err := record.ParseReceipt(raw)
	if err != nil {
		return unsoundReceipt(err)
	}
	return a.show(nil, func(t table) { receiptTable(t, r) })
}

func receiptTable(t table, r record.Receipt) {
	t.row("txid", r.TxID)
	t.row("op", r.Op)
	if r.From != "" {
		t.row("from", r.From)
	}
	if r.To != "" {
		t.row("to", r.To)
	}
	switch {
	case r.Op.MovesMoney():
		t.row("amount", minor(r.Amount.String(), r.Asset))
	case r.Asset != "":
		t.row("asset", r.Asset)
	}
	if r.Nonce != 0 {
		t.row("nonce", r.Nonce)
	}
	if !r.Hold.IsZero() {
		t.row("hold", r.Hold)
	}
	if r.Idem != "" {
		t.row("key", r.Idem)
	}
	t.row("time", stamp(time.Unix(0, r.At)))
	t.row("record", fmt.Sprintf("%d, in batch %d", r.Seq, r.Batch))
	t.row("receipt hash", r.Hash())
}
