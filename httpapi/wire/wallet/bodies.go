package wallet

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/wire"
)

// Names of the operations of the wallet, in a batch and on a receipt.
const (
	OpIssue    = "issue"
	OpTransfer = "transfer"
	OpBurn     = "burn"
	OpHold     = "hold"
	OpCapture  = "capture"
	OpRelease  = "release"
)

// Issue is the body of POST /v1/issue.
type Issue struct {
	To          string `json:"to" format:"account" example:"bob"`
	Asset       string `json:"asset" format:"asset"`
	AmountMinor string `json:"amount_minor" format:"positive"`
	Nonce       uint64 `json:"nonce,omitzero" min:"1" doc:"of the asset's issuance account: its last nonce plus 1; assigned if it is left out, and then a repetition after idempotency_ttl is a new payment"`
	Memo        string `json:"memo,omitzero" doc:"at most 128 bytes, kept for ever"`
	ValidUntil  string `json:"valid_until,omitzero" format:"instant" doc:"refused from then on"`
	Reference   string `json:"reference,omitzero" doc:"1 to 64 bytes, chosen by the caller and never used again for another operation: the same operation under it is answered as the first time, however late"`
}

// Transfer is the body of POST /v1/transfer.
type Transfer struct {
	From        string `json:"from" format:"account"`
	To          string `json:"to" format:"account" example:"bob"`
	Asset       string `json:"asset" format:"asset"`
	AmountMinor string `json:"amount_minor" format:"positive"`
	Nonce       uint64 `json:"nonce,omitzero" min:"1" doc:"of the account that pays: its last nonce plus 1; assigned if it is left out, and then a repetition after idempotency_ttl is a new payment"`
	Memo        string `json:"memo,omitzero" doc:"at most 128 bytes, kept for ever"`
	ValidUntil  string `json:"valid_until,omitzero" format:"instant" doc:"refused from then on"`
	Reference   string `json:"reference,omitzero" doc:"1 to 64 bytes, chosen by the caller and never used again for another operation: the same operation under it is answered as the first time, however late"`
}

// Burn is the body of POST /v1/burn.
type Burn struct {
	From        string `json:"from" format:"account"`
	Asset       string `json:"asset" format:"asset"`
	AmountMinor string `json:"amount_minor" format:"positive"`
	Nonce       uint64 `json:"nonce,omitzero" min:"1" doc:"of the account that pays: its last nonce plus 1; assigned if it is left out, and then a repetition after idempotency_ttl is a new payment"`
	Memo        string `json:"memo,omitzero" doc:"at most 128 bytes, kept for ever"`
	ValidUntil  string `json:"valid_until,omitzero" format:"instant" doc:"refused from then on"`
	Reference   string `json:"reference,omitzero" doc:"1 to 64 bytes, chosen by the caller and never used again for another operation: the same operation under it is answered as the first time, however late"`
}

// Hold is the body of POST /v1/hold.
type Hold struct {
	From        string `json:"from" format:"account"`
	To          string `json:"to" format:"account" doc:"the account that may capture the hold" example:"bob"`
	Asset       string `json:"asset" format:"asset"`
	AmountMinor string `json:"amount_minor" format:"positive"`
	Nonce       uint64 `json:"nonce,omitzero" min:"1" doc:"of the account that pays: its last nonce plus 1; assigned if it is left out, and then a repetition after idempotency_ttl is a new payment"`
	ExpiresInS  uint64 `json:"expires_in_s" min:"1" max:"2592000" doc:"seconds"`
	Memo        string `json:"memo,omitzero" doc:"at most 128 bytes, kept for ever"`
	ValidUntil  string `json:"valid_until,omitzero" format:"instant" doc:"refused from then on"`
	Reference   string `json:"reference,omitzero" doc:"1 to 64 bytes, chosen by the caller and never used again for another operation: the same operation under it is answered as the first time, however late"`
}

// Capture is the body of POST /v1/capture. It ends the hold; the rest returns to the payer.
type Capture struct {
	Hold        string `json:"hold" format:"txid" doc:"of the hold's receipt"`
	AmountMinor string `json:"amount_minor,omitzero" format:"positive" doc:"by default the whole hold"`
	Reference   string `json:"reference,omitzero" doc:"1 to 64 bytes, chosen by the caller and never used again for another operation: the same operation under it is answered as the first time, however late"`
}

// Release is the body of POST /v1/release.
type Release struct {
	Hold      string `json:"hold" format:"txid" doc:"of the hold's receipt"`
	Reference string `json:"reference,omitzero" doc:"1 to 64 bytes, chosen by the caller and never used again for another operation: the same operation under it is answered as the first time, however late"`
}

// FlagsChange is the body of POST /v1/accounts/flags.
type FlagsChange struct {
	Account string   `json:"account" format:"account"`
	Set     []string `json:"set,omitempty" enum:"frozen|no_debit|no_credit|closed" example:"frozen"`
	Clear   []string `json:"clear,omitempty" enum:"frozen|no_debit|no_credit|closed"`
	New     bool     `json:"new,omitzero" doc:"open an unknown account instead of refusing it with account_unknown"`
}

// AssetDeclare is the body of POST /v1/assets.
type AssetDeclare struct {
	Asset    string `json:"asset" format:"asset"`
	Decimals *int   `json:"decimals,omitzero" min:"0" max:"18" doc:"digits after the point of an amount that people read; set once, also for a known asset that has none"`
}

// Batch is the body of POST /v1/batch, as JSON or CBOR with the same members.
type Batch struct {
	Mode string    `json:"mode" enum:"atomic|independent" doc:"atomic: all operations or none; independent: each operation on its own"`
	Ops  []BatchOp `json:"ops" doc:"1 to 4096, executed in this order"`
}

// BatchOp is one operation of a Batch: op, and the members of that operation's own body.
type BatchOp struct {
	Op          string `json:"op" enum:"issue|transfer|burn|hold|capture|release" example:"transfer"`
	From        string `json:"from,omitzero" format:"account" example:"alice"`
	To          string `json:"to,omitzero" format:"account" example:"bob"`
	Asset       string `json:"asset,omitzero" format:"asset" example:"ron"`
	AmountMinor string `json:"amount_minor,omitzero" format:"positive" example:"1200"`
	Nonce       uint64 `json:"nonce,omitzero" min:"1" example:"1"`
	ExpiresInS  uint64 `json:"expires_in_s,omitzero" min:"1" max:"2592000"`
	Hold        string `json:"hold,omitzero" format:"txid"`
	Memo        string `json:"memo,omitzero"`
	ValidUntil  string `json:"valid_until,omitzero" format:"instant"`
	Reference   string `json:"reference,omitzero"`
}

// BatchAnswer is the answer to Batch. A repeated request gets the same bytes.
type BatchAnswer struct {
	Results []BatchResult `json:"results" doc:"in the order of ops"`
	Root    string        `json:"root,omitzero" format:"b3" doc:"of the batch; in a minimal answer, instead of in the receipts"`
}

// BatchResult is the outcome of one operation: its receipt, or the reason of its refusal.
type BatchResult struct {
	Index   int            `json:"index"`
	Status  int            `json:"status" doc:"the status that the operation would have alone" example:"200"`
	Receipt jsontext.Value `json:"receipt,omitzero" is:"Receipt" doc:"of an executed operation"`
	TxID    string         `json:"txid,omitzero" format:"txid" doc:"of an executed operation, in a minimal answer instead of the receipt"`
	Root    string         `json:"root,omitzero" format:"b3" doc:"in a minimal answer, of an operation that an earlier batch has executed under its reference"`
	Error   *BatchError    `json:"error,omitzero"`
}

// BatchError is the refusal of one operation of a batch.
type BatchError struct {
	Code      string `json:"code" enum:"IDEMPOTENCY_CONFLICT|BAD_REQUEST|ACCOUNT_LOCKED|NONCE_CONFLICT|LIMITS_EXCEEDED|HOLD_NOT_FOUND|HOLD_CLOSED|HOLD_EXPIRED|INSUFFICIENT_FUNDS|ABORTED|REFERENCE_CONFLICT|PERIOD_CLOSED" doc:"more may come"`
	Reason    string `json:"reason" enum:"idem_conflict|expired|account_locked|asset_unknown|nonce_reused|nonce_gap|limit_op|limit_daily|limit_total|limit_holds|hold_unknown|hold_closed|hold_expired|insufficient_funds|aborted|once_conflict|reference_conflict|period_closed" doc:"more may come"`
	Retryable bool   `json:"retryable" doc:"false: only another request with another key can execute the operation; a repetition of this request gets this answer for ever if any of its operations was executed. Answers of earlier releases have true for nonce_gap"`
	Detail    string `json:"detail,omitzero" doc:"of nonce_gap: the next step"`
}

// Receipt describes an operation that was done. Its bytes never change.
type Receipt struct {
	TxID        string    `json:"txid" format:"txid"`
	Op          string    `json:"op" enum:"issue|transfer|burn|hold|capture|release|expire|flags|asset|scale|open|once|batch" example:"transfer"`
	From        string    `json:"from,omitzero" format:"account" example:"alice"`
	To          string    `json:"to,omitzero" format:"account" example:"bob"`
	Asset       string    `json:"asset,omitzero" format:"asset?" example:"ron"`
	AmountMinor string    `json:"amount_minor,omitzero" format:"amount" example:"1200"`
	Decimals    *int      `json:"decimals,omitzero" min:"0" max:"18" doc:"of a scale: the decimals that it has set"`
	Set         []string  `json:"set,omitempty" enum:"frozen|no_debit|no_credit|closed" doc:"flags that POST /v1/accounts/flags has set, and in clear those that it has cleared; receipts of early releases have neither"`
	Clear       []string  `json:"clear,omitempty" enum:"frozen|no_debit|no_credit|closed"`
	Nonce       uint64    `json:"nonce,omitzero" min:"1" example:"1"`
	Idem        string    `json:"idem,omitzero" doc:"the Idempotency-Key of the request"`
	TS          string    `json:"ts" format:"time"`
	ReceiptHash string    `json:"receipt_hash" format:"b3" doc:"hash of the members txid to ts as canonical JSON"`
	Hold        string    `json:"hold,omitzero" format:"txid"`
	Ledger      LedgerRef `json:"ledger"`
}

// LedgerRef is the place of a receipt's record in the ledger.
type LedgerRef struct {
	Seq   uint64 `json:"seq" min:"1"`
	Batch uint64 `json:"batch" min:"1"`
	Root  string `json:"root" format:"b3" doc:"of that batch"`
}

// Balance is the body of GET /v1/balance. An account that does not exist has 0 of everything.
type Balance struct {
	Account     string       `json:"account" format:"account"`
	Asset       string       `json:"asset" format:"asset"`
	Known       bool         `json:"known" doc:"whether the account exists"`
	AmountMinor string       `json:"amount_minor" format:"amount" doc:"amount that can be spent: posted minus held"`
	PostedMinor string       `json:"posted_minor" format:"amount"`
	HeldMinor   string       `json:"held_minor" format:"amount"`
	IssuedMinor string       `json:"issued_minor,omitzero" format:"amount" doc:"of an issuance account, which has no balance: the amount that it has issued"`
	AsOf        wire.Instant `json:"as_of" doc:"time of the ledger when the balance was read"`
	AsOfSeq     uint64       `json:"as_of_seq" doc:"the balance includes all records up to this one"`
	StaleMS     int64        `json:"stale_ms" doc:"always 0, because balances are read from the memory of the ledger"`
}

// AppendJSON appends b as the encoder writes it, in a tenth of the time. Balances are the most
// frequent reads.
func (b *Balance) AppendJSON(dst []byte) []byte {
	text := func(name, v string) {
		// fails only for text that is not UTF-8, and all names are
		dst, _ = jsontext.AppendQuote(append(dst, name...), v)
	}
	text(`{"account":`, b.Account)
	text(`,"asset":`, b.Asset)
	dst = strconv.AppendBool(append(dst, `,"known":`...), b.Known)
	text(`,"amount_minor":`, b.AmountMinor)
	text(`,"posted_minor":`, b.PostedMinor)
	text(`,"held_minor":`, b.HeldMinor)
	if b.IssuedMinor != "" {
		text(`,"issued_minor":`, b.IssuedMinor)
	}
	dst = b.AsOf.UTC().AppendFormat(append(dst, `,"as_of":"`...), wire.InstantLayout)
	dst = strconv.AppendUint(append(dst, `","as_of_seq":`...), b.AsOfSeq, 10)
	dst = strconv.AppendInt(append(dst, `,"stale_ms":`...), b.StaleMS, 10)
	return append(dst, '}')
}

// Account is the body of GET /v1/account.
type Account struct {
	Account   string       `json:"account" format:"account"`
	Known     bool         `json:"known" doc:"whether the account exists"`
	Flags     []string     `json:"flags" enum:"frozen|no_debit|no_credit|closed"`
	LastNonce uint64       `json:"last_nonce" doc:"0 before the first debit"`
	NextNonce uint64       `json:"next_nonce" doc:"nonce of the next debit"`
	OpenedAt  wire.Instant `json:"opened_at,omitzero"`
}

// Asset is one entry of AssetList.
type Asset struct {
	Asset       string       `json:"asset" format:"asset"`
	SupplyMinor string       `json:"supply_minor" format:"amount" doc:"issued and not burned"`
	DeclaredAt  wire.Instant `json:"declared_at,omitzero"`
	Decimals    int          `json:"decimals,omitzero" min:"0" max:"18" doc:"digits after the point of an amount that people read, 0 if they were never set; amounts of the API are always minor units"`
	DecimalsSet bool         `json:"decimals_set,omitzero" doc:"the decimals were set, and will never change"`
}

// AssetList is the body of GET /v1/assets.
type AssetList struct {
	Assets []Asset `json:"assets"`
}

// HistoryEntry is one line of an account's statement.
type HistoryEntry struct {
	Receipt        jsontext.Value `json:"receipt" is:"Receipt"`
	Memo           string         `json:"memo,omitzero"`
	Side           string         `json:"side" enum:"debit|credit" doc:"side of the posting that the account is on"`
	BalanceMinor   string         `json:"balance_minor" format:"amount" doc:"posted balance after it"`
	AvailableMinor string         `json:"available_minor" format:"amount" doc:"amount that could be spent after it"`
}

// History is the body of GET /v1/history.
type History struct {
	Entries []HistoryEntry `json:"entries"`
	Next    string         `json:"next,omitzero" doc:"?cursor= of the next page"`
	Opening *Opening       `json:"opening,omitzero" doc:"the balance before the oldest entry, if older ones are in closed periods; on the page of that entry alone"`
}

// Opening is a balance as the last closed period left it.
type Opening struct {
	Period         uint64       `json:"period" min:"1" doc:"the last closed period"`
	At             wire.Instant `json:"at" doc:"the end of that period"`
	Postings       uint64       `json:"postings" min:"1" doc:"entries of closed periods"`
	PostedMinor    string       `json:"posted_minor" format:"amount"`
	AvailableMinor string       `json:"available_minor" format:"amount" doc:"amount that could be spent"`
}
