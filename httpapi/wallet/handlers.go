package wallet

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	ledgerhttp "ronbox/httpapi/ledger"
	walletapi "ronbox/httpapi/wire/wallet"
)

// handlers serve the routes of the wallet.
type handlers struct{ wal Engine }

const historyPage = 100 // entries, if the query has no limit

// accountOf returns the query parameter account.
func accountOf(c *httpapi.Request) (string, error) {
	return nameOf(c, "account", engines.CheckAccount, ledger.WantAccount)
}

func assetOf(c *httpapi.Request) (string, error) {
	return nameOf(c, "asset", engines.CheckAsset, ledger.WantAsset)
}

func nameOf(c *httpapi.Request, param string, check func(string) error, want string) (string, error) {
	if !c.Query().Has(param) {
		return "", httpapi.BadQuery(param, ledger.WantMember)
	}
	v := c.Query().Get(param)
	if check(v) != nil {
		return "", httpapi.BadQuery(param, want)
	}
	return v, nil
}

// accountAsset returns the query parameters account and asset.
func accountAsset(c *httpapi.Request) (account, asset string, err error) {
	if account, err = accountOf(c); err == nil {
		asset, err = assetOf(c)
	}
	return account, asset, err
}

// errNeverThatFar is returned for a min_seq that a ledger in safe mode does not reach.
var errNeverThatFar = errors.New("min_seq will not be reached")

// getBalance serves GET /v1/balance.
func (h handlers) getBalance(c *httpapi.Request) error {
	account, asset, err := accountAsset(c)
	if err != nil {
		return err
	}
	minSeq, err := c.Number("min_seq", 0, 1, httpapi.MaxNumber)
	if err != nil {
		return err
	}
	b, err := h.wal.Balance(c.Context(), c.Actor(), account, asset, minSeq)
	if minSeq > 0 && errors.Is(err, ledger.ErrSafeMode) && !unreadable(err) {
		return fmt.Errorf("%w: %w", errNeverThatFar, err)
	}
	if err != nil {
		return err
	}
	out := walletapi.Balance{
		Account:     account,
		Asset:       asset,
		Known:       b.Known,
		AmountMinor: b.Available.String(),
		PostedMinor: b.Posted.String(),
		HeldMinor:   b.Held.String(),
		AsOf:        ledgerhttp.Instant(b.At),
		AsOfSeq:     b.Seq,
	}
	if !b.Issued.IsZero() {
		out.IssuedMinor = b.Issued.String()
	}
	return c.Send(http.StatusOK, httpapi.CacheNone, append(out.AppendJSON(make([]byte, 0, balanceSize)), '\n'))
}

// balanceSize is enough for a balance with ordinary names and amounts, bytes.
const balanceSize = 320

// getAccount serves GET /v1/account.
func (h handlers) getAccount(c *httpapi.Request) error {
	account, err := accountOf(c)
	if err != nil {
		return err
	}
	a, err := h.wal.Account(c.Context(), c.Actor(), account)
	if err != nil {
		return err
	}
	out := walletapi.Account{
		Account:   account,
		Known:     a.Known,
		Flags:     append([]string{}, a.Flags.Names()...),
		LastNonce: a.LastNonce,
		NextNonce: a.NextNonce,
	}
	if a.Known {
		out.OpenedAt = ledgerhttp.Instant(a.OpenedAt)
	}
	return c.Respond(http.StatusOK, out)
}

// getAssets serves GET /v1/assets.
func (h handlers) getAssets(c *httpapi.Request) error {
	all, err := h.wal.Assets(c.Context(), c.Actor())
	if err != nil {
		return err
	}
	out := walletapi.AssetList{Assets: make([]walletapi.Asset, len(all))}
	for i, a := range all {
		out.Assets[i] = walletapi.Asset{
			Asset:       a.Asset,
			SupplyMinor: a.Issued.String(),
			DeclaredAt:  ledgerhttp.Instant(a.DeclaredAt),
			Decimals:    a.Decimals,
			DecimalsSet: a.Scaled,
		}
	}
	return c.Respond(http.StatusOK, out)
}

// getTx serves GET /v1/tx/:txid, in the bytes of the first answer.
func (h handlers) getTx(c *httpapi.Request) error {
	body, err := h.wal.Tx(c.Context(), c.Actor(), ledgerhttp.TxParam(c))
	if err != nil {
		return err
	}
	return c.Send(http.StatusOK, httpapi.CacheNone, body)
}

// getHistory serves GET /v1/history.
func (h handlers) getHistory(c *httpapi.Request) error {
	q, err := historyQuery(c)
	if err != nil {
		return err
	}
	page, err := h.wal.History(c.Context(), c.Actor(), q)
	if err != nil {
		return err
	}
	out := walletapi.History{Entries: make([]walletapi.HistoryEntry, len(page.Entries)), Next: page.Next}
	for i := range page.Entries {
		out.Entries[i] = historyEntry(&page.Entries[i])
	}
	return c.Respond(http.StatusOK, out)
}

func historyEntry(e *ledger.Entry) walletapi.HistoryEntry {
	side := "credit"
	if e.Debit {
		side = "debit"
	}
	return walletapi.HistoryEntry{
		Receipt:        e.Receipt.AppendJSON(nil),
		Memo:           e.Memo,
		Side:           side,
		BalanceMinor:   e.Posted.String(),
		AvailableMinor: e.Available.String(),
	}
}

func historyQuery(c *httpapi.Request) (q ledger.HistoryQuery, err error) {
	if q.Account, q.Asset, err = accountAsset(c); err != nil {
		return q, err
	}
	limit, err := c.Number("limit", historyPage, 1, ledger.MaxHistory)
	if err != nil {
		return q, err
	}
	q.Limit, q.Cursor, q.NewestFirst = int(limit), c.Query().Get("cursor"), true
	switch order := c.Query().Get("order"); {
	case order == "asc":
		q.NewestFirst = false
	case order != "desc" && c.Query().Has("order"):
		return q, httpapi.BadQuery("order", "must be asc or desc")
	}
	if q.Since, err = timeOf(c, "since"); err == nil {
		q.Until, err = timeOf(c, "until")
	}
	return q, err
}

// timeOf returns a query parameter in Unix ns, 0 if it is absent.
func timeOf(c *httpapi.Request, param string) (int64, error) {
	if !c.Query().Has(param) {
		return 0, nil
	}
	at, ok := parseInstant(c.Query().Get(param))
	if !ok {
		return 0, httpapi.BadQuery(param, ledger.WantTime)
	}
	return at.UnixNano(), nil
}

// postOrder serves POST /v1/issue, transfer, burn, hold, capture and release.
func (h handlers) postOrder(op record.Op) httpapi.Handler {
	return func(c *httpapi.Request) error {
		key, err := idempotencyKey(c)
		if err != nil {
			return err
		}
		if payee := c.Query().Get("payee"); payee != walletapi.PayeeExisting && c.Query().Has("payee") {
			return httpapi.BadQuery("payee", "must be "+walletapi.PayeeExisting)
		}
		order, err := readOrder(c.Body(), op)
		if err != nil {
			return err
		}
		return h.post(c, key, order)
	}
}

// post has the wallet carry out a well-formed order, if it takes writes now.
func (h handlers) post(c *httpapi.Request, key string, order ledger.Op) error {
	if err := h.wal.WriteReady(); err != nil {
		return err
	}
	do := h.wal.Post
	if c.Query().Has("payee") {
		do = h.wal.PostExisting
	}
	a, err := do(c.Context(), c.Actor(), key, c.CorrID(), order)
	if err != nil {
		return refused(c, order, err)
	}
	return sendAnswer(c, a)
}

// refused adds the order to a refusal by the rules.
func refused(c *httpapi.Request, order ledger.Op, err error) error {
	var r *ledger.Reject
	if !errors.As(err, &r) {
		return err
	}
	e := &refusedError{order: order, owner: mayDebit(c, order), Reject: r}
	var at *wallet.IndexError
	if errors.As(err, &at) {
		return &wallet.IndexError{Index: at.Index, Err: e}
	}
	return e
}

// mayDebit reports whether the caller has the right to such an order: to the debited account or, of
// an issue, to the credited one.
func mayDebit(c *httpapi.Request, o ledger.Op) bool {
	account := o.From
	if o.Code == record.OpIssue {
		account = o.To
	}
	actor := c.Actor()
	return actor.May(service+"."+o.Code.String()) && actor.Grant.Account(account) == nil &&
		actor.Grant.Asset(o.Asset) == nil
}

// postBatch serves POST /v1/batch.
func (h handlers) postBatch(c *httpapi.Request) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	read := readBatch
	if c.MediaType() == httpapi.TypeCBOR {
		read = readCBOR
	}
	b, err := read(c.Body())
	if err != nil {
		return err
	}
	if err := h.wal.WriteReady(); err != nil {
		return err
	}
	a, err := h.wal.Batch(c.Context(), c.Actor(), key, c.CorrID(), b.Mode == "atomic", b.Ops)
	if err != nil {
		return refused(c, b.blamed(err), err)
	}
	return sendAnswer(c, a)
}

// blamed returns the operation that err is about, or a zero one.
func (b *batch) blamed(err error) ledger.Op {
	var at *wallet.IndexError
	if errors.As(err, &at) && at.Index >= 0 && at.Index < len(b.Ops) {
		return b.Ops[at.Index]
	}
	return ledger.Op{}
}

// postFlags serves POST /v1/accounts/flags.
func (h handlers) postFlags(c *httpapi.Request) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var in walletapi.FlagsChange
	if err := c.Decode(&in); err != nil {
		return err
	}
	order, err := flagsOrder(in)
	if err != nil {
		return err
	}
	if err := h.wal.WriteReady(); err != nil {
		return err
	}
	a, err := h.wal.SetFlags(c.Context(), c.Actor(), key, c.CorrID(), order, in.New)
	if err != nil {
		return refused(c, order, err)
	}
	return sendAnswer(c, a)
}

func flagsOrder(in walletapi.FlagsChange) (ledger.Op, error) {
	out := ledger.Op{Code: record.OpFlags, From: in.Account}
	var err error
	if engines.CheckAccount(in.Account) != nil {
		return out, httpapi.BadBody("account", ledger.WantAccount)
	}
	if out.Set, err = flagSet("set", in.Set); err != nil {
		return out, err
	}
	if out.Clear, err = flagSet("clear", in.Clear); err != nil {
		return out, err
	}
	if wrong, reason := ledger.Check(&out, out.Has()); wrong != 0 {
		return out, httpapi.BadBody(wrong.First(), reason)
	}
	return out, nil
}

func flagSet(field string, names []string) (set record.Flags, err error) {
	for i, name := range names {
		f, err := record.ParseFlags(name)
		if err != nil || f == 0 {
			return 0, httpapi.BadBody(field+"."+strconv.Itoa(i), "must be one of frozen, no_debit, no_credit, closed")
		}
		set |= f
	}
	return set, nil
}

// postAsset serves POST /v1/assets.
func (h handlers) postAsset(c *httpapi.Request) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var in walletapi.AssetDeclare
	if err := c.Decode(&in); err != nil {
		return err
	}
	if engines.CheckAsset(in.Asset) != nil {
		return httpapi.BadBody("asset", ledger.WantAsset)
	}
	if n := in.Decimals; n != nil && (*n < 0 || *n > engines.MaxDecimals) {
		return httpapi.BadBody("decimals", ledger.WantDecimals)
	}
	if err := h.wal.WriteReady(); err != nil {
		return err
	}
	a, err := h.wal.DeclareAsset(c.Context(), c.Actor(), key, c.CorrID(), in.Asset, in.Decimals)
	if err != nil {
		return err
	}
	return sendAnswer(c, a)
}
