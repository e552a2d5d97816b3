package wallet

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	walletapi "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
)

// statements is a node that can be asked what was done; walletapi.Client is one.
type statements interface {
	History(ctx context.Context, q walletapi.HistoryQuery) (walletapi.History, error)
	Tx(ctx context.Context, id string) ([]byte, error)
}

// statement names the entries of one account in one asset.
type statement struct{ account, asset string }

// posting is an entry of a statement: what was done, its receipt byte for byte, and its memo.
type posting struct {
	record.Receipt
	raw  []byte
	memo string
}

// statementPage is the most entries that a node gives at once.
const statementPage = 500

// walkStatement calls each with the postings of a statement, the newest first, until it wants no more. Idempotency keys are
// kept for a day or so, and each principal has its own; a statement is kept for ever.
func walkStatement(ctx context.Context, r *cli.Repeater, node statements, at statement, each func(p posting) (more bool)) error {
	q := walletapi.HistoryQuery{Account: at.account, Asset: at.asset, Limit: statementPage}
	for {
		var page walletapi.History
		err := r.Repeat(ctx, "read the statement of "+at.account, func() (err error) {
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

func unsoundReceipt(err error) error {
	return cli.Fail(cli.ExitBad, "node_inconsistent", "compare it with `ronbox ledger proof`", "the node's answer is no sound receipt: %w", err)
}

// statementFor names the statement that shows whether op was done: the payer's, or the payee's for issue and for the end of a
// hold. It has no account when there is no such hold.
func statementFor(ctx context.Context, r *cli.Repeater, node statements, op *walletapi.BatchOp) (at statement, err error) {
	if op.Hold == "" {
		return statement{cmp.Or(op.From, op.To), op.Asset}, nil
	}
	var raw []byte
	err = r.Repeat(ctx, "look up the hold", func() (err error) {
		raw, err = node.Tx(ctx, op.Hold)
		return err
	})
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Status == http.StatusNotFound {
		return at, nil
	}
	if err != nil {
		return at, err
	}
	receipt, err := record.ParseReceipt(raw)
	if err != nil {
		return at, unsoundReceipt(err)
	}
	return statement{receipt.To, receipt.Asset}, nil
}

// matches reports whether p is the posting of op. A nonce is used once, a hold ends once.
func matches(op *walletapi.BatchOp, p *posting) bool {
	if p.Op.String() != op.Op {
		return false
	}
	if op.Hold != "" {
		return p.Hold.String() == op.Hold && (op.AmountMinor == "" || op.AmountMinor == p.Amount.String())
	}
	return p.Nonce == op.Nonce && p.From == op.From && p.To == op.To && p.Amount.String() == op.AmountMinor && p.memo == op.Memo
}

// maxRecalled is how many entries of a statement are looked through for one payment: a repeat comes within days, not
// after years.
const maxRecalled = 20 * statementPage

// findPosting returns the newest posting in op's statement for which is reports true; nil if there is none, or if the
// token may not read the statement.
func (s *sender) findPosting(ctx context.Context, op walletapi.BatchOp, is func(p *posting) bool) (found *posting, err error) {
	if op.Op == "" || s.node == nil {
		return nil, nil
	}
	at, err := statementFor(ctx, &s.Repeater, s.node, &op)
	if err == nil && at.account != "" {
		left := maxRecalled
		err = walkStatement(ctx, &s.Repeater, s.node, at, func(p posting) bool {
			if is(&p) {
				found = &p
			}
			left--
			return found == nil && left > 0
		})
	}
	if p, refused := errors.AsType[*wire.Problem](err); refused && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests {
		return nil, nil // may not, or there is nothing to read: the node judges the request itself
	}
	return found, err
}

// recallReceipt returns the receipt of a request that err refuses, if it was done under key before: the node forgets keys
// after some time, and keeps them for each principal apart.
func (s *sender) recallReceipt(ctx context.Context, err error, o order, key string, nonce uint64) (receipt []byte) {
	p, refused := errors.AsType[*wire.Problem](err)
	if !refused || p.Status != http.StatusConflict && p.Status != http.StatusBadRequest && p.Status != http.StatusNotFound || p.Retryable {
		return nil
	}
	op := o.op
	op.Nonce = nonce
	was, err := s.findPosting(ctx, op, func(p *posting) bool { return p.Idem == key && matches(&op, p) })
	if err != nil || was == nil {
		return nil
	}
	return was.raw
}

func nonceOf(p *posting) uint64 {
	if p == nil {
		return 0
	}
	return p.Nonce
}
