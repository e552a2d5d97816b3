package httpapi

import (
	"net/http"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

const (
	accountPattern = "^[A-Za-z0-9:/_-]{1,256}$"
	assetPattern   = "^[a-z0-9]{1,16}$"
)

func accountParam() openapi.Param {
	return openapi.Param{Name: "account", Doc: "its name", Pattern: accountPattern, Required: true}
}

func assetParam() openapi.Param {
	return openapi.Param{Name: "asset", Doc: "its name", Pattern: assetPattern, Required: true}
}

// rateHeaders are what the answers of the wallet tell of the caller's own rate, where it has one.
func rateHeaders() []openapi.Param {
	return []openapi.Param{
		{Name: rateHeader, Doc: "limit, requests that may come at once; remaining, those left now; reset, seconds until all are there again",
			Pattern: `^limit=\d+, remaining=\d+, reset=\d+$`},
	}
}

// rated is an answer of the wallet.
func rated(status int, body any) openapi.Answer {
	a := answers(status, body)
	a.Headers = rateHeaders()
	return a
}

// walletRead is what the reads of the wallet have in common.
func walletRead(pattern, summary string, h handler, body any) Route {
	return Route{
		Method: http.MethodGet, Pattern: walletPrefix + pattern, Service: serviceWallet, Scope: scopeRead, Class: ClassRead,
		Deadline: defaultDeadline, Endpoint: endpointRead, Summary: summary, Answers: []openapi.Answer{rated(http.StatusOK, body)},
		handle: h,
	}
}

const (
	scopeRead   = serviceWallet + ".read"
	scopeWallet = serviceWallet + ".admin"
	scopeExport = "ledger.export"
)

func (s *Server) walletReads() []Route {
	w := s.d.Wallet
	balance := walletRead("balance", "What an account has in an asset", getBalance(w), wire.Balance{})
	balance.Query = []openapi.Param{accountParam(), assetParam(),
		{Name: "min_seq", Doc: "wait until this record is in it: ledger.seq of a receipt", Sample: uint64(0), Min: 1, Max: maxVersion}}
	account := walletRead("account", "Flags and nonce of an account", getAccount(w), wire.Account{})
	account.Query = []openapi.Param{accountParam()}
	tx := walletRead("tx/:txid", "The receipt of what was done", getTx(w), wire.Receipt{})
	tx.Problems = []int{http.StatusNotFound}
	history := walletRead("history", "An account's statement", getHistory(w), wire.History{})
	history.Query = []openapi.Param{accountParam(), assetParam(),
		{Name: "limit", Doc: "entries of a page", Sample: uint64(0), Min: 1, Max: ledger.MaxHistory},
		{Name: "cursor", Doc: "next of the page before; it belongs to its query, and new entries do not move it"},
		{Name: "since", Doc: "RFC 3339 time of the first entry"}, {Name: "until", Doc: "RFC 3339 time before which the last one is"},
		{Name: "order", Doc: "newest first, or oldest", Enum: []string{"desc", "asc"}},
	}
	return []Route{
		balance, account, tx, history,
		walletRead("assets", "The assets there are", getAssets(w), wire.AssetList{}),
	}
}

func (s *Server) walletWrites() []Route {
	w := s.d.Wallet
	order := func(op record.Op, summary string, in any) Route {
		return walletWrite(op.String(), op.String(), summary, in, postOrder(w, op))
	}
	release := order(record.OpRelease, "Give a hold up", wire.Release{})
	release.Scope, release.AnyOf = "", []string{serviceWallet + ".release", scopeWallet}
	batch := walletWrite("batch", "batch", "Many operations in one request", wire.Batch{}, postBatch(w))
	batch.Scope, batch.AnyOf, batch.Body = "", batchScopes(), EitherBody
	some := rated(http.StatusMultiStatus, wire.BatchAnswer{})
	some.Doc, some.Headers = "some of the operations, or all, were refused", append(some.Headers, replayed())
	batch.Answers = []openapi.Answer{writeAnswer(wire.BatchAnswer{}), some}
	flags := walletWrite("accounts/flags", "admin", "Lock an account, or open it again", wire.FlagsChange{}, postFlags(w))
	flags.Endpoint = "flags"
	asset := walletWrite("assets", "admin", "Declare an asset", wire.AssetDeclare{}, postAsset(w))
	asset.Endpoint = "assets"
	return []Route{
		order(record.OpIssue, "Make money", wire.Issue{}),
		order(record.OpTransfer, "Pay", wire.Transfer{}),
		order(record.OpBurn, "Unmake money", wire.Burn{}),
		order(record.OpHold, "Set money aside for a payee", wire.Hold{}),
		order(record.OpCapture, "Pay out a hold, whole or in part", wire.Capture{}),
		release, batch, flags, asset,
	}
}

// batchScopes are the scopes of the operations that a batch may hold.
func batchScopes() []string {
	var out []string
	for _, op := range []record.Op{record.OpIssue, record.OpTransfer, record.OpBurn, record.OpHold, record.OpCapture, record.OpRelease} {
		out = append(out, serviceWallet+"."+op.String())
	}
	return append(out, scopeWallet)
}

// walletWrite is what the writes of the wallet have in common.
func walletWrite(pattern, verb, summary string, in any, h handler) Route {
	return Route{
		Method: http.MethodPost, Pattern: walletPrefix + pattern, Service: serviceWallet, Scope: serviceWallet + "." + verb, Class: ClassWrite,
		Deadline: defaultDeadline, Reloads: true, Endpoint: verb, Body: JSONBody, In: in, Summary: summary,
		Headers: []openapi.Param{{
			Name: idemHeader, Doc: "of the caller's choosing, one for each new request; the same request under the same key is done once",
			Pattern: `^("[A-Za-z0-9._:-]{1,64}"|[A-Za-z0-9._:-]{1,64})$`, Required: true,
		}},
		Answers: []openapi.Answer{writeAnswer(wire.Receipt{})},
		Problems: []int{
			http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusInsufficientStorage,
		},
		handle: h,
	}
}

func writeAnswer(body any) openapi.Answer {
	a := rated(http.StatusOK, body)
	a.Headers = append(a.Headers, replayed())
	return a
}

func replayed() openapi.Param {
	return openapi.Param{Name: replayedHeader, Doc: "true: an earlier request did it, and this is its answer", Enum: []string{"true"}}
}
