package wallet

import (
	"context"
	"net/url"

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
}

// AccountList is the body of GET /v1/accounts.
type AccountList struct {
	Accounts []AccountInfo `json:"accounts"`
	Next     string        `json:"next,omitzero" doc:"?after= of the next page"`
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
	q := client.Query{}.Text("prefix", prefix).Text("after", after).Number("limit", uint64(limit))
	return client.Ask[AccountList](ctx, c.Client.Client, client.Call{Path: "/v1/accounts", Query: q})
}

// Reference reads the receipt of the operation with a reference of a principal. If principal is "",
// it is the caller.
func (c Client) Reference(ctx context.Context, principal, reference string) (raw []byte, err error) {
	q := client.Query{"reference": {reference}}.Text("principal", principal)
	_, err = c.Do(ctx, client.Call{Path: "/v1/tx", Query: q, Into: &raw})
	return raw, err
}
