package wallet

import (
	"context"
	"fmt"
	"strings"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Holds returns a page of the open holds that an account pays or may capture, in assets that by may
// see. It returns ledger.ErrCursor if q.After is not a cursor of holds.
func (e *Engine) Holds(ctx context.Context, by engines.Actor, q ledger.HoldsQuery) (ledger.HoldsPage, error) {
	if err := checkName("account", q.Account, engines.CheckAccount, ledger.WantAccount); err != nil {
		return ledger.HoldsPage{}, err
	}
	if q.Limit < 1 || q.Limit > ledger.MaxHolds {
		return ledger.HoldsPage{}, &FieldError{"limit", fmt.Sprintf("must be 1 to %d", ledger.MaxHolds)}
	}
	if err := mayAccount(by, q.Account); err != nil {
		return ledger.HoldsPage{}, err
	}
	page, err := read(ctx, e, opHistory,
		func(ctx context.Context) (ledger.HoldsPage, error) { return e.ledger.Holds(ctx, q) })
	if err != nil {
		return page, fmt.Errorf("holds: %w", err)
	}
	mine := page.Holds[:0]
	for _, h := range page.Holds {
		if by.Grant.Asset(h.Asset) == nil {
			mine = append(mine, h)
		}
	}
	page.Holds = mine
	return page, nil
}

// Hold returns one hold, open or not. It returns ErrNotFound if no hold has the id, if by may see
// neither party, or if by may not see its asset.
func (e *Engine) Hold(ctx context.Context, by engines.Actor, id record.TxID) (ledger.HoldView, error) {
	v, err := read(ctx, e, opTx, // its own record may be in a closed period
		func(ctx context.Context) (ledger.HoldView, error) { return e.ledger.Hold(ctx, id) })
	made := ledger.Outcome{Receipt: record.Receipt{From: v.From, To: v.To, Asset: v.Asset}}
	if is(ledger.ErrNotFound)(err) || err == nil && !mayTx(by, &made) {
		return ledger.HoldView{}, ErrNotFound
	}
	return v, err
}

// Reference returns the receipt of the operation with a reference of principal; "" is the principal
// of by. Another principal requires the scope wallet.admin. It returns ErrNotFound if no operation
// has the reference, or if by may see neither party.
func (e *Engine) Reference(ctx context.Context, by engines.Actor, principal, reference string) ([]byte, error) {
	own := scopeOf(by)
	if principal == "" {
		principal = own
	}
	if principal != own && !by.May(scopeAdmin) {
		return nil, &ScopeError{scopeAdmin}
	}
	out, err := read(ctx, e, opTx,
		func(ctx context.Context) (ledger.Outcome, error) {
			return e.ledger.Reference(ctx, principal, reference)
		})
	if is(ledger.ErrNotFound)(err) || err == nil && !mayTx(by, &out) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return out.Receipt.AppendJSON(make([]byte, 0, receiptRoom)), nil
}

// Accounts returns a page of the accounts with names that begin with q.Prefix. Of the ledger's own
// accounts it returns only issuance accounts. It returns ErrForbidden for a token that is
// restricted to some accounts, and a *ledger.Reject if q.Asset is not declared.
func (e *Engine) Accounts(ctx context.Context, by engines.Actor, q ledger.AccountsQuery) (ledger.AccountsPage, error) {
	if !by.Grant.IsZero() {
		return ledger.AccountsPage{}, fmt.Errorf("%w: the list has every account: the token must not be narrowed",
			ErrForbidden)
	}
	if q.Limit < 1 || q.Limit > ledger.MaxAccounts {
		return ledger.AccountsPage{}, &FieldError{"limit", fmt.Sprintf("must be 1 to %d", ledger.MaxAccounts)}
	}
	if q.Asset != "" {
		if err := checkName("asset", q.Asset, engines.CheckAsset, ledger.WantAsset); err != nil {
			return ledger.AccountsPage{}, err
		}
		if err := e.mustBeDeclared(ctx, q.Asset); err != nil {
			return ledger.AccountsPage{}, err
		}
	}
	page, err := read(ctx, e, opAccount,
		func(ctx context.Context) (ledger.AccountsPage, error) { return e.ledger.Accounts(ctx, q) })
	if err != nil {
		return page, fmt.Errorf("accounts: %w", err)
	}
	shown := page.Accounts[:0]
	for _, a := range page.Accounts {
		if !engines.IsSystemAccount(a.Account) || strings.HasPrefix(a.Account, engines.IssuanceAccount("")) {
			shown = append(shown, a)
		}
	}
	page.Accounts = shown
	return page, nil
}

// Payments calls fn with the records from one seq to another, both included, that f selects and
// that by may see: it sees a record by one of its parties, in its asset. from may be to + 1, to
// check f. It returns a *engines.GrantError if by may see none that f selects, a *ledger.Reject for
// an asset that is not declared, and ledger.ErrRange if the journal does not reach to. It may take
// as long as fn does, and holds up nothing meanwhile.
func (e *Engine) Payments(
	ctx context.Context,
	by engines.Actor,
	f ledger.PaymentFilter,
	from, to uint64,
	fn func(*ledger.Outcome) error,
) error {
	if err := e.maySelect(ctx, by, &f); err != nil {
		return err
	}
	err := e.ledger.Payments(ctx, f, from, to, func(out *ledger.Outcome) error {
		if !mayTx(by, out) {
			return nil
		}
		return fn(out)
	})
	if err != nil {
		return fmt.Errorf("payments: %w", err)
	}
	return nil
}

// maySelect returns an error unless by may see what f selects.
func (e *Engine) maySelect(ctx context.Context, by engines.Actor, f *ledger.PaymentFilter) error {
	if f.Account != "" {
		if err := checkName("account", f.Account, engines.CheckAccount, ledger.WantAccount); err != nil {
			return err
		}
		if err := mayAccount(by, f.Account); err != nil {
			return err
		}
		if err := by.Grant.Account(f.Account); err != nil {
			return err
		}
	}
	if f.Asset == "" {
		return nil
	}
	if err := checkName("asset", f.Asset, engines.CheckAsset, ledger.WantAsset); err != nil {
		return err
	}
	if err := by.Grant.Asset(f.Asset); err != nil {
		return err
	}
	return e.mustBeDeclared(ctx, f.Asset)
}
