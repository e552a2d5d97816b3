package wallet

import (
	"context"
	"net/http"
	"slices"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	ledgerhttp "ronbox/httpapi/ledger"
	"ronbox/httpapi/openapi"
	walletapi "ronbox/httpapi/wire/wallet"
)

// Writer carries out requests that change the ledger. key is the Idempotency-Key. Each call waits
// for its outcome until ctx ends.
type Writer interface {
	// WriteReady returns why writes cannot be taken now, or nil. It does not wait.
	WriteReady() error
	Post(ctx context.Context, by engines.Actor, key, corrID string, r ledger.Op) (wallet.Answer, error)
	// PostExisting is Post that does not open the payee.
	PostExisting(ctx context.Context, by engines.Actor, key, corrID string, r ledger.Op) (wallet.Answer, error)
	Batch(ctx context.Context, by engines.Actor, key, corrID string, atomic bool,
		ops []ledger.Op) (wallet.Answer, error)
	SetFlags(ctx context.Context, by engines.Actor, key, corrID string, op ledger.Op, opens bool) (wallet.Answer, error)
	DeclareAsset(ctx context.Context, by engines.Actor, key, corrID, asset string, decimals *int) (wallet.Answer,
		error)
}

// Reader answers the reads of /v1 that are about accounts.
type Reader interface {
	Balance(ctx context.Context, by engines.Actor, account, asset string, minSeq uint64) (ledger.BalanceView, error)
	Account(ctx context.Context, by engines.Actor, account string) (wallet.Account, error)
	Assets(ctx context.Context, by engines.Actor) ([]ledger.AssetView, error)
	Tx(ctx context.Context, by engines.Actor, id record.TxID) ([]byte, error)
	History(ctx context.Context, by engines.Actor, q ledger.HistoryQuery) (ledger.Page, error)
	Lister
}

// Engine is the interface of the wallet and of its ledger that the routes need.
type Engine interface {
	Writer
	Reader
	Payments
	ledgerhttp.Engine
}

const (
	service = "wallet"
	prefix  = "/v1/"

	scopeAdmin = service + ".admin"

	accountPattern = "^[A-Za-z0-9:/_-]{1,256}$"
	assetPattern   = "^[a-z0-9]{1,16}$"
)

// New returns the wallet's part of the HTTP surface, with that of its ledger.
func New(e Engine) httpapi.Service {
	h := handlers{e}
	return httpapi.Service{
		Name:     service,
		Prefix:   prefix,
		Errors:   errorMaps(),
		Refusals: walletapi.Refusals,
		Routes: slices.Concat(h.reads(), h.writes(), ledgerhttp.Routes(e),
			[]httpapi.Route{h.streamPayments()}),
		Params:        ledgerhttp.Params(),
		RetryAfter:    2, // the wallet's watchdog looks at the ledger every 25 ms
		TimeoutStatus: http.StatusServiceUnavailable,
		RateHeader:    true,
	}
}

func (h handlers) reads() []httpapi.Route {
	ok := func(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }
	return httpapi.Routes(
		ledgerhttp.Read,
		httpapi.Route{
			Pattern: "balance",
			Handle:  h.getBalance,
			ID:      "getBalance",
			Summary: "The balance of an account in an asset",
			Answers: ok(walletapi.Balance{}),
			Query:   httpapi.Params(accountParam, assetParam, minSeq),
		},
		httpapi.Route{
			Pattern: "account",
			Handle:  h.getAccount,
			ID:      "getAccount",
			Summary: "Flags and nonce of an account",
			Answers: ok(walletapi.Account{}),
			Query:   httpapi.Params(accountParam),
		},
		httpapi.Route{
			Pattern:  "tx/:txid",
			Handle:   h.getTx,
			ID:       "getTransaction",
			Summary:  "The receipt of a transaction",
			Answers:  ok(walletapi.Receipt{}),
			Problems: []int{http.StatusNotFound, http.StatusGone},
		},
		httpapi.Route{
			Pattern:  "history",
			Handle:   h.getHistory,
			ID:       "getHistory",
			Summary:  "The statement of an account",
			Answers:  ok(walletapi.History{}),
			Problems: []int{http.StatusGone},
			Query: httpapi.Params(accountParam, assetParam, historyLimit, historyCursor, historySince, historyUntil,
				historyOrder),
		},
		httpapi.Route{
			Pattern: "assets",
			Handle:  h.getAssets,
			AnyOf:   append([]string{service + ".read"}, batchScopes()...),
			ID:      "listAssets",
			Summary: "The declared assets",
			Answers: ok(walletapi.AssetList{}),
		},
		h.oneReference(), h.listHolds(), h.oneHold(), h.listAccounts(), h.listPayments(),
	)
}

func (h handlers) writes() []httpapi.Route {
	order := func(op record.Op, id, summary, doc string, in any) httpapi.Route {
		return httpapi.Route{
			Pattern: op.String(),
			Handle:  h.postOrder(op),
			ID:      id,
			Summary: summary,
			Doc:     doc + " An amount is bounded by wallet.max_amount_per_op and wallet.daily_ceiling.",
			In:      in,
			Answers: written(walletapi.Receipt{}),
		}
	}
	pays := func(op record.Op, id, summary, doc string, in any) httpapi.Route {
		r := order(op, id, summary, doc, in)
		r.Query, r.Handle = httpapi.Params(payeeParam), h.postPayment(op)
		return r
	}
	release := order(record.OpRelease, "releaseHold", "Release a hold",
		"Gives the whole amount of an open hold back to the payer.", walletapi.Release{})
	release.AnyOf = []string{service + ".release", scopeAdmin}
	some := httpapi.Answers(http.StatusMultiStatus, walletapi.BatchAnswer{})
	some[0].Doc, some[0].Headers = "some or all operations were refused", []openapi.Param{replayed()}
	batched := append(written(walletapi.BatchAnswer{}), some...)
	for i := range batched {
		batched[i].Headers = append(batched[i].Headers, openapi.Param{
			Name: walletapi.PreferenceApplied,
			Doc:  "the results have no receipts, as " + walletapi.PreferHeader + " asked",
			Enum: []string{walletapi.PreferMinimal},
		})
	}
	return httpapi.Routes(write,
		order(record.OpIssue, "issue", "Issue money",
			"Credits an account, which it opens if necessary, and adds to the supply of the asset.", walletapi.Issue{}),
		pays(record.OpTransfer, "transfer", "Move money between accounts",
			"Debits one account and credits another, which it opens unless payee=existing. A payment cannot be "+
				"taken back.",
			walletapi.Transfer{}),
		order(record.OpBurn, "burn", "Destroy money",
			"Debits an account and takes from the supply of the asset.", walletapi.Burn{}),
		pays(record.OpHold, "hold", "Set money aside for a payee",
			"Moves an amount from what is available to what is held, until the hold is captured, released or expires.",
			walletapi.Hold{}),
		order(record.OpCapture, "captureHold", "Pay out a hold, fully or partly",
			"Pays the payee of an open hold, and gives the rest back to the payer. It closes the hold.",
			walletapi.Capture{}),
		release,
		httpapi.Route{Pattern: "batch", Handle: h.postBatch, AnyOf: batchScopes(), Body: httpapi.EitherBody,
			ID: "executeBatch", Summary: "Execute many operations in one request",
			Doc: "Executes up to wallet.batch_max_ops operations in their order: all or none if the mode is " +
				"atomic, else each by itself.",
			In: walletapi.Batch{}, Answers: batched, Expose: []string{walletapi.PreferenceApplied},
			Headers: []openapi.Param{{
				Name: walletapi.PreferHeader,
				Doc: walletapi.PreferMinimal + ": the results have no receipts, only their txids, and the " +
					"answer has the root of the batch; other preferences are ignored (RFC 7240)",
			}}},
		httpapi.Route{Pattern: "accounts/flags", Endpoint: "flags", Handle: h.postFlags, Scope: scopeAdmin,
			ID: "setAccountFlags", Summary: "Set or clear the flags of an account",
			Doc: "Sets and clears flags, such as the lock of an account. It opens an account only if the body " +
				"says so.",
			In: walletapi.FlagsChange{}, Answers: written(walletapi.Receipt{})},
		httpapi.Route{Pattern: "assets", Endpoint: "assets", Handle: h.postAsset, Scope: scopeAdmin,
			ID: "declareAsset", Summary: "Declare an asset, or set its decimals",
			Doc: "Declares an asset for ever, or sets the decimals of one that has none. Decimals cannot be " +
				"changed.",
			In: walletapi.AssetDeclare{}, Answers: written(walletapi.Receipt{})},
	)
}

// write fills in the fields that all writes share.
func write(r *httpapi.Route) {
	httpapi.Write(prefix, service)(r)
	r.Reloads = true
	r.Doc += " A repetition with the same Idempotency-Key and body gets the answer of the first; the key with " +
		"another body is refused as idem_conflict."
	r.Headers = append(r.Headers, openapi.Param{
		Name: walletapi.IdemHeader,
		Doc: "chosen by the caller, a new one for each new request; a request that is repeated with its key " +
			"is executed once",
		Pattern:  `^("[A-Za-z0-9._:-]{1,64}"|[A-Za-z0-9._:-]{1,64})$`,
		Required: true,
	})
	r.Problems = []int{
		http.StatusForbidden,
		http.StatusNotFound,
		http.StatusConflict,
		http.StatusGone,
		http.StatusUnprocessableEntity,
		http.StatusInsufficientStorage,
	}
}

// batchScopes returns the scopes of the operations that a batch may hold.
func batchScopes() []string {
	var out []string
	for _, op := range []record.Op{
		record.OpIssue, record.OpTransfer, record.OpBurn, record.OpHold, record.OpCapture, record.OpRelease,
	} {
		out = append(out, service+"."+op.String())
	}
	return append(out, scopeAdmin)
}

// written returns the declaration of the answer to a write.
func written(body any) []openapi.Answer {
	a := httpapi.Answers(http.StatusOK, body)
	a[0].Headers = []openapi.Param{replayed()}
	return a
}

func replayed() openapi.Param {
	return httpapi.Replayed("true: an earlier request did it, and this is its answer")
}
