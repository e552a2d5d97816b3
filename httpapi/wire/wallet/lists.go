package wallet

import (
	"context"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// HoldInfo is the body of GET /v1/holds/:txid, and one entry of HoldList.
type HoldInfo struct {
	TxID          string       `json:"txid" format:"txid"`
	From          string       `json:"from" format:"account" example:"alice"`
	To            string       `json:"to" format:"account" example:"bob"`
	Asset         string       `json:"asset" format:"asset"`
	AmountMinor   string       `json:"amount_minor" format:"amount" doc:"amount set aside"`
	At            wire.Instant `json:"at"`
	ExpiresAt     wire.Instant `json:"expires_at"`
	State         string       `json:"state" enum:"open|captured|released|expired"`
	CapturedMinor string       `json:"captured_minor,omitzero" format:"amount" doc:"amount paid, if the hold was captured"`
	ReturnedMinor string       `json:"returned_minor,omitzero" format:"amount" doc:"amount returned to the payer, if the hold has ended"`
	ClosedAt      wire.Instant `json:"closed_at,omitzero"`
	ClosingTxID   string       `json:"closing_txid,omitzero" format:"txid" doc:"the transaction that ended the hold"`
}

// HoldList is the body of GET /v1/holds.
type HoldList struct {
	Holds []HoldInfo `json:"holds"`
	Next  string     `json:"next,omitzero" doc:"?after= of the next page"`
}

// AccountInfo is one entry of AccountList.
type AccountInfo struct {
	Account  string       `json:"account" format:"account"`
	Flags    []string     `json:"flags" enum:"frozen|no_debit|no_credit|closed"`
	OpenedAt wire.Instant `json:"opened_at,omitzero"`

	AmountMinor string `json:"amount_minor,omitzero" format:"amount" doc:"if the request names an asset: amount that can be spent, posted minus held"`
	PostedMinor string `json:"posted_minor,omitzero" format:"amount"`
	HeldMinor   string `json:"held_minor,omitzero" format:"amount"`
}

// AccountList is the body of GET /v1/accounts.
type AccountList struct {
	Accounts []AccountInfo `json:"accounts"`
	Next     string        `json:"next,omitzero" doc:"?after= of the next page"`
}

// EventPrefix begins the type of an Event, which ends with the op of its receipt.
const EventPrefix = "wallet."

// Event is one payment, as GET /v1/payments lists it and GET /v1/events sends it.
type Event struct {
	Type      string       `json:"type" enum:"wallet.issue|wallet.transfer|wallet.burn|wallet.hold|wallet.capture|wallet.release|wallet.expire" example:"wallet.transfer"`
	Timestamp wire.Instant `json:"timestamp" doc:"ts of the receipt"`
	Data      Payment      `json:"data"`
}

// Payment is the data of an Event.
type Payment struct {
	Seq     uint64         `json:"seq" min:"1" doc:"its record in the ledger, the id of the event"`
	Receipt jsontext.Value `json:"receipt" is:"Receipt" doc:"the bytes of GET /v1/tx/{txid}"`
	Memo    string         `json:"memo,omitzero"`
}

// PaymentList is the body of GET /v1/payments.
type PaymentList struct {
	Events   []Event `json:"events" doc:"newest first"`
	Next     uint64  `json:"next,omitzero" doc:"?before= of the next page; absent at the end"`
	FirstSeq uint64  `json:"first_seq,omitzero" doc:"the oldest record that is there, if older ones are in closed periods; on the last page alone"`
}

// PaymentsQuery selects payments. Members that are zero select any.
type PaymentsQuery struct {
	Account, Asset string
	Ops            string // separated by commas
	Memo           string // a part of the memo; not of a stream
	Before         uint64 // record; not of a stream
	Limit          int    // 0 for the node's own; not of a stream
}

func (p *PaymentsQuery) query() client.Query {
	return client.Query{}.Text("account", p.Account).Text("asset", p.Asset).Text("op", p.Ops)
}

// Payments reads a page of the payments, newest first.
func (c Client) Payments(ctx context.Context, p PaymentsQuery) (PaymentList, error) {
	q := p.query().Text("memo", p.Memo).Number("before", p.Before).Number("limit", uint64(p.Limit))
	return client.Ask[PaymentList](ctx, c.Client.Client, client.Call{Path: "/v1/payments", Query: q})
}

// Events calls each for the payments after the last one that o names, and then for new ones. An
// event without a name says that all payments up to its id were sent. It ends as client.Follow
// does.
func (c Client) Events(
	ctx context.Context,
	p PaymentsQuery,
	o client.StreamOptions,
	each func(client.Event) error,
) error {
	return c.Follow(ctx, client.Feed{Path: "/v1/events", Query: p.query(), Bare: true}, o, each)
}

// Holds reads a page of an account's open holds; limit 0 is the node's own.
func (c Client) Holds(ctx context.Context, account, after string, limit int) (HoldList, error) {
	q := client.Query{"account": {account}}.Text("after", after).Number("limit", uint64(limit))
	return client.Ask[HoldList](ctx, c.Client.Client, client.Call{Path: "/v1/holds", Query: q})
}

// HoldInfo reads a hold and what became of it.
func (c Client) HoldInfo(ctx context.Context, txid string) (HoldInfo, error) {
	return client.Ask[HoldInfo](ctx, c.Client.Client, client.Call{Path: "/v1/holds/" + url.PathEscape(txid)})
}

// Accounts reads a page of the accounts with names that begin with prefix. If limit is 0, the node
// uses its default.
func (c Client) Accounts(ctx context.Context, prefix, after string, limit int) (AccountList, error) {
	return c.AccountsIn(ctx, "", prefix, after, limit)
}

// AccountsIn is Accounts with the balances in an asset.
func (c Client) AccountsIn(ctx context.Context, asset, prefix, after string, limit int) (AccountList, error) {
	q := client.Query{}.Text("prefix", prefix).Text("after", after).Number("limit", uint64(limit)).Text("asset", asset)
	return client.Ask[AccountList](ctx, c.Client.Client, client.Call{Path: "/v1/accounts", Query: q})
}

// Reference reads the receipt of the operation with a reference of a principal. If principal is "",
// it is the caller.
func (c Client) Reference(ctx context.Context, principal, reference string) (raw []byte, err error) {
	q := client.Query{"reference": {reference}}.Text("principal", principal)
	_, err = c.Do(ctx, client.Call{Path: "/v1/tx", Query: q, Into: &raw})
	return raw, err
}
