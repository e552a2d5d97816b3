package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines"
	"ronbox/httpapi/wire/ledger"
	"ronbox/httpapi/wire/wallet"
)

// units are the numbers of digits that assets have after the point, by asset.
type units map[string]int

func unitsOf(list wallet.AssetList) units {
	u := units{}
	for _, a := range list.Assets {
		u[a.Asset] = a.Decimals
	}
	return u
}

// Amount returns minor units of an asset as people write the amount. If the decimals are not known
// it says that they are minor units.
func (u units) Amount(minor, asset string) string {
	a, err := engines.ParseAmount(minor)
	if err != nil {
		return minor
	}
	n, known := u[asset]
	if !known {
		return groups(minor) + " minor units"
	}
	whole, part, point := strings.Cut(a.Decimal(n), ".")
	if !point {
		return groups(whole)
	}
	return groups(whole) + "." + part
}

// Minor returns the minor units of an amount that a person has written.
func (u units) Minor(text, asset string) (string, error) {
	n, known := u[asset]
	if !known {
		return "", notice("asset: is not declared, or not an asset of this session")
	}
	a, err := engines.ParseDecimal(text, n)
	switch {
	case errors.Is(err, engines.ErrPrecision):
		return "", notice("amount: " + err.Error() + ": " + asset + " has " + strconv.Itoa(n))
	case err != nil:
		return "", notice("amount: " + err.Error())
	}
	return a.String(), nil
}

// walletData is the data of the page of the wallet.
type walletData struct {
	Assets  part[wallet.AssetList]
	Units   units
	Ledger  part[ledger.LedgerHead]
	Name    string // the account that is shown; "": none
	Asset   string
	Account part[wallet.Account]
	Balance part[wallet.Balance]
	Holds   part[wallet.HoldList]
	History part[[]entry]
	Next    string // the cursor of the next page of history
	// Accounts are those that begin with Prefix.
	Accounts part[wallet.AccountList]
	Prefix   string
	Ref      string // of the form that pays, made once for each page; with it its other fields
	To       string
	Amount   string
	Memo     string
}

// accountRows is how many accounts the page lists.
const accountRows = 12

// entry is a row of a statement.
type entry struct {
	wallet.Receipt
	Side    string
	Balance string
	Memo    string
	Other   string // the other account
}

func walletPage(v *view) any {
	h, ctx := v.h, v.ctx
	d := walletData{
		Assets: read(h.wallet.Assets(ctx)),
		Ledger: read(h.wallet.LedgerHead(ctx)),
		Name:   strings.TrimSpace(v.in.Get("account")),
		Asset:  v.in.Get("asset"),
		Ref:    cmp.Or(v.in.Get("reference"), "console-"+secret()[:24]),
		To:     v.in.Get("to"),
		Amount: v.in.Get("amount"),
		Memo:   v.in.Get("memo"),
		Prefix: strings.TrimSpace(v.in.Get("accounts")),
	}
	d.Units = unitsOf(d.Assets.V)
	d.Accounts = read(h.wallet.Accounts(ctx, d.Prefix, v.in.Get("after"), accountRows))
	if d.Asset == "" && len(d.Assets.V.Assets) > 0 {
		d.Asset = d.Assets.V.Assets[0].Asset
	}
	if d.Name == "" || d.Asset == "" {
		return d
	}
	d.Account = read(h.wallet.Account(ctx, d.Name))
	d.Balance = read(h.wallet.Balance(ctx, d.Name, d.Asset, 0))
	d.Holds = read(h.wallet.Holds(ctx, d.Name, "", maxRows))
	page := read(h.wallet.History(ctx, wallet.HistoryQuery{
		Account: d.Name, Asset: d.Asset, Cursor: v.in.Get("cursor"), Order: "desc", Limit: maxRows,
	}))
	d.History.Fault, d.Next = page.Fault, page.V.Next
	for _, row := range page.V.Entries {
		e := entry{Side: row.Side, Balance: row.BalanceMinor, Memo: row.Memo}
		_ = json.Unmarshal(row.Receipt, &e.Receipt) // the node's own answer
		e.Other = e.From
		if row.Side == "debit" {
			e.Other = e.To
		}
		d.History.V = append(d.History.V, e)
	}
	return d
}

// receiptData is the data of the page of a receipt.
type receiptData struct {
	ID      string
	Receipt part[wallet.Receipt]
	Units   units
	Raw     string
	Proof   part[string]
}

func receiptPage(v *view) any {
	d := receiptData{ID: v.in.Get("id")}
	raw, err := v.h.wallet.Tx(v.ctx, d.ID)
	d.Receipt = read(wallet.Receipt{}, err)
	if err != nil {
		return d
	}
	_ = json.Unmarshal(raw, &d.Receipt.V) // the node's own answer
	assets, _ := v.h.wallet.Assets(v.ctx) // minor units are right too
	d.Units = unitsOf(assets)
	d.Raw = indented(jsontext.Value(raw))
	proof, err := v.h.wallet.Proof(v.ctx, d.ID, 0)
	d.Proof = read(string(proof), err)
	return d
}

// unsure is the data of the page about a payment with an unknown outcome.
type unsure struct{ Why, Again string }

// postPay pays once for each reference, however often its form is sent: the reference is the
// Idempotency-Key.
func (h *Console) postPay(v *view, in url.Values) error {
	reference := strings.TrimSpace(in.Get("reference"))
	if reference == "" {
		return h.fault(v.c, v.s, http.StatusBadRequest, "reference: must not be empty")
	}
	asset := strings.TrimSpace(in.Get("asset"))
	assets, err := h.wallet.Assets(v.ctx)
	if err != nil {
		status := http.StatusBadGateway
		if p := problemOf(err); p != nil {
			status = p.Status
		}
		return h.fault(v.c, v.s, status, "Nothing was sent. The decimals of the amount cannot be read. "+explain(err))
	}
	minor, err := unitsOf(assets).Minor(strings.TrimSpace(in.Get("amount")), asset)
	if err != nil {
		return h.fault(v.c, v.s, http.StatusBadRequest, "Nothing was sent. "+explain(err))
	}
	posted, err := h.wallet.Transfer(v.ctx, reference, wallet.Transfer{
		From:        strings.TrimSpace(in.Get("from")),
		To:          strings.TrimSpace(in.Get("to")),
		Asset:       asset,
		AmountMinor: minor,
		Memo:        in.Get("memo"),
	})
	switch p := problemOf(err); {
	case err == nil:
	case p == nil || p.Unknown():
		// the same reference again pays once, whatever became of this one
		again := url.Values{"account": in["from"], "to": in["to"], "asset": in["asset"], "amount": in["amount"],
			"memo": in["memo"], "reference": {reference}}
		return h.render(v.c, http.StatusGatewayTimeout, h.pages.unsure, v.s,
			unsure{explain(err), prefix + "wallet?" + again.Encode()})
	default:
		return h.fault(v.c, v.s, p.Status, "Nothing was paid. "+explain(err))
	}
	return see(v.c, prefix+"wallet/tx?id="+url.QueryEscape(posted.Receipt.TxID))
}
