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

// Account is what an account has besides balances, and the nonce to send next.
type Account struct {
	ledger.AccountView
	NextNonce uint64 // 0: the account has used all
}

// Outcomes of the read of a balance, as balance_cache_total has them.
const (
	balanceHit    = "hit"    // from memory
	balanceMiss   = "miss"   // from the file
	balanceBehind = "behind" // older than its reader knows
)

// receiptRoom is the usual size of a receipt as text, bytes.
const receiptRoom = 640

// balanceKey names the balance of an account in an asset.
type balanceKey struct{ account, asset string }

// Balance returns an account's balance in an asset, as of the newest record of the ledger and at
// least of the record minSeq. An account that is not known has nothing. An asset that is not
// declared is refused with a *ledger.Reject, so that a slip does not read as an empty account. It
// waits for a minSeq that the ledger has not reached yet for the time of one call; then it returns
// a *BehindError.
func (e *Engine) Balance(
	ctx context.Context,
	by engines.Actor,
	account, asset string,
	minSeq uint64,
) (ledger.BalanceView, error) {
	if err := e.mayRead(by, account, asset); err != nil {
		return ledger.BalanceView{}, err
	}
	view, err := read(ctx, e, opBalance, func(ctx context.Context) (ledger.BalanceView, error) {
		return e.ledger.Balance(ctx, account, asset, 0)
	})
	outcome := balanceHit
	switch {
	case err == nil && view.Seq < minSeq:
		outcome = balanceBehind
		view, err = e.awaitSeq(ctx, minSeq, view)
	case view.Cold:
		outcome = balanceMiss
		_ = e.cold.TrySend(balanceKey{account, asset}) // else a later read brings it into memory
	}
	e.m.balances[outcome](1)
	if err == nil && view.Posted.IsZero() && view.Held.IsZero() && view.Issued.IsZero() {
		err = e.mustBeDeclared(ctx, asset)
	}
	if err != nil {
		return ledger.BalanceView{}, fmt.Errorf("balance: %w", err)
	}
	return view, nil
}

// awaitShare is the divisor of limits.max_inflight that bounds the readers who wait for a record,
// so that they leave room for other requests.
const awaitShare = 4

// awaitSeq reads the balance of v again once the ledger has the record minSeq. It is not counted as
// a call, because its time does not depend on the ledger.
func (e *Engine) awaitSeq(ctx context.Context, minSeq uint64, v ledger.BalanceView) (ledger.BalanceView, error) {
	defer e.awaiting.Add(-1)
	if e.awaiting.Add(1) > int64(e.set.Load().Limits.MaxInflight/awaitShare) {
		return v, &BehindError{Want: minSeq, Have: v.Seq}
	}
	within := flow.LateBy(ctx, time.Now().Add(e.set.Load().Retry.RPCTimeout.D()))
	defer within.Release()
	view, err := e.ledger.Balance(within, v.Account, v.Asset, minSeq)
	if err != nil && errors.Is(context.Cause(within), context.DeadlineExceeded) {
		return view, &BehindError{Want: minSeq, Have: v.Seq}
	}
	if err != nil {
		err = e.readError(ctx, err)
	}
	return view, err
}

// mayRead returns an error unless by may read the balance of an account. Of the ledger's own
// accounts only issuance accounts can be read, by callers that may read every account.
func (e *Engine) mayRead(by engines.Actor, account, asset string) error {
	if err := checkName("account", account, engines.CheckAccount, ledger.WantAccount); err != nil {
		return err
	}
	if err := checkName("asset", asset, engines.CheckAsset, ledger.WantAsset); err != nil {
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

// Account returns an account's flags and nonces. It takes issuance accounts too, because an issue
// may give their nonce.
func (e *Engine) Account(ctx context.Context, by engines.Actor, account string) (Account, error) {
	if err := checkName("account", account, engines.CheckAccount, ledger.WantAccount); err != nil {
		return Account{}, err
	}
	if err := mayAccount(by, account); err != nil {
		return Account{}, err
	}
	view, err := read(ctx, e, opAccount,
		func(ctx context.Context) (ledger.AccountView, error) { return e.ledger.Account(ctx, account) })
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

// Tx returns the receipt of a record, in the bytes of the first answer. It returns ErrNotFound if
// there is no such record, if it is a whole batch or settlement, or if by may see neither party.
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

// seen returns the outcome of a record, or ErrNotFound if by may not see it.
func (e *Engine) seen(ctx context.Context, by engines.Actor, id record.TxID) (ledger.Outcome, error) {
	out, err := e.lookup(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) || err == nil && !mayTx(by, &out) {
		return ledger.Outcome{}, ErrNotFound
	}
	return out, err
}

// mayTx reports whether by may see a record: one of its parties, in its asset.
func mayTx(by engines.Actor, out *ledger.Outcome) bool {
	if by.Grant.IsZero() {
		return true
	}
	party := func(account string) bool { return account != "" && by.Grant.Account(account) == nil }
	r := &out.Receipt
	return (party(out.Parties.From) || party(out.Parties.To) || party(r.From) || party(r.To)) &&
		(r.Asset == "" || by.Grant.Asset(r.Asset) == nil)
}

// lookup reads a record. It returns ledger.ErrNotFound if there is no such record.
func (e *Engine) lookup(ctx context.Context, id record.TxID) (ledger.Outcome, error) {
	return read(ctx, e, opTx, func(ctx context.Context) (ledger.Outcome, error) { return e.ledger.Tx(ctx, id) })
}

// History returns a page of an account's statement. It returns ledger.ErrCursor for a cursor of
// another statement, and a *ledger.Reject for an asset that is not declared.
func (e *Engine) History(ctx context.Context, by engines.Actor, q ledger.HistoryQuery) (ledger.Page, error) {
	if err := e.mayRead(by, q.Account, q.Asset); err != nil {
		return ledger.Page{}, err
	}
	if q.Limit < 1 || q.Limit > ledger.MaxHistory {
		return ledger.Page{}, &FieldError{"limit", fmt.Sprintf("must be 1 to %d", ledger.MaxHistory)}
	}
	page, err := read(ctx, e, opHistory,
		func(ctx context.Context) (ledger.Page, error) { return e.ledger.History(ctx, q) })
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
	return read(ctx, e, opRoots,
		func(ctx context.Context) ([]record.Batch, error) { return e.ledger.Roots(ctx, since, n) })
}

// Head returns the end of the journal and of the log of its batches.
func (e *Engine) Head(ctx context.Context, _ engines.Actor) (record.Head, error) {
	return read(ctx, e, opHead, e.ledger.Head)
}

// Proof proves a record that by may see, in the log as of a batch, 0 for the newest. It returns
// ErrNotFound or ledger.ErrRange if there is no such record or batch.
func (e *Engine) Proof(ctx context.Context, by engines.Actor, id record.TxID, at uint64) (record.Proof, error) {
	if _, err := e.seen(ctx, by, id); err != nil {
		return record.Proof{}, err
	}
	return read(ctx, e, opProve,
		func(ctx context.Context) (record.Proof, error) { return e.ledger.Prove(ctx, id, at) })
}

// Consistency proves that the log at batch to contains the log at batch from. It returns
// ledger.ErrRange if the log does not reach to.
func (e *Engine) Consistency(ctx context.Context, _ engines.Actor, from, to uint64) (record.Consistency, error) {
	return read(ctx, e, opConsistency,
		func(ctx context.Context) (record.Consistency, error) { return e.ledger.Consistency(ctx, from, to) })
}

// Export calls fn with the records of the journal from one to another, both included, and with the
// headers of the batches that end there; to 0 is the head as of the call. A narrowed token may not
// export.
func (e *Engine) Export(ctx context.Context, by engines.Actor, from, to uint64, fn func(record.Line) error) error {
	if !by.Grant.IsZero() {
		return fmt.Errorf("%w: the journal has every account: the token must not be narrowed", ErrForbidden)
	}
	if err := e.ledger.Export(ctx, from, to, fn); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// Events returns a cursor over the batches committed from now on. The caller closes it.
func (e *Engine) Events(consumer string) *flow.Subscription[ledger.Committed] {
	return e.ledger.Events(consumer)
}

// checkName returns a *FieldError if a name is malformed.
func checkName(field, name string, grammar func(string) error, want string) error {
	if grammar(name) != nil {
		return &FieldError{field, want}
	}
	return nil
}
