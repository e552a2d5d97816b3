package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
)

const historyPage = 100 // entries, if nobody says how many

// account is the query parameter that names one.
func (c *call) account() (string, error) {
	return c.name("account", engines.CheckAccount, wantAccount)
}

func (c *call) asset() (string, error) { return c.name("asset", engines.CheckAsset, wantAsset) }

func (c *call) name(param string, check func(string) error, want string) (string, error) {
	if !c.query.Has(param) {
		return "", &QueryError{param, wantThere}
	}
	v := c.query.Get(param)
	if check(v) != nil {
		return "", &QueryError{param, want}
	}
	return v, nil
}

// accountAsset are the two that a balance or a statement is of.
func (c *call) accountAsset() (account, asset string, err error) {
	if account, err = c.account(); err == nil {
		asset, err = c.asset()
	}
	return account, asset, err
}

// errNeverThatFar is a wait for a record that a ledger in safe mode does not write.
var errNeverThatFar = errors.New("min_seq will not be reached")

// getBalance serves GET /v1/balance.
func getBalance(w WalletReader) handler {
	return func(c *call) error {
		account, asset, err := c.accountAsset()
		if err != nil {
			return err
		}
		minSeq, err := c.number("min_seq", 0, maxVersion)
		if err != nil {
			return err
		}
		b, err := w.Balance(c.context(), c.actor, account, asset, minSeq)
		if minSeq > 0 && errors.Is(err, ledger.ErrSafeMode) && !unreadable(err) {
			return fmt.Errorf("%w: %w", errNeverThatFar, err)
		}
		if err != nil {
			return err
		}
		out := wire.Balance{
			Account: account, Asset: asset, AmountMinor: b.Available.String(), PostedMinor: b.Posted.String(), HeldMinor: b.Held.String(),
			AsOf: instant(b.At), AsOfSeq: b.Seq, StaleMS: b.Stale.Milliseconds(),
		}
		if !b.Issued.IsZero() {
			out.IssuedMinor = b.Issued.String()
		}
		return c.send(http.StatusOK, cacheNone, append(out.AppendJSON(make([]byte, 0, balanceSize)), '\n'))
	}
}

// balanceSize holds a balance of ordinary names and amounts; a longer one grows.
const balanceSize = 320

// instant is a time of the ledger as people are told it: to the millisecond, as on receipts.
func instant(ns int64) time.Time {
	return time.Unix(0, ns).UTC().Truncate(time.Millisecond)
}

// getAccount serves GET /v1/account.
func getAccount(w WalletReader) handler {
	return func(c *call) error {
		account, err := c.account()
		if err != nil {
			return err
		}
		a, err := w.Account(c.context(), c.actor, account)
		if err != nil {
			return err
		}
		out := wire.Account{
			Account: account, Known: a.Known, Flags: append([]string{}, a.Flags.Names()...), LastNonce: a.LastNonce, NextNonce: a.NextNonce,
		}
		if a.Known {
			out.OpenedAt = instant(a.OpenedAt)
		}
		return respond(c, http.StatusOK, out)
	}
}

// getAssets serves GET /v1/assets.
func getAssets(w WalletReader) handler {
	return func(c *call) error {
		all, err := w.Assets(c.context(), c.actor)
		if err != nil {
			return err
		}
		out := wire.AssetList{Assets: make([]wire.Asset, len(all))}
		for i, a := range all {
			out.Assets[i] = wire.Asset{Asset: a.Asset, SupplyMinor: a.Issued.String(), DeclaredAt: instant(a.DeclaredAt)}
		}
		return respond(c, http.StatusOK, out)
	}
}

// tx is the path parameter, whose spelling the router has checked.
func (c *call) tx() record.TxID {
	id, _ := record.ParseTxID(c.param(paramTx))
	return id
}

// getTx serves GET /v1/tx/:txid: the bytes that were the answer when it was done.
func getTx(w WalletReader) handler {
	return func(c *call) error {
		body, err := w.Tx(c.context(), c.actor, c.tx())
		if err != nil {
			return err
		}
		return c.send(http.StatusOK, cacheNone, body)
	}
}

// getHistory serves GET /v1/history.
func getHistory(w WalletReader) handler {
	return func(c *call) error {
		q, err := c.historyQuery()
		if err != nil {
			return err
		}
		page, err := w.History(c.context(), c.actor, q)
		if err != nil {
			return err
		}
		out := wire.History{Entries: make([]wire.HistoryEntry, len(page.Entries)), Next: page.Next}
		for i := range page.Entries {
			out.Entries[i] = historyEntry(&page.Entries[i])
		}
		return respond(c, http.StatusOK, out)
	}
}

func historyEntry(e *ledger.Entry) wire.HistoryEntry {
	side := "credit"
	if e.Debit {
		side = "debit"
	}
	return wire.HistoryEntry{
		Receipt: e.Receipt.AppendJSON(nil), Memo: e.Memo, Side: side, BalanceMinor: e.Posted.String(), AvailableMinor: e.Available.String(),
	}
}

func (c *call) historyQuery() (q ledger.HistoryQuery, err error) {
	if q.Account, q.Asset, err = c.accountAsset(); err != nil {
		return q, err
	}
	limit, err := c.number("limit", historyPage, ledger.MaxHistory)
	if err != nil {
		return q, err
	}
	q.Limit, q.Cursor, q.NewestFirst = int(limit), c.query.Get("cursor"), true
	switch order := c.query.Get("order"); {
	case order == "asc":
		q.NewestFirst = false
	case order != "desc" && c.query.Has("order"):
		return q, &QueryError{"order", "must be asc or desc"}
	}
	if q.Since, err = c.time("since"); err == nil {
		q.Until, err = c.time("until")
	}
	return q, err
}

// time reads an instant in Unix nanoseconds, 0 for none.
func (c *call) time(param string) (int64, error) {
	if !c.query.Has(param) {
		return 0, nil
	}
	at, ok := parseInstant(c.query.Get(param))
	if !ok {
		return 0, &QueryError{param, wantTime}
	}
	return at.UnixNano(), nil
}
