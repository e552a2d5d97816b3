package wallet

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi"
	ledgerhttp "ronbox/httpapi/ledger"
	"ronbox/httpapi/openapi"
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

func afterParam(doc string) openapi.Param { return openapi.Param{Name: "after", Doc: doc} }

func (h handlers) listHolds() httpapi.Route {
	return httpapi.Route{
		Pattern: "holds",
		Handle:  h.getHolds,
		ID:      "listHolds",
		Summary: "The open holds of an account, as payer or as payee, in the order of their expiry",
		Answers: httpapi.Answers(http.StatusOK, walletapi.HoldList{}),
		Query: []openapi.Param{
			accountParam(),
			afterParam("next of the page before. The ledger has no index of an account's holds: " +
				"a call examines 4096 open holds of all accounts at most, " +
				"so a page may have fewer entries than limit, or none, and a next"),
			openapi.Number("limit", "entries of a page", ledger.MaxHolds),
		},
	}
}

func (h handlers) oneHold() httpapi.Route {
	return httpapi.Route{
		Pattern:  "holds/:txid",
		Handle:   h.getHold,
		ID:       "getHold",
		Summary:  "A hold and its outcome",
		Answers:  httpapi.Answers(http.StatusOK, walletapi.HoldInfo{}),
		Problems: []int{http.StatusNotFound},
	}
}

func (h handlers) oneReference() httpapi.Route {
	return httpapi.Route{
		Pattern: "tx",
		Handle:  h.getReference,
		ID:      "findTransaction",
		Summary: "The receipt of the transaction with a reference",
		Answers: httpapi.Answers(http.StatusOK, walletapi.Receipt{}),
		Query: []openapi.Param{
			{Name: "reference", Doc: "reference of the operation", Required: true},
			{
				Name: "principal",
				Doc: "principal that owns the reference; by default the caller's, and another needs the " +
					"scope wallet.admin",
			},
		},
		Problems: []int{http.StatusNotFound},
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
		Query: []openapi.Param{
			{Name: "prefix", Doc: "prefix of the names"},
			afterParam("next of the page before: a name"),
			openapi.Number("limit", "entries of a page", ledger.MaxAccounts),
			{Name: "asset", Doc: "also show the balances in this asset", Pattern: assetPattern},
		},
	}
}

// getHolds serves GET /v1/holds.
func (h handlers) getHolds(c *httpapi.Request) error {
	account, err := accountOf(c)
	if err != nil {
		return err
	}
	limit, err := c.Number("limit", holdsPage, 1, ledger.MaxHolds)
	if err != nil {
		return err
	}
	page, err := h.wal.Holds(c.Context(), c.Actor(),
		ledger.HoldsQuery{Account: account, After: c.Query().Get("after"), Limit: int(limit)})
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
	reference, err := nameOf(c, "reference", record.CheckReference, ledger.WantReference)
	if err != nil {
		return err
	}
	body, err := h.wal.Reference(c.Context(), c.Actor(), c.Query().Get("principal"), reference)
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
	q := ledger.AccountsQuery{Prefix: c.Query().Get("prefix"), After: c.Query().Get("after")}
	for name, v := range map[string]string{"prefix": q.Prefix, "after": q.After} {
		if v != "" && engines.CheckAccount(v) != nil {
			return httpapi.BadQuery(name, ledger.WantAccount)
		}
	}
	limit, err := c.Number("limit", accountsPage, 1, ledger.MaxAccounts)
	if err != nil {
		return err
	}
	q.Limit = int(limit)
	if c.Query().Has("asset") {
		if q.Asset, err = assetOf(c); err != nil {
			return err
		}
	}
	page, err := h.wal.Accounts(c.Context(), c.Actor(), q)
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
		if q.Asset != "" {
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
