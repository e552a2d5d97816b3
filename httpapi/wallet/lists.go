package wallet

import (
	"cmp"
	"context"
	"net/http"

	"github.com/go-json-experiment/json"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi"
	ledgerhttp "ronbox/httpapi/ledger"
	walletapi "ronbox/httpapi/wire/wallet"
)

// Lister answers the reads of /v1 that list holds and accounts.
type Lister interface {
	Holds(ctx context.Context, by engines.Actor, q ledger.HoldsQuery) (ledger.HoldsPage, error)
	Hold(ctx context.Context, by engines.Actor, id record.TxID) (ledger.HoldView, error)
	Accounts(ctx context.Context, by engines.Actor, q ledger.AccountsQuery) (ledger.AccountsPage, error)
	Reference(ctx context.Context, by engines.Actor, principal, reference string) ([]byte, error)
}

// Default number of entries of a page.
const (
	holdsPage    = 100
	accountsPage = 500
)

// Query parameters of the lists.
var (
	holdsAfter = httpapi.Text("after", "next of the page before. The ledger has no index of an account's holds: "+
		"a call examines 4096 open holds of all accounts at most, "+
		"so a page may have fewer entries than limit, or none, and a next")
	holdsLimit = httpapi.Number("limit", holdsPage, 1, ledger.MaxHolds, "entries of a page")

	txReference = httpapi.Checked(httpapi.Text("reference", "reference of the operation").Required(), "",
		ledger.WantReference, passes(record.CheckReference))
	txPrincipal = httpapi.Text("principal", "principal that owns the reference; by default the caller's, "+
		"and another needs the scope wallet.admin")

	accountsPrefix = httpapi.Checked(httpapi.Text("prefix", "prefix of the names"), "",
		ledger.WantAccount, passes(engines.CheckAccount))
	accountsAfter = httpapi.Checked(httpapi.Text("after", "next of the page before: a name"), "",
		ledger.WantAccount, passes(engines.CheckAccount))
	accountsLimit = httpapi.Number("limit", accountsPage, 1, ledger.MaxAccounts, "entries of a page")
	accountsAsset = httpapi.Checked(httpapi.Text("asset", "also show the balances in this asset"), assetPattern,
		ledger.WantAsset, passes(engines.CheckAsset))
)

func (h handlers) listHolds() httpapi.Route {
	return httpapi.Route{
		Pattern: "holds",
		Handle:  h.getHolds,
		ID:      "listHolds",
		Summary: "The open holds of an account, as payer or as payee, in the order of their expiry",
		Answers: httpapi.Answers(http.StatusOK, walletapi.HoldList{}),
		Query:   httpapi.Params(accountParam, holdsAfter, holdsLimit),
	}
}

func (h handlers) oneHold() httpapi.Route {
	return httpapi.Route{
		Pattern:  "holds/:txid",
		Handle:   h.getHold,
		ID:       "getHold",
		Summary:  "A hold and its outcome",
		Answers:  httpapi.Answers(http.StatusOK, walletapi.HoldInfo{}),
		Problems: []int{http.StatusNotFound, http.StatusGone},
	}
}

func (h handlers) oneReference() httpapi.Route {
	return httpapi.Route{
		Pattern:  "tx",
		Handle:   h.getReference,
		ID:       "findTransaction",
		Summary:  "The receipt of the transaction with a reference",
		Answers:  httpapi.Answers(http.StatusOK, walletapi.Receipt{}),
		Query:    httpapi.Params(txReference, txPrincipal),
		Problems: []int{http.StatusNotFound, http.StatusGone},
	}
}

func (h handlers) listAccounts() httpapi.Route {
	return httpapi.Route{
		Pattern: "accounts",
		Handle:  h.getAccounts,
		ID:      "listAccounts",
		Summary: "The accounts there are, in the byte order of their names; " +
			"a token that reaches some accounts only is refused",
		Answers: httpapi.Answers(http.StatusOK, walletapi.AccountList{}),
		Query:   httpapi.Params(accountsPrefix, accountsAfter, accountsLimit, accountsAsset),
	}
}

// getHolds serves GET /v1/holds.
func (h handlers) getHolds(c *httpapi.Request) error {
	account, err := accountParam.Of(c)
	after, errAfter := holdsAfter.Of(c)
	limit, errLimit := holdsLimit.Of(c)
	if err := cmp.Or(err, errAfter, errLimit); err != nil {
		return err
	}
	page, err := h.wal.Holds(c.Context(), c.Actor(),
		ledger.HoldsQuery{Account: account, After: after, Limit: int(limit)})
	if err != nil {
		return err
	}
	out := walletapi.HoldList{Holds: make([]walletapi.HoldInfo, len(page.Holds)), Next: page.Next}
	for i := range page.Holds {
		out.Holds[i] = holdInfo(&page.Holds[i])
	}
	return c.Respond(http.StatusOK, out)
}

// getHold serves GET /v1/holds/:txid.
func (h handlers) getHold(c *httpapi.Request) error {
	v, err := h.wal.Hold(c.Context(), c.Actor(), ledgerhttp.TxParam(c))
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, holdInfo(&v))
}

// getReference serves GET /v1/tx: the bytes that were the answer when it was done.
func (h handlers) getReference(c *httpapi.Request) error {
	reference, err := txReference.Of(c)
	principal, errPrincipal := txPrincipal.Of(c)
	if err := cmp.Or(err, errPrincipal); err != nil {
		return err
	}
	body, err := h.wal.Reference(c.Context(), c.Actor(), principal, reference)
	if err != nil {
		return err
	}
	return c.Send(http.StatusOK, httpapi.CacheNone, body)
}

func holdInfo(v *ledger.HoldView) walletapi.HoldInfo {
	out := walletapi.HoldInfo{
		TxID:        v.TxID.String(),
		From:        v.From,
		To:          v.To,
		Asset:       v.Asset,
		AmountMinor: v.Amount.String(),
		At:          ledgerhttp.Instant(v.At),
		ExpiresAt:   ledgerhttp.Instant(v.Expires),
		State:       "open",
	}
	if v.Closed == 0 {
		return out
	}
	returned, _ := v.Amount.Sub(v.Captured)
	out.ReturnedMinor = returned.String()
	out.ClosedAt, out.ClosingTxID = ledgerhttp.Instant(v.ClosedAt), v.Closing.String()
	switch v.Closed {
	case record.OpCapture:
		out.State, out.CapturedMinor = "captured", v.Captured.String()
	case record.OpRelease:
		out.State = "released"
	default:
		out.State = "expired"
	}
	return out
}

// getAccounts serves GET /v1/accounts.
func (h handlers) getAccounts(c *httpapi.Request) error {
	prefix, err := accountsPrefix.Of(c)
	after, errAfter := accountsAfter.Of(c)
	limit, errLimit := accountsLimit.Of(c)
	asset, errAsset := accountsAsset.Of(c)
	if err := cmp.Or(err, errAfter, errLimit, errAsset); err != nil {
		return err
	}
	page, err := h.wal.Accounts(c.Context(), c.Actor(),
		ledger.AccountsQuery{Prefix: prefix, After: after, Limit: int(limit), Asset: asset})
	if err != nil {
		return err
	}
	out := walletapi.AccountList{Accounts: make([]walletapi.AccountInfo, len(page.Accounts)), Next: page.Next}
	for i, a := range page.Accounts {
		out.Accounts[i] = walletapi.AccountInfo{
			Account:  a.Account,
			Flags:    append([]string{}, a.Flags.Names()...),
			OpenedAt: ledgerhttp.Instant(a.OpenedAt),
		}
		if asset != "" {
			shown, b := &out.Accounts[i], &a.Balance
			shown.AmountMinor, shown.PostedMinor, shown.HeldMinor =
				b.Available.String(), b.Posted.String(), b.Held.String()
		}
	}
	return c.Respond(http.StatusOK, out)
}

// ReadOp reads one operation of a batch and checks it as the node does. The error is an
// *httpapi.BodyError, or that of the JSON decoder.
func ReadOp(raw []byte) (op walletapi.BatchOp, err error) {
	one := newOrder()
	if err := httpapi.DecodeTyped(raw, &one); err != nil {
		return op, err
	}
	if _, bad := one.validate(0); bad != nil {
		return op, bad
	}
	return op, json.Unmarshal(raw, &op)
}
