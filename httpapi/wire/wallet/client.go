package wallet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire/ledger"
)

// Client calls the routes of the wallet and of its ledger.
type Client struct{ ledger.Client }

// NewClient returns a Client that calls over c.
func NewClient(c *client.Client) Client { return Client{ledger.NewClient(c)} }

// IdemHeader is the header with the key that the caller of a write chooses. The same request under
// the same key is done once.
const IdemHeader = "Idempotency-Key"

// Prefer: return=minimal asks for an answer to a batch without the receipts (RFC 7240), and
// Preference-Applied says that it is such an answer.
const (
	PreferHeader      = "Prefer"
	PreferMinimal     = "return=minimal"
	PreferenceApplied = "Preference-Applied"
)

// PayeeExisting is the value of ?payee= of a payment that must not open an account.
const PayeeExisting = "existing"

const batchBody = 16 << 20 // an answer of 4096 receipts is some 3 MiB, twice that with the longest names

// Posted is the answer to a write of the wallet.
type Posted struct {
	Raw      []byte // the receipt as the node sent it; a repeated request gets the same bytes
	Receipt  Receipt
	Replayed bool // an earlier request under the same key did it
}

// BatchPosted is the answer to a batch.
type BatchPosted struct {
	Raw      []byte
	Answer   BatchAnswer
	Replayed bool
}

// Issue creates money. As all writes of the wallet it is idempotent under its key: if the outcome
// is not known, the same call returns it.
func (c Client) Issue(ctx context.Context, key string, body Issue) (Posted, error) {
	return c.post(ctx, "issue", key, body)
}

// Transfer moves money from one account to another.
func (c Client) Transfer(ctx context.Context, key string, body Transfer) (Posted, error) {
	return c.post(ctx, "transfer", key, body)
}

// Burn destroys money.
func (c Client) Burn(ctx context.Context, key string, body Burn) (Posted, error) {
	return c.post(ctx, "burn", key, body)
}

// Hold reserves money for a payee.
func (c Client) Hold(ctx context.Context, key string, body Hold) (Posted, error) {
	return c.post(ctx, "hold", key, body)
}

// TransferExisting is Transfer to an account that exists: the node refuses another payee with the
// reason payee_unknown.
func (c Client) TransferExisting(ctx context.Context, key string, body Transfer) (Posted, error) {
	return c.postExisting(ctx, OpTransfer, key, body)
}

// HoldExisting is Hold for a payee that exists: the node refuses another one with the reason
// payee_unknown.
func (c Client) HoldExisting(ctx context.Context, key string, body Hold) (Posted, error) {
	return c.postExisting(ctx, OpHold, key, body)
}

// Capture pays out a hold and ends it.
func (c Client) Capture(ctx context.Context, key string, body Capture) (Posted, error) {
	return c.post(ctx, "capture", key, body)
}

// Release cancels a hold.
func (c Client) Release(ctx context.Context, key string, body Release) (Posted, error) {
	return c.post(ctx, "release", key, body)
}

// SetFlags sets and clears flags of an account.
func (c Client) SetFlags(ctx context.Context, key string, body FlagsChange) (Posted, error) {
	return c.post(ctx, "accounts/flags", key, body)
}

// DeclareAsset declares an asset.
func (c Client) DeclareAsset(ctx context.Context, key string, body AssetDeclare) (Posted, error) {
	return c.post(ctx, "assets", key, body)
}

func (c Client) post(ctx context.Context, what, key string, body any) (Posted, error) {
	return c.posted(ctx, client.Call{Path: "/v1/" + what, Body: body}, key)
}

// postExisting is post with the condition that the payee is known.
func (c Client) postExisting(ctx context.Context, what, key string, body any) (Posted, error) {
	q := client.Query{"payee": {PayeeExisting}}
	return c.posted(ctx, client.Call{Path: "/v1/" + what, Query: q, Body: body}, key)
}

func (c Client) posted(ctx context.Context, k client.Call, key string) (out Posted, err error) {
	out.Raw, out.Replayed, err = c.postRaw(ctx, k, key, &out.Receipt)
	return out, err
}

// Batch carries out many operations in one request. Refused operations are part of the answer, not
// an error.
func (c Client) Batch(ctx context.Context, key string, body Batch) (out BatchPosted, err error) {
	return c.batch(ctx, key, client.Call{Body: body})
}

// BatchMinimal is Batch with an answer of a quarter of the size: each result has a TxID instead of
// a Receipt, and the answer has the root of the batch.
func (c Client) BatchMinimal(ctx context.Context, key string, body Batch) (out BatchPosted, err error) {
	return c.batch(ctx, key, client.Call{Body: body, Header: http.Header{PreferHeader: {PreferMinimal}}})
}

func (c Client) batch(ctx context.Context, key string, k client.Call) (out BatchPosted, err error) {
	k.Path, k.Limit = "/v1/batch", batchBody
	out.Raw, out.Replayed, err = c.postRaw(ctx, k, key, &out.Answer)
	return out, err
}

var errKey = errors.New("idempotency key: must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -")

// postRaw returns the bytes of the answer, and decodes them. If they do not decode the outcome is
// unknown. The node refuses a malformed key; a key that a header cannot carry is refused here.
func (c Client) postRaw(
	ctx context.Context,
	k client.Call,
	key string,
	into any,
) (raw []byte, replayed bool, err error) {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, false, errKey
	}
	if k.Header == nil {
		k.Header = http.Header{}
	}
	k.Header.Set(IdemHeader, key)
	k.Method, k.Into = http.MethodPost, &raw
	h, err := c.Do(ctx, k)
	if err != nil {
		return nil, false, err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return raw, false, fmt.Errorf("%s: %w: the answer is not what this client knows: %w", k, client.ErrUnknown, err)
	}
	return raw, h.Get(client.ReplayHeader) == "true", nil
}

// Balance reads the balance of an account. Unless minSeq is 0, it includes the record minSeq.
func (c Client) Balance(ctx context.Context, account, asset string, minSeq uint64) (Balance, error) {
	q := client.Query{"account": {account}, "asset": {asset}}.Number("min_seq", minSeq)
	return client.Ask[Balance](ctx, c.Client.Client, client.Call{Path: "/v1/balance", Query: q})
}

// Account reads the flags and the nonce of an account.
func (c Client) Account(ctx context.Context, account string) (Account, error) {
	return client.Ask[Account](ctx, c.Client.Client,
		client.Call{Path: "/v1/account", Query: client.Query{"account": {account}}})
}

// Assets lists the assets.
func (c Client) Assets(ctx context.Context) (AssetList, error) {
	return client.Ask[AssetList](ctx, c.Client.Client, client.Call{Path: "/v1/assets"})
}

// Tx reads the receipt of an operation, in the bytes of the first answer.
func (c Client) Tx(ctx context.Context, id string) ([]byte, error) {
	return c.Bytes(ctx, "/v1/tx/"+url.PathEscape(id))
}

// HistoryQuery asks for a page of a statement.
type HistoryQuery struct {
	Account, Asset string
	Cursor         string // of the page before
	Order          string // "desc" or "asc", "" for the node's default
	Limit          int    // 0 for the node's default
	Since, Until   time.Time
}

// History reads a page of a statement.
func (c Client) History(ctx context.Context, h HistoryQuery) (History, error) {
	q := client.Query{"account": {h.Account}, "asset": {h.Asset}}.Page(h.Cursor, h.Limit).Text("order", h.Order).
		Time("since", h.Since).Time("until", h.Until)
	return client.Ask[History](ctx, c.Client.Client, client.Call{Path: "/v1/history", Query: q})
}
