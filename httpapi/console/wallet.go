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
	"ronbox/engines/ledger/record"
	"ronbox/httpapi"
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

// Of is Amount with the asset behind it. "" is no amount.
func (u units) Of(minor, asset string) string {
	if minor == "" {
		return ""
	}
	return strings.TrimSpace(u.Amount(minor, asset) + " " + asset)
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
	Assets   part[wallet.AssetList]
	Units    units
	Ledger   part[ledger.LedgerHead]
	Name     string // the account that is shown; "": none
	Asset    string
	Account  part[wallet.Account]
	Balance  part[wallet.Balance]
	Holds    part[wallet.HoldList]
	History  part[[]entry]
	Next     string // the cursor of the next page of history
	Payments part[[]payment]
	Memo     string // that the payments have; "": any
	Before   uint64 // of the next page of payments; 0: none
	// Accounts are those that begin with Prefix.
	Accounts part[wallet.AccountList]
	Prefix   string
	Pay      payForm
}

// payForm has the values of the form that pays. Ref is made once for each page.
type payForm struct {
	From, To, Amount, Memo, Ref string
	New                         bool // it asks whether to open an account for the payee
}

// Rows of the tables of the page.
const (
	accountRows = 12
	paymentRows = 12
)

// entry is a row of a statement.
type entry struct {
	wallet.Receipt
	Side    string
	Balance string
	Memo    string
	Other   string // the other account
}

// payment is a row of the list of payments.
type payment struct {
	wallet.Receipt
	Memo string
}

// paymentsIn returns the payments of a page.
func paymentsIn(list wallet.PaymentList) (out []payment) {
	for _, e := range list.Events {
		p := payment{Memo: e.Data.Memo}
		_ = json.Unmarshal(e.Data.Receipt, &p.Receipt) // the node's own answer
		out = append(out, p)
	}
	return out
}

func walletPage(v *view) any {
	h, ctx := v.h, v.ctx
	d := walletData{
		Assets: read(h.wallet.Assets(ctx)),
		Ledger: read(h.wallet.LedgerHead(ctx)),
		Name:   strings.TrimSpace(v.in.Get("account")),
		Asset:  v.in.Get("asset"),
		Memo:   strings.TrimSpace(v.in.Get("find")),
		Prefix: strings.TrimSpace(v.in.Get("accounts")),
	}
	d.Pay = payForm{
		From:   cmp.Or(v.in.Get("from"), d.Name),
		To:     v.in.Get("to"),
		Amount: v.in.Get("amount"),
		Memo:   v.in.Get("memo"),
		Ref:    cmp.Or(v.in.Get("reference"), "console-"+secret()[:24]),
		New:    v.refused.At(formPay, "to") != "" || v.in.Get("new") != "",
	}
	d.Units = unitsOf(d.Assets.V)
	if d.Asset == "" && len(d.Assets.V.Assets) > 0 {
		d.Asset = d.Assets.V.Assets[0].Asset
	}
	d.Accounts = read(h.wallet.AccountsIn(ctx, d.Asset, d.Prefix, v.in.Get("after"), accountRows))
	before, _ := strconv.ParseUint(v.in.Get("before"), 10, 64)
	list := read(h.wallet.Payments(ctx, wallet.PaymentsQuery{Memo: d.Memo, Before: before, Limit: paymentRows}))
	d.Payments, d.Before = part[[]payment]{paymentsIn(list.V), list.Fault}, list.V.Next
	if d.Name != "" && d.Asset != "" {
		d.readAccount(v)
	}
	return d
}

// readAccount reads the account that is shown.
func (d *walletData) readAccount(v *view) {
	h, ctx := v.h, v.ctx
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

// formPay is the name of the form that pays.
const formPay = "pay"

// errNewPayee asks about an account that the payment would open.
const errNewPayee = notice("to: There is no such account. Check the name. To open it with this payment, " +
	"tick the box below.")

// postPay pays once for each reference, however often its form is sent: the reference is the
// Idempotency-Key. It pays a new payee only if the form says so.
func (h *Console) postPay(v *view, in url.Values) error {
	refuse := func(status int, text string, err error) error {
		return v.refuse(prefix+"wallet", status, in, refusalOf(formPay, text, err))
	}
	order := wallet.Transfer{
		From:  strings.TrimSpace(in.Get("from")),
		To:    strings.TrimSpace(in.Get("to")),
		Asset: strings.TrimSpace(in.Get("asset")),
		Memo:  in.Get("memo"),
	}
	reference := strings.TrimSpace(in.Get("reference"))
	if reference == "" {
		return refuse(http.StatusBadRequest, "Nothing was sent.", notice("reference: must not be empty"))
	}
	assets, err := h.wallet.Assets(v.ctx)
	if err != nil {
		status := http.StatusBadGateway
		if p := problemOf(err); p != nil {
			status = p.Status
		}
		return refuse(status, "Nothing was sent. The decimals of the amount cannot be read.", err)
	}
	order.AmountMinor, err = unitsOf(assets).Minor(strings.TrimSpace(in.Get("amount")), order.Asset)
	if err != nil {
		return refuse(http.StatusBadRequest, "Nothing was sent.", err)
	}
	pay := h.wallet.TransferExisting
	if in.Get("new") != "" {
		pay = h.wallet.Transfer
	}
	posted, err := pay(v.ctx, reference, order)
	switch p := problemOf(err); {
	case err == nil:
	case p == nil || p.Unknown():
		// the same reference again pays once, whatever became of this one
		again := url.Values{"account": in["from"], "to": in["to"], "asset": in["asset"], "amount": in["amount"],
			"memo": in["memo"], "reference": {reference}, "new": in["new"]}
		return h.render(v.c, http.StatusGatewayTimeout, h.pages.unsure, v.s,
			unsure{explain(err), prefix + "wallet?" + again.Encode()})
	case p.Reason == "payee_unknown":
		return refuse(p.Status, "Nothing was paid.", errNewPayee)
	default:
		return refuse(p.Status, "Nothing was paid.", err)
	}
	return see(v.c, prefix+"wallet/tx?id="+url.QueryEscape(posted.Receipt.TxID))
}

// getFind leads from a text to what it names: a receipt by its id, else payments by their memo.
func (h *Console) getFind(c *httpapi.Request) error {
	text := strings.TrimSpace(c.HTTP().URL.Query().Get("text"))
	if _, err := record.ParseTxID(text); err == nil {
		return see(c, prefix+"wallet/tx?id="+url.QueryEscape(text))
	}
	return see(c, prefix+"wallet?find="+url.QueryEscape(text)+"#payments")
}
