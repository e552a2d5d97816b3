package wallet

import (
	"context"
	"errors"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Scopes that the engine asks for itself; the others stand on the routes.
const (
	scopePrefix = "wallet."
	scopeAdmin  = scopePrefix + "admin"
)

// scopeOf names who asked, for the idempotency keys: one principal never meets another one's.
func scopeOf(by engines.Actor) string {
	if by.Principal != "" {
		return by.Principal
	}
	return "cap:" + by.CapID
}

// mayOp says whether by holds the scope of an op inside a batch.
func mayOp(by engines.Actor, op record.Op) error {
	if op == record.OpRelease && by.May(scopeAdmin) {
		return nil
	}
	if scope := scopePrefix + op.String(); !by.May(scope) {
		return &ScopeError{scope}
	}
	return nil
}

// authorize says whether by's grant reaches the account that r is about: the debited one, the receiver of an issue, the beneficiary of a
// hold. Amounts are ceiling's to judge, later, so that a replay is not refused by a ceiling that was lowered since.
func (e *Engine) authorize(ctx context.Context, by engines.Actor, r *Request) error {
	if by.Grant.IsZero() {
		return nil
	}
	account, asset := r.From, r.Asset
	switch r.Op {
	case record.OpIssue:
		account = r.To
	case record.OpAsset:
		return by.Grant.Asset(asset)
	case record.OpFlags:
		return by.Grant.Account(account)
	case record.OpCapture, record.OpRelease:
		return e.authorizeHold(ctx, by, r)
	}
	if err := by.Grant.Account(account); err != nil {
		return err
	}
	return by.Grant.Asset(asset)
}

// authorizeHold looks the hold up. It is its beneficiary's, and an admin releases it for either party. One that is out of the grant's reach is
// answered as one that is not there.
func (e *Engine) authorizeHold(ctx context.Context, by engines.Actor, r *Request) error {
	held, err := e.hold(ctx, r.Hold)
	if err != nil {
		return err
	}
	reached := by.Grant.Account(held.To) == nil || r.Op == record.OpRelease && by.May(scopeAdmin) && by.Grant.Account(held.From) == nil
	if reached && by.Grant.Asset(held.Asset) == nil {
		return nil
	}
	return &ledger.Reject{Code: record.HoldUnknown}
}

// hold reads the receipt of a hold.
func (e *Engine) hold(ctx context.Context, id record.TxID) (record.Receipt, error) {
	out, err := e.lookup(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) || err == nil && out.Receipt.Op != record.OpHold {
		return record.Receipt{}, &ledger.Reject{Code: record.HoldUnknown}
	}
	return out.Receipt, err
}

// ceilings says whether by's token allows the amount, and gives what the token may move in a day, for the ledger to judge: it knows what the
// token has moved. Zero is no bound; a token that may move nothing is refused here. All of a hold is captured by an amount of zero.
func (e *Engine) ceilings(ctx context.Context, by engines.Actor, r *Request) (daily engines.Amount, err error) {
	if by.Grant.IsZero() || !r.Op.MovesMoney() || r.Op == record.OpRelease {
		return daily, nil
	}
	amount := r.Amount
	if r.Op == record.OpCapture && amount.IsZero() {
		held, err := e.hold(ctx, r.Hold)
		if err != nil {
			return daily, err
		}
		amount = held.Amount
	}
	if err := by.Grant.Amount(amount); err != nil {
		return daily, err
	}
	daily, _ = by.Grant.MaxDaily()
	return daily, by.Grant.Daily(engines.Amount{}, amount)
}
