package wallet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

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

// Query parameters of the reads of an account.
var (
	accountParam = httpapi.Checked(httpapi.Text("account", "its name").Required(), accountPattern,
		ledger.WantAccount, passes(engines.CheckAccount))
	assetParam = httpapi.Checked(httpapi.Text("asset", "its name").Required(), assetPattern,
		ledger.WantAsset, passes(engines.CheckAsset))
	minSeq = httpapi.Number("min_seq", 0, 1, httpapi.MaxNumber,
		"wait until the ledger has this record: ledger.seq of a receipt")

	historyLimit  = httpapi.Number("limit", historyPage, 1, ledger.MaxHistory, "entries of a page")
	historyCursor = httpapi.Text("cursor",
		"next of the previous page; it is valid for the same query only, and new entries do not shift it")
	historySince = httpapi.Time("since", "RFC 3339 time; only entries at or after it")
	historyUntil = httpapi.Time("until", "RFC 3339 time; only entries before it")
	historyOrder = httpapi.Enum("order", "desc", "desc: newest first; asc: oldest first", "desc", "asc")
)

// payeeParam is the query parameter of payments.
var payeeParam = httpapi.Enum("payee", "",
	"existing: refuse with payee_unknown to open an account for the payee. It is a condition, and not a part of the "+
		"request: a repetition is answered as the first time", walletapi.PayeeExisting)

// passes returns a condition that holds if check returns nil.
func passes(check func(string) error) func(string) bool {
	return func(v string) bool { return check(v) == nil }
}

// accountAsset returns the query parameters account and asset.
func accountAsset(c *httpapi.Request) (account, asset string, err error) {
	account, err = accountParam.Of(c)
	asset, errAsset := assetParam.Of(c)
	return account, asset, cmp.Or(err, errAsset)
}

// errNeverThatFar is returned for a min_seq that a ledger in safe mode does not reach.
var errNeverThatFar = errors.New("min_seq will not be reached")

// getBalance serves GET /v1/balance.
func (h handlers) getBalance(c *httpapi.Request) error {
	account, asset, err := accountAsset(c)
	from, errFrom := minSeq.Of(c)
	if err := cmp.Or(err, errFrom); err != nil {
		return err
	}
	b, err := h.wal.Balance(c.Context(), c.Actor(), account, asset, from)
	if from > 0 && errors.Is(err, ledger.ErrSafeMode) && !unreadable(err) {
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
	account, err := accountParam.Of(c)
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
	if o := page.Opening; o != nil {
		out.Opening = &walletapi.Opening{
			Period: o.Period, At: ledgerhttp.Instant(o.At), Postings: o.Postings, PostedMinor: o.Posted.String(),
			AvailableMinor: o.Available.String(),
		}
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
	limit, err := historyLimit.Of(c)
	cursor, errCursor := historyCursor.Of(c)
	order, errOrder := historyOrder.Of(c)
	since, errSince := historySince.Of(c)
	until, errUntil := historyUntil.Of(c)
	q.Limit, q.Cursor, q.Since, q.Until, q.NewestFirst = int(limit), cursor, since, until, order != "asc"
	return q, cmp.Or(err, errCursor, errOrder, errSince, errUntil)
}

// postPayment serves POST /v1/transfer and hold, which may refuse to open the payee.
func (h handlers) postPayment(op record.Op) httpapi.Handler {
	return func(c *httpapi.Request) error {
		payee, err := payeeParam.Of(c)
		if err != nil {
			return err
		}
		if payee == walletapi.PayeeExisting {
			return h.order(c, op, h.wal.PostExisting)
		}
		return h.order(c, op, h.wal.Post)
	}
}

// postOrder serves POST /v1/issue, burn, capture and release.
func (h handlers) postOrder(op record.Op) httpapi.Handler {
	return func(c *httpapi.Request) error { return h.order(c, op, h.wal.Post) }
}

// poster is Writer.Post or PostExisting.
type poster func(ctx context.Context, by engines.Actor, key, corrID string, r ledger.Op) (wallet.Answer, error)

// order reads an order and has the wallet carry it out, if it takes writes now.
func (h handlers) order(c *httpapi.Request, op record.Op, do poster) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	order, err := readOrder(c.Body(), op)
	if err != nil {
		return err
	}
	if err := h.wal.WriteReady(); err != nil {
		return err
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
	if a.Batch && prefersMinimal(c.HeaderLines(walletapi.PreferHeader)) {
		return sendMinimal(c, a)
	}
	return sendAnswer(c, a)
}

// prefersMinimal reports whether the first preference "return" of the lines of Prefer is minimal
// (RFC 7240). Other preferences are ignored, as are those that are malformed.
func prefersMinimal(lines []string) bool {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			one, _, _ = strings.Cut(one, ";")
			name, value, _ := strings.Cut(one, "=")
			if strings.EqualFold(strings.TrimSpace(name), "return") {
				return strings.Trim(strings.TrimSpace(value), `"`) == "minimal"
			}
		}
	}
	return false
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
	if r, ok := errors.AsType[*ledger.Reject](err); ok && r.Code == record.PeriodClosed {
		return &declaredError{r}
	}
	if err != nil {
		return err
	}
	return sendAnswer(c, a)
}
