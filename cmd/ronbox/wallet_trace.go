package main

import (
	"context"
	"errors"
	"net/http"

	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// statements is a node that can be asked what was done; *client.Client is one.
type statements interface {
	History(ctx context.Context, q client.HistoryQuery) (wire.History, error)
	Tx(ctx context.Context, id string) ([]byte, error)
}

// posting is an entry of a statement: what was done, its receipt byte for byte, and its memo.
type posting struct {
	record.Receipt
	raw  []byte
	memo string
}

// statementPage is the most entries that a node gives at once.
const statementPage = 500

// trace shows each what was posted on account, the newest first, until it wants no more. Idempotency keys are kept for a
// day or so, and another who asks has others: what was done stands in the statement for ever.
func (r *repeater) trace(ctx context.Context, node statements, account, asset string, each func(p posting) (more bool)) error {
	q := client.HistoryQuery{Account: account, Asset: asset, Limit: statementPage}
	for {
		var page wire.History
		err := r.repeat(ctx, "read the statement of "+account, func() (err error) {
			page, err = node.History(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			receipt, err := record.ParseReceipt(e.Receipt)
			if err != nil {
				return unsoundReceipt(err)
			}
			if !each(posting{receipt, e.Receipt, e.Memo}) {
				return nil
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// payeeOf is the account that a hold is for: its statement says how the hold has ended.
func (r *repeater) payeeOf(ctx context.Context, node statements, hold string) (account, asset string, err error) {
	var raw []byte
	err = r.repeat(ctx, "look up the hold", func() (err error) {
		raw, err = node.Tx(ctx, hold)
		return err
	})
	if err != nil {
		return "", "", err
	}
	receipt, err := record.ParseReceipt(raw)
	if err != nil {
		return "", "", unsoundReceipt(err)
	}
	return receipt.To, receipt.Asset, nil
}

func unsoundReceipt(err error) error {
	return failed(exitBad, "node_inconsistent", "compare it with `ronbox ledger proof`", "the node's answer is no sound receipt: %w", err)
}

// statementOf names the statement that shows whether op was done: the payer's, but where that is the asset itself. ""
// is none: there is no such hold.
func (r *repeater) statementOf(ctx context.Context, node statements, op *wire.BatchOp) (account, asset string, err error) {
	switch {
	case op.Hold != "":
		account, asset, err = r.payeeOf(ctx, node, op.Hold)
		if p, ok := errors.AsType[*wire.Problem](err); ok && p.Status == http.StatusNotFound {
			return "", "", nil
		}
		return account, asset, err
	case op.From == "":
		return op.To, op.Asset, nil
	}
	return op.From, op.Asset, nil
}

// isPosting tells whether p is what op asks for. A nonce is used once, a hold ends once.
func isPosting(op *wire.BatchOp, p *posting) bool {
	if p.Op.String() != op.Op {
		return false
	}
	if op.Hold != "" {
		return p.Hold.String() == op.Hold && (op.AmountMinor == "" || op.AmountMinor == p.Amount.String())
	}
	return p.Nonce == op.Nonce && p.From == op.From && p.To == op.To && p.Amount.String() == op.AmountMinor && p.memo == op.Memo
}
