package wallet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Balance is an account's standing, and how long ago it was read.
type Balance struct {
	ledger.BalanceView
	Stale time.Duration
}

// Account is what an account has besides balances, and the nonce to send next.
type Account struct {
	ledger.AccountView
	NextNonce uint64 // 0: there is none left
}

// Balance gives an account's balance in an asset, at most staleness_window old and at least as new as the record minSeq. An account that is
// not known has nothing; an asset that nobody declared is refused, as a *ledger.Reject: a slip must not read as an empty account. It waits for a
// minSeq that the ledger has not reached yet, for the time of one call: then *BehindError.
func (e *Engine) Balance(ctx context.Context, by engines.Actor, account, asset string, minSeq uint64) (Balance, error) {
	if err := e.mayRead(by, account, asset); err != nil {
		return Balance{}, err
	}
	hit, outcome := e.balances.get(account, asset, minSeq, e.live().StalenessWindow.D())
	e.m.cache[outcome](1)
	if hit != nil {
		return Balance{hit.view, time.Since(hit.read)}, nil
	}
	began := time.Now()
	view, err := read(ctx, e.link, opBalance, func(ctx context.Context) (ledger.BalanceView, error) {
		return e.ledger.Balance(ctx, account, asset, 0)
	})
	if err == nil && view.Seq < minSeq {
		view, err = e.awaitSeq(ctx, minSeq, view)
	}
	if err == nil && view.Posted.IsZero() && view.Held.IsZero() && view.Issued.IsZero() {
		err = e.mustBeDeclared(ctx, asset)
	}
	if err != nil {
		return Balance{}, fmt.Errorf("balance: %w", err)
	}
	e.balances.put(view, began)
	return Balance{BalanceView: view}, nil
}

// awaitShare is the part of the places of requests in flight that may wait for records to come. With those who wait for a nonce, which may be
// half of them, they leave room for who waits for nothing.
const awaitShare = 4

// awaitSeq gives the balance that v is of once the ledger has the record minSeq. It is not booked as a call: how long it takes says nothing of
// the ledger.
func (e *Engine) awaitSeq(ctx context.Context, minSeq uint64, v ledger.BalanceView) (ledger.BalanceView, error) {
	defer e.awaiting.Add(-1)
	if e.awaiting.Add(1) > int64(e.live().Limits.MaxInflight/awaitShare) {
		return v, &BehindError{Want: minSeq, Have: v.Seq}
	}
	within := flow.LateBy(ctx, time.Now().Add(e.live().Retry.RPCTimeout.D()))
	defer within.Release()
	view, err := e.ledger.Balance(within, v.Account, v.Asset, minSeq)
	if err != nil && errors.Is(context.Cause(within), context.DeadlineExceeded) {
		return view, &BehindError{Want: minSeq, Have: v.Seq}
	}
	return view, e.link.readError(ctx, err)
}

// mayRead says whether by may see what an account has. Of the ledger's own those that issue may be seen, by who may see all.
func (e *Engine) mayRead(by engines.Actor, account, asset string) error {
	if err := checkName("account", account, true, engines.CheckAccount); err != nil {
		return err
	}
	if err := checkName("asset", asset, true, engines.CheckAsset); err != nil {
		return err
	}
	if err := mayAccount(by, account); err != nil {
		return err
	}
	if err := by.Grant.Account(account); err != nil {
		return err
	}
	return by.Grant.Asset(asset)
}

// Account gives an account's flags and nonces; of an account that issues an asset too, because who issues needs its nonce.
func (e *Engine) Account(ctx context.Context, by engines.Actor, account string) (Account, error) {
	if err := checkName("account", account, true, engines.CheckAccount); err != nil {
		return Account{}, err
	}
	if err := mayAccount(by, account); err != nil {
		return Account{}, err
	}
	view, err := read(ctx, e.link, opAccount, func(ctx context.Context) (ledger.AccountView, error) { return e.ledger.Account(ctx, account) })
	if err != nil {
		return Account{}, fmt.Errorf("account: %w", err)
	}
	return Account{view, max(view.LastNonce, e.boot.NonceStart-1) + 1}, nil
}

func mayAccount(by engines.Actor, account string) error {
	if !engines.IsSystemAccount(account) {
		return by.Grant.Account(account)
	}
	asset, issues := strings.CutPrefix(account, engines.IssuanceAccount(""))
	if !issues {
		return ErrSystemAccount
	}
	return by.Grant.Asset(asset)
}

// Tx gives the receipt of a record, in the bytes it was first given in. ErrNotFound if there is none, as of a whole batch or settlement, or neither
// party is by's to see.
func (e *Engine) Tx(ctx context.Context, by engines.Actor, id record.TxID) ([]byte, error) {
	out, err := e.seen(ctx, by, id)
	if err == nil && out.Batch {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return out.Receipt.AppendJSON(make([]byte, 0, receiptRoom)), nil
}

// seen is a record's outcome, if by may see it.
func (e *Engine) seen(ctx context.Context, by engines.Actor, id record.TxID) (ledger.Outcome, error) {
	out, err := e.lookup(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) || err == nil && !mayTx(by, &out) {
		return ledger.Outcome{}, ErrNotFound
	}
	return out, err
}

// mayTx says whether by may see a record: one of its parties, in its asset.
func mayTx(by engines.Actor, out *ledger.Outcome) bool {
	if by.Grant.IsZero() {
		return true
	}
	party := func(account string) bool { return account != "" && by.Grant.Account(account) == nil }
	r := &out.Receipt
	return (party(out.Parties.From) || party(out.Parties.To) || party(r.From) || party(r.To)) && (r.Asset == "" || by.Grant.Asset(r.Asset) == nil)
}

// lookup reads a record. ledger.ErrNotFound if there is none.
func (e *Engine) lookup(ctx context.Context, id record.TxID) (ledger.Outcome, error) {
	return read(ctx, e.link, opTx, func(ctx context.Context) (ledger.Outcome, error) { return e.ledger.Tx(ctx, id) })
}

// History gives a page of an account's statement. ledger.ErrCursor for a cursor of another statement, a *ledger.Reject for an asset that nobody
// declared.
func (e *Engine) History(ctx context.Context, by engines.Actor, q ledger.HistoryQuery) (ledger.Page, error) {
	if err := e.mayRead(by, q.Account, q.Asset); err != nil {
		return ledger.Page{}, err
	}
	if q.Limit < 1 || q.Limit > ledger.MaxHistory {
		return ledger.Page{}, &FieldError{"limit", fmt.Sprintf("must be 1 to %d", ledger.MaxHistory)}
	}
	page, err := read(ctx, e.link, opHistory, func(ctx context.Context) (ledger.Page, error) { return e.ledger.History(ctx, q) })
	if err == nil && len(page.Entries) == 0 || errors.Is(err, ledger.ErrCursor) {
		if not := e.mustBeDeclared(ctx, q.Asset); not != nil {
			return ledger.Page{}, not
		}
	}
	return page, err
}

// Roots lists up to n batch headers after the batch since.
func (e *Engine) Roots(ctx context.Context, _ engines.Actor, since uint64, n int) ([]record.Batch, error) {
	if n < 1 || n > ledger.MaxRoots {
		return nil, &FieldError{"limit", fmt.Sprintf("must be 1 to %d", ledger.MaxRoots)}
	}
	return read(ctx, e.link, opRoots, func(ctx context.Context) ([]record.Batch, error) { return e.ledger.Roots(ctx, since, n) })
}

// Head is where the journal and the log of its batches end.
func (e *Engine) Head(ctx context.Context, _ engines.Actor) (record.Head, error) {
	return read(ctx, e.link, opHead, e.ledger.Head)
}

// Proof proves a record that by may see, in the log as of a batch, 0 for the newest. ErrNotFound, ledger.ErrRange.
func (e *Engine) Proof(ctx context.Context, by engines.Actor, id record.TxID, at uint64) (record.Proof, error) {
	if _, err := e.seen(ctx, by, id); err != nil {
		return record.Proof{}, err
	}
	return read(ctx, e.link, opProve, func(ctx context.Context) (record.Proof, error) { return e.ledger.Prove(ctx, id, at) })
}

// Consistency proves that the log at batch to holds the log at batch from. ledger.ErrRange.
func (e *Engine) Consistency(ctx context.Context, _ engines.Actor, from, to uint64) (record.Consistency, error) {
	return read(ctx, e.link, opConsistency, func(ctx context.Context) (record.Consistency, error) { return e.ledger.Consistency(ctx, from, to) })
}

// Export gives fn the journal from one record to another, both included, and the headers of the batches that end in it; to 0 is the head as of
// the call. A token that reaches some accounts only reaches no export.
func (e *Engine) Export(ctx context.Context, by engines.Actor, from, to uint64, fn func(record.Line) error) error {
	if !by.Grant.IsZero() {
		return fmt.Errorf("%w: the journal has every account: the token must not be narrowed", ErrForbidden)
	}
	if err := e.ledger.Export(ctx, from, to, fn); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// Events gives a cursor over the batches committed from now on. The caller closes it.
func (e *Engine) Events(consumer string) *flow.Subscription[ledger.Committed] {
	return e.ledger.Events(consumer)
}
