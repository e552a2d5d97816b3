package httpapi_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	"ronbox/httpapi/inflate"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// toldCase is one way to meet a row of the wallet's table of refusals.
type toldCase struct {
	doc     string
	ask     func(*rig) *httptest.ResponseRecorder
	status  int
	reason  string
	retry   bool
	details httpapi.Details // exactly
	says    string          // part of the detail text
}

// caused returns the case with a cause in its details.
func caused(cause string, c toldCase) toldCase {
	c.details = maps.Clone(c.details)
	if c.details == nil {
		c.details = httpapi.Details{}
	}
	c.details["cause"] = cause
	return c
}

// payWith pays while the wallet answers with err.
func payWith(err error) func(*rig) *httptest.ResponseRecorder {
	return func(r *rig) *httptest.ResponseRecorder {
		r.wal.set(err)
		return r.do("POST", "/v1/transfer", someTransfer, writer)
	}
}

func refusedBy(code record.Result) error {
	return fmt.Errorf("post: %w", &ledger.Reject{Code: code})
}

// asked is a request that no engine sees.
func asked(method, path, body string, h header) func(*rig) *httptest.ResponseRecorder {
	return func(r *rig) *httptest.ResponseRecorder { return r.do(method, path, body, h) }
}

func gated(g httpapi.Gate) func(*rig) *httptest.ResponseRecorder {
	return func(r *rig) *httptest.ResponseRecorder {
		r.SetGate(g)
		return r.do("POST", "/v1/transfer", someTransfer, writer)
	}
}

// twice pays within limits, and again.
func twice(l httpapi.Limits) func(*rig) *httptest.ResponseRecorder {
	return func(r *rig) *httptest.ResponseRecorder {
		r.SetLimits(serviceWallet, l)
		r.do("POST", "/v1/transfer", someTransfer, writer)
		return r.do("POST", "/v1/transfer", someTransfer, writer)
	}
}

func badCases() []toldCase {
	bad := func(doc, field, reason string, ask func(*rig) *httptest.ResponseRecorder) toldCase {
		c := toldCase{doc: doc, ask: ask, status: 400, reason: reason}
		if field != "" {
			c.details = httpapi.Details{"field": field}
			c.says = field
		}
		return c
	}
	noKey := header{"Authorization": "Bearer good", "Idempotency-Key": ""}
	media := bad("another media type", "", httpapi.ReasonMediaType,
		asked("POST", "/v1/transfer", "x", header{"Authorization": "Bearer good", "Content-Type": "text/plain"}))
	media.status = 415
	beyond := bad("beyond the ledger", "", "malformed", func(r *rig) *httptest.ResponseRecorder {
		r.wal.set(fmt.Errorf("consistency: %w", ledger.ErrRange))
		return r.do("GET", "/v1/ledger/consistency?from=1&to=99", "", writer)
	})
	beyond.details = httpapi.Details{"cause": "range"}
	return []toldCase{
		bad("no JSON", "", httpapi.ReasonSchema, asked("POST", "/v1/transfer", "{", writer)),
		bad("an unknown member", "x", httpapi.ReasonSchema, asked("POST", "/v1/transfer", `{"x":1}`, writer)),
		bad(
			"a wrong amount",
			"amount_minor",
			httpapi.ReasonSchema,
			asked("POST", "/v1/transfer", `{"amount_minor":5}`, writer),
		),
		bad("a wrong nonce", "nonce", httpapi.ReasonSchema, asked("POST", "/v1/transfer", `{"nonce":0}`, writer)),
		bad("a wrong account", "from", httpapi.ReasonSchema, asked("POST", "/v1/transfer", `{"from":"a b"}`, writer)),
		bad("from is to", "to", httpapi.ReasonSchema,
			asked("POST", "/v1/transfer", strings.Replace(someTransfer, "bob", "alice", 1), writer)),
		bad("no key", "Idempotency-Key", httpapi.ReasonBadHeader, asked("POST", "/v1/transfer", someTransfer, noKey)),
		bad("a wrong query", "account", httpapi.ReasonMalformed, asked("GET", "/v1/account?account=a%20b", "", writer)),
		bad("no txid at all", "txid", httpapi.ReasonMalformed, asked("GET", "/v1/tx/tx_x", "", writer)),
		bad("no txid at all, without a token", "txid", httpapi.ReasonMalformed,
			asked("GET", "/v1/tx/tx_x/proof", "", nil)),
		bad("no such parameter", "user", httpapi.ReasonMalformed, asked("GET", "/v1/account?user=a", "", writer)),
		bad("another payee", "payee", httpapi.ReasonMalformed,
			asked("POST", "/v1/transfer?payee=new", someTransfer, writer)),
		bad("an empty payee", "payee", httpapi.ReasonMalformed, asked("POST", "/v1/hold?payee=", someTransfer, writer)),
		bad("the payee of an issue", "payee", httpapi.ReasonMalformed,
			asked("POST", "/v1/issue?payee=existing", someTransfer, writer)),
		bad("valid_until is past", "valid_until", "expired", payWith(refusedBy(record.Expired))),
		bad("no such asset", "asset", "asset_unknown", payWith(refusedBy(record.AssetUnknown))),
		bad("what the wallet finds", "to", "malformed", payWith(&wallet.FieldError{Field: "to", Reason: "is odd"})),
		bad("a cursor of another query", "cursor", "malformed", func(r *rig) *httptest.ResponseRecorder {
			r.wal.set(ledger.ErrCursor)
			return r.do("GET", "/v1/history?account=a&asset=ron&cursor=x", "", writer)
		}),
		beyond,
		bad("a body that inflates by too much", "", httpapi.ReasonRatioCap, func(r *rig) *httptest.ResponseRecorder {
			body := `{"memo":"` + strings.Repeat("a", 100_000) + `"}`
			return r.do("POST", "/v1/transfer", gzipped(r.t, body),
				header{"Authorization": "Bearer good", "Content-Encoding": "gzip"})
		}),
		media,
	}
}

func deniedCases() []toldCase {
	return []toldCase{
		{
			doc:    "no token",
			ask:    asked("POST", "/v1/transfer", someTransfer, nil),
			status: 401,
			reason: httpapi.ReasonUnauth,
		},
		{
			doc:     "a token of another scope",
			ask:     asked("POST", "/v1/transfer", someTransfer, header{"Authorization": "Bearer bad"}),
			status:  403,
			reason:  httpapi.ReasonForbidden,
			details: httpapi.Details{"scope": "wallet.transfer"},
			says:    "needs the scope wallet.transfer",
		},
		{
			doc:     "an operation of a batch without its scope",
			ask:     payWith(&wallet.IndexError{Index: 2, Err: &wallet.ScopeError{Scope: "wallet.issue"}}),
			status:  403,
			reason:  httpapi.ReasonForbidden,
			details: httpapi.Details{"scope": "wallet.issue", "index": 2.0},
			says:    "needs the scope wallet.issue",
		},
		{
			doc:     "another account",
			ask:     payWith(&engines.GrantError{Caveat: "account", Reason: "is another one"}),
			status:  403,
			reason:  httpapi.ReasonForbidden,
			details: httpapi.Details{"caveats": []any{"account"}},
			says:    "by its caveat account",
		},
		{
			doc: "another account in a batch",
			ask: payWith(
				&wallet.IndexError{Index: 3, Err: &engines.GrantError{Caveat: "account", Reason: "is another one"}},
			),
			status:  403,
			reason:  httpapi.ReasonForbidden,
			details: httpapi.Details{"caveats": []any{"account"}, "index": 3.0},
		},
		{
			doc:    "a token too narrow",
			ask:    payWith(wallet.ErrForbidden),
			status: 403,
			reason: httpapi.ReasonForbidden,
			says:   "token inspect",
		},
		{
			doc:     "a system account",
			ask:     payWith(fmt.Errorf("to: %w", wallet.ErrSystemAccount)),
			status:  403,
			reason:  httpapi.ReasonForbidden,
			details: httpapi.Details{"cause": "system_account"},
			says:    "no request pays from or to one",
		},
	}
}

func limitCases() []toldCase {
	limit := func(doc, reason, which string, status int, ask func(*rig) *httptest.ResponseRecorder) toldCase {
		return toldCase{
			doc:     doc,
			ask:     ask,
			status:  status,
			reason:  reason,
			details: httpapi.Details{"limit": which},
		}
	}
	reject := func(code record.Result, which string) func(*rig) *httptest.ResponseRecorder {
		return payWith(&ledger.Reject{Code: code, Limit: which})
	}
	return []toldCase{
		limit("one operation", "limit_op", "per_op", 403, reject(record.LimitOp, "per_op")),
		limit("a day", "limit_daily", "daily", 403, reject(record.LimitDaily, "daily")),
		limit("a day of the token", "limit_daily", "token_daily", 403, reject(record.LimitDaily, "token_daily")),
		limit("the receiver", "limit_total", "account_total", 403, reject(record.LimitTotal, "account_total")),
		limit("open holds", "limit_holds", "open_holds", 403, reject(record.LimitHolds, "open_holds")),
		caused("token", limit("the token's ceiling", "limits_exceeded", "ceiling", 403,
			payWith(&engines.GrantError{Caveat: "ceiling", Reason: "is lower"}))),
		limit("the wallet's own", "limits_exceeded", "batch_max_ops", 403,
			payWith(&wallet.LimitError{Limit: "batch_max_ops"})),
		caused("batch", limit("a batch", "limits_exceeded", "batch_max_ops", 403,
			asked("POST", "/v1/batch", batchOf("atomic", 4096+1), writer))),
		limit(
			"a body",
			httpapi.ReasonBodyCap,
			"body",
			413,
			asked("POST", "/v1/transfer", `{"memo":"`+strings.Repeat("a", 2<<20)+`"}`, writer),
		),
	}
}

func conflictCases() []toldCase {
	id, _ := record.ParseTxID(txid)
	clash := func(doc, reason string, retry bool, d httpapi.Details, err error) toldCase {
		return toldCase{doc: doc, ask: payWith(err), status: 409, reason: reason, retry: retry, details: d}
	}
	other := func(scope string, g *engines.Grant, err error) func(*rig) *httptest.ResponseRecorder {
		return func(r *rig) *httptest.ResponseRecorder {
			r.Deps().Auth = granted{[]string{scope}, g}
			r.wal.set(err)
			return r.do("POST", "/v1/batch", batchOf("atomic", 2), writer)
		}
	}
	reused := &ledger.Reject{Code: record.NonceReused, Expected: 7, Committed: id}
	taken := clash("a key of another request", "idem_conflict", false, nil,
		refusedBy(record.IdemConflict))
	taken.status = 422
	inBatch := func(err error) error { return &wallet.IndexError{Index: 1, Err: err} }
	return []toldCase{
		clash("a payer nobody knows", "insufficient_funds", false,
			httpapi.Details{"asset": "ron", "field": "from", "cause": "account_unknown"},
			&ledger.Reject{Code: record.InsufficientFunds, Unknown: true}),
		clash("too little", "insufficient_funds", false, httpapi.Details{"asset": "ron"},
			refusedBy(record.InsufficientFunds)),
		clash("a nonce again", "nonce_reused", false,
			httpapi.Details{"field": "nonce", "expected_nonce": 7.0, "committed_txid": txid}, reused),
		clash("a nonce ahead", "nonce_gap", true,
			httpapi.Details{"field": "nonce", "expected_nonce": 7.0},
			&ledger.Reject{Code: record.NonceGap, Expected: 7}),
		{
			doc:     "a nonce of someone else's account",
			ask:     other("wallet.transfer", grantOf("bob"), inBatch(reused)),
			status:  409,
			reason:  "nonce_reused",
			details: httpapi.Details{"field": "nonce", "index": 1.0},
		},
		{doc: "a nonce by who may not pay", ask: other("wallet.burn", nil, inBatch(reused)), status: 409,
			reason: "nonce_reused", details: httpapi.Details{"field": "nonce", "index": 1.0}},
		{
			doc:     "a nonce in a batch",
			ask:     other("wallet.transfer", grantOf("alice"), inBatch(reused)),
			status:  409,
			reason:  "nonce_reused",
			details: httpapi.Details{"field": "nonce", "index": 1.0, "expected_nonce": 7.0, "committed_txid": txid},
		},
		{doc: "the nonce of an issue", ask: func(r *rig) *httptest.ResponseRecorder {
			r.Deps().Auth = granted{[]string{"wallet.issue"}, grantOf("bob")}
			r.wal.set(reused)
			return r.do("POST", "/v1/issue", `{"to":"bob","asset":"ron","amount_minor":"5","nonce":1}`, writer)
		}, status: 409, reason: "nonce_reused",
			details: httpapi.Details{"field": "nonce", "expected_nonce": 7.0, "committed_txid": txid}},
		clash("a hold again", "hold_closed", false, nil, refusedBy(record.HoldClosed)),
		clash("a hold too late", "hold_expired", false, nil, refusedBy(record.HoldExpired)),
		clash("a flag", "account_locked", false, nil, refusedBy(record.AccountLocked)),
		clash("a flag of the payer", "account_locked", false, httpapi.Details{"field": "from"},
			&ledger.Reject{Code: record.AccountLocked, Party: "from"}),
		clash("a flag of the payee", "account_locked", false, httpapi.Details{"field": "to"},
			&ledger.Reject{Code: record.AccountLocked, Party: "to"}),
		{doc: "a reader ahead of the ledger", ask: func(r *rig) *httptest.ResponseRecorder {
			r.SetLimits(serviceWallet, httpapi.Limits{Inflight: 9, Streams: someStreams()})
			return r.do("GET", "/v1/events?after=4", "", writer)
		}, status: 409, reason: "seq_ahead", details: httpapi.Details{"head_seq": 3.0}},
		clash("the same key under way", "idem_in_flight", true, nil, wallet.ErrInFlight),
		taken,
	}
}

func goneCases() []toldCase {
	closed := &ledger.ClosedError{
		Period: 3, ToSeq: 70, ToAt: 1_767_225_600_123_456_789, File: "/mnt/periods/period-000003.ndjson.zst", FirstSeq: 91,
	}
	details := httpapi.Details{
		"period": 3.0, "to_seq": 70.0, "to_at": "2026-01-01T00:00:00.123Z", "file": "period-000003.ndjson.zst",
	}
	with := func(more httpapi.Details) httpapi.Details {
		d := maps.Clone(details)
		maps.Copy(d, more)
		return d
	}
	gone := func(doc, says string, d httpapi.Details, ask func(*rig) *httptest.ResponseRecorder) toldCase {
		return toldCase{doc: doc, ask: ask, status: 410, reason: "period_closed", details: d, says: says}
	}
	const paid, elsewhere = "Do not pay it again", "Begin a list with record details.first_seq"
	again := &ledger.Reject{Code: record.PeriodClosed, Closed: closed}
	return []toldCase{
		gone("a reference of a closed period", paid, details, payWith(fmt.Errorf("post: %w", again))),
		gone("such a reference in an atomic batch", paid, with(httpapi.Details{"index": 1.0}),
			func(r *rig) *httptest.ResponseRecorder {
				r.wal.set(&wallet.IndexError{Index: 1, Err: again})
				return r.do("POST", "/v1/batch", batchOf("atomic", 2), writer)
			}),
		gone("a record of a closed period", elsewhere, with(httpapi.Details{"first_seq": 91.0, "cause": "read"}),
			func(r *rig) *httptest.ResponseRecorder {
				r.wal.set(fmt.Errorf("tx: %w", closed))
				return r.do("GET", "/v1/tx/"+txid, "", writer)
			}),
		gone("an asset of a closed period", "The asset is declared", with(httpapi.Details{"cause": "declared"}),
			func(r *rig) *httptest.ResponseRecorder {
				r.wal.set(fmt.Errorf("declare: %w", again))
				return r.do("POST", "/v1/assets", `{"asset":"ron"}`, writer)
			}),
		{
			doc: "a period that is not closed", status: 404, reason: "not_found", says: "No period with this number",
			details: httpapi.Details{"cause": "period"},
			ask: func(r *rig) *httptest.ResponseRecorder {
				return r.do("GET", "/v1/ledger/periods/7", "", writer)
			},
		},
	}
}

func laterCases() []toldCase {
	busy := func(doc, reason string, ask func(*rig) *httptest.ResponseRecorder) toldCase {
		return toldCase{doc: doc, ask: ask, status: 429, reason: reason, retry: true}
	}
	later := func(doc, reason string, d httpapi.Details, ask func(*rig) *httptest.ResponseRecorder) toldCase {
		return toldCase{doc: doc, ask: ask, status: 503, reason: reason, retry: true, details: d}
	}
	none := func(cause string) httpapi.Details { return httpapi.Details{"cause": cause, "outcome": "none"} }
	return []toldCase{
		busy("work_tx is full", httpapi.ReasonBusy, payWith(fmt.Errorf("post: %w", flow.ErrBusy))),
		busy("too many in flight", httpapi.ReasonInflight, func(r *rig) *httptest.ResponseRecorder {
			r.SetLimits(serviceWallet, httpapi.Limits{})
			return r.do("POST", "/v1/transfer", someTransfer, writer)
		}),
		busy("too many a second", httpapi.ReasonRate,
			twice(httpapi.Limits{Inflight: 9, PerPrincipal: httpapi.Rate{1, 1}})),
		later("no leader", httpapi.ReasonNotLeader, httpapi.Details{"outcome": "none"},
			payWith(&wallet.OutcomeError{Cause: fmt.Errorf("submit: %w", store.ErrNotLeader)})),
		later("not ready", httpapi.ReasonDegraded, none(wallet.CauseLedger), func(r *rig) *httptest.ResponseRecorder {
			r.wal.notReady = &wallet.NotReadyError{Cause: wallet.CauseLedger, Detail: "slow"}
			return r.do("POST", "/v1/transfer", someTransfer, writer)
		}),
		later("too late in the queue", httpapi.ReasonTimeout, none(wallet.CauseDeadline),
			payWith(&wallet.NotReadyError{Cause: wallet.CauseDeadline})),
		later(
			"not that far",
			httpapi.ReasonTimeout,
			httpapi.Details{"cause": "min_seq", "field": "min_seq", "reached_seq": 3.0},
			func(r *rig) *httptest.ResponseRecorder {
				r.wal.set(&wallet.BehindError{Want: 9, Have: 3})
				return r.do("GET", "/v1/balance?account=a&asset=ron&min_seq=9", "", writer)
			},
		),
		later("the ledger loads", httpapi.ReasonDegraded, none(wallet.CauseStarting), payWith(ledger.ErrLoading)),
		later("the deadline", httpapi.ReasonTimeout, httpapi.Details{"outcome": "none"},
			payWith(context.DeadlineExceeded)),
		later("the client went", httpapi.ReasonCanceled, httpapi.Details{"outcome": "none"}, payWith(context.Canceled)),
		later("the queue is closed", httpapi.ReasonDraining, nil, payWith(flow.ErrClosed)),
		later("draining", httpapi.ReasonDraining, nil, gated(httpapi.GateDraining)),
		later(
			"starting",
			httpapi.ReasonDegraded,
			httpapi.Details{"cause": "starting"},
			func(r *rig) *httptest.ResponseRecorder {
				r.Reopen()
				return r.do("GET", "/v1/balance?account=a&asset=ron", "", writer)
			},
		),
		later("restored", httpapi.ReasonRestored, httpapi.Details{"cause": httpapi.ReasonRestored},
			payWith(store.ErrRestored)),
	}
}

func gravestCases() []toldCase {
	gone := func(doc, outcome string, err error) toldCase {
		return toldCase{
			doc:     doc,
			ask:     payWith(err),
			status:  503,
			reason:  "upstream",
			retry:   true,
			details: httpapi.Details{"outcome": outcome},
		}
	}
	unsure := gone("the store's word is out", "unknown", flow.ErrUnknown)
	unsure.reason, unsure.says = httpapi.ReasonCommitUnsure, "same request again"
	failed := gone("the store failed", "unknown", store.ErrPoisoned)
	failed.reason, failed.says = httpapi.ReasonStoreFailed, "same request"
	unknown := gone("no answer of the ledger", "unknown",
		&wallet.OutcomeError{Unknown: true, Cause: context.DeadlineExceeded})
	unknown = caused("outcome_unknown", unknown)
	unknown.says = "same Idempotency-Key"
	lost := gone("no answer below", "unknown", &ledger.UnavailableError{Unknown: true, Cause: context.DeadlineExceeded})
	lost = caused("outcome_unknown", lost)
	lost.says = "same Idempotency-Key"
	absent := func(doc, reason string, ask func(*rig) *httptest.ResponseRecorder) toldCase {
		return toldCase{doc: doc, ask: ask, status: 404, reason: reason}
	}
	return []toldCase{
		unsure,
		failed,
		unknown,
		lost,
		gone("the breaker is open", "none", &wallet.OutcomeError{Cause: ledger.ErrUnavailable}),
		gone("retries are spent", "none", &ledger.UnavailableError{Cause: context.DeadlineExceeded}),
		{
			doc:     "safe mode",
			ask:     payWith(ledger.ErrSafeMode),
			status:  503,
			reason:  "upstream",
			retry:   true,
			details: httpapi.Details{"cause": "safe_mode", "outcome": "none"},
			says:    "ledger verify",
		},
		{doc: "safe mode, before it is begun", ask: func(r *rig) *httptest.ResponseRecorder {
			r.wal.notReady = ledger.ErrSafeMode
			return r.do("POST", "/v1/transfer", someTransfer, writer)
		}, status: 503, reason: "upstream", retry: true, details: httpapi.Details{"cause": "safe_mode", "outcome": "none"}, says: "ledger rebuild"},
		{doc: "a damaged record", ask: func(r *rig) *httptest.ResponseRecorder {
			r.wal.set(fmt.Errorf("tx: %w: %w", ledger.ErrSafeMode, store.ErrCorrupt))
			return r.do("GET", "/v1/tx/"+txid, "", writer)
		}, status: 503, reason: "upstream", retry: true, details: httpapi.Details{"cause": "safe_mode", "outcome": "none"}, says: "has to read is damaged"},
		{doc: "a wait for a record in safe mode", ask: func(r *rig) *httptest.ResponseRecorder {
			r.wal.set(fmt.Errorf("balance: %w", ledger.ErrSafeMode))
			return r.do("GET", "/v1/balance?account=a&asset=ron&min_seq=9", "", writer)
		}, status: 503, reason: "upstream", retry: true, details: httpapi.Details{"cause": "safe_mode", "field": "min_seq"}, says: "without it the balance is read as it stands"},
		{doc: "a damaged record on the way to min_seq", ask: func(r *rig) *httptest.ResponseRecorder {
			r.wal.set(fmt.Errorf("balance: %w: %w", ledger.ErrSafeMode, store.ErrCorrupt))
			return r.do("GET", "/v1/balance?account=a&asset=ron&min_seq=9", "", writer)
		}, status: 503, reason: "upstream", retry: true, details: httpapi.Details{"cause": "safe_mode", "outcome": "none"}, says: "has to read is damaged"},
		absent("no such txid", httpapi.ReasonNotFound, func(r *rig) *httptest.ResponseRecorder {
			r.wal.set(fmt.Errorf("tx: %w", wallet.ErrNotFound))
			return r.do("GET", "/v1/tx/"+txid, "", writer)
		}),
		{
			doc:    "another method",
			ask:    asked("GET", "/v1/transfer", "", writer),
			status: 405,
			reason: httpapi.ReasonMethod,
		},
		{doc: "flags of no account", ask: func(r *rig) *httptest.ResponseRecorder {
			r.wal.set(fmt.Errorf("flags: %w", wallet.ErrUnknownAccount))
			return r.do("POST", "/v1/accounts/flags", `{"account":"tpyo","set":["frozen"]}`, writer)
		}, status: 404, reason: "account_unknown", details: httpapi.Details{"field": "account"}, says: `"new":true`},
		{doc: "a payee of no account", ask: func(r *rig) *httptest.ResponseRecorder {
			r.wal.set(fmt.Errorf("transfer: %w", wallet.ErrUnknownPayee))
			return r.do("POST", "/v1/transfer?payee=existing", someTransfer, writer)
		}, status: 404, reason: "payee_unknown", details: httpapi.Details{"field": "to"}, says: "payee=existing"},
		caused("no_route",
			absent("no such path", httpapi.ReasonNotFound, asked("POST", "/v1/mint", "", writer))),
		absent("no such hold", "hold_unknown", payWith(refusedBy(record.HoldUnknown))),
		{
			doc:    "no room",
			ask:    payWith(ledger.ErrFull),
			status: 507,
			reason: httpapi.ReasonStoreFull,
			retry:  true,
		},
		{
			doc:    "no room below",
			ask:    payWith(store.ErrFull),
			status: 507,
			reason: httpapi.ReasonStoreFull,
			retry:  true,
		},
		{
			doc:    "a damaged row",
			ask:    payWith(fmt.Errorf("secret: %w", store.ErrCorrupt)),
			status: 500,
			reason: httpapi.ReasonCorrupt,
		},
		{
			doc:    "a bug",
			ask:    payWith(fmt.Errorf("secret: %w", store.ErrInternal)),
			status: 500,
			reason: httpapi.ReasonInternal,
		},
		{doc: "a panic", ask: func(r *rig) *httptest.ResponseRecorder {
			r.Deps().Auth = nil
			return r.do("POST", "/v1/transfer", someTransfer, writer)
		}, status: 500, reason: httpapi.ReasonInternal},
	}
}

// Every reason is met through the handlers, told as it should be, and counted once.
func TestEveryReasonOfTheWallet(t *testing.T) {
	all := slices.Concat(badCases(), deniedCases(), limitCases(), conflictCases(), goneCases(), laterCases(),
		gravestCases())
	r := newRig(t)
	for _, tt := range all {
		r.renew()
		before := sum(t, r.metrics, "rejected_total", "service", "wallet", "reason", tt.reason)
		w := tt.ask(r)
		p := problemIn(t, w.Body.String())
		if w.Code != tt.status || p.Status != tt.status || p.Reason != tt.reason ||
			p.Retryable != tt.retry ||
			p.Service != serviceWallet {
			t.Errorf("%s: %d %+v, want %d %s retry %v", tt.doc, w.Code, p, tt.status, tt.reason, tt.retry)
		}
		if want := map[string]any(tt.details); !reflect.DeepEqual(p.Details, want) && len(p.Details)+len(want) > 0 {
			t.Errorf("%s: httpapi.Details %v, want %v", tt.doc, p.Details, want)
		}
		if p.Detail == "" || !strings.Contains(p.Detail, tt.says) || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %q, want %q in it", tt.doc, p.Detail, tt.says)
		}
		if n := sum(t, r.metrics, "rejected_total", "service", "wallet", "reason", tt.reason) - before; n != 1 {
			t.Errorf("%s: counted %v times", tt.doc, n)
		}
		checkRetryAfter(t, tt.doc, w, p)
		checkWords(t, tt.doc, p)
	}
}

// renew undoes the changes of a case.
func (r *rig) renew() {
	r.Deps().Auth = fakeAuth{}
	r.Reopen()
	r.SetGate(httpapi.GateOpen)
	r.SetLimits(serviceWallet, httpapi.Limits{Inflight: 9})
	r.wal.set(nil)
	r.wal.notReady = nil
}

// Whatever the ledger's rules refuse, and whatever any service can meet, has its words on a route
// of the wallet, and no status that the table does not have.
func TestNoOtherStatusOnTheWallet(t *testing.T) {
	var all []error
	for code := record.IdemConflict; code.Known(); code++ {
		all = append(all, refusedBy(code))
	}
	for _, c := range problemCases() {
		all = append(all, c.err)
	}
	all = append(all, inflate.ErrRatio)
	r := newRig(t)
	r.undescribed = true
	for _, err := range all {
		r.wal.set(err)
		w := r.do("POST", "/v1/transfer", someTransfer, writer)
		p := problemIn(t, w.Body.String())
		if p.Service != serviceWallet || w.Code == http.StatusGatewayTimeout ||
			w.Code == 503 && w.Header().Get("Retry-After") == "" && p.Retryable {
			t.Errorf("%v: %d %+v", err, w.Code, p)
		}
		if strings.HasPrefix(p.Type, "urn:ronbox:problem:registry") {
			t.Errorf("%v: told as %+v", err, p)
		}
		if p.Reason == httpapi.ReasonInternal && strings.HasPrefix(err.Error(), "post: ledger: refused") {
			t.Errorf("%v is told as a bug", err)
		}
	}
}

// A deadline that ends in the wallet is answered as such: the request had no effect.
func TestTheDeadlineEndsAWrite(t *testing.T) {
	r := newRig(t)
	r.wal.wait = true
	w := r.do("POST", "/v1/transfer", someTransfer, header{"Authorization": "Bearer good", "Request-Timeout": "0.02"})
	if p := problemIn(t, w.Body.String()); w.Code != 503 || p.Reason != httpapi.ReasonTimeout || p.Details["outcome"] != "none" {
		t.Errorf("%d %+v", w.Code, p)
	}
	if r.wal.until > time.Second {
		t.Errorf("%s to the deadline", r.wal.until)
	}
}

// checkWords checks that a refusal names the field, the reason and, if the outcome is unknown, how
// to find out.
func checkWords(t *testing.T, doc string, p wire.Problem) {
	t.Helper()
	field, named := p.Details["field"].(string)
	if named && !strings.Contains(p.Detail, field+": ") && !strings.Contains(p.Detail, "header "+field) {
		t.Errorf("%s: %q does not begin with the field %s", doc, p.Detail, field)
	}
	if limit, ok := p.Details["limit"].(string); ok {
		of := map[string]string{
			"per_op": "wallet.max_amount_per_op", "daily": "wallet.daily_ceiling", "token_daily": "ceiling_daily", "account_total": "wallet.max_account_total",
			"open_holds": "wallet.max_open_holds", "ceiling": "token's ceiling", "ceiling_daily": "ceiling_daily", "batch_max_ops": "ops: ", "body": "server.max_body_bytes",
		}[limit]
		if of == "" || !strings.Contains(p.Detail, of) {
			t.Errorf("%s: %q does not say which limit", doc, p.Detail)
		}
	}
	why := map[string]string{
		"insufficient_funds": "less to spend than the amount", "nonce_reused": "was used before", "nonce_gap": "not used yet", "hold_closed": "was captured or released before",
		"hold_expired": "time of the hold is over", "hold_unknown": "no hold of this txid", "account_locked": "a flag of one of the accounts",
		"idem_conflict": "stands for another request", "idem_in_flight": "Send the same request again to get its answer", "asset_unknown": "not declared",
		httpapi.ReasonBusy: "not enqueued", httpapi.ReasonInflight: "not begun", httpapi.ReasonRate: "after Retry-After", httpapi.ReasonStoreFull: "Nothing was changed", httpapi.ReasonUnauth: "Send a token", httpapi.ReasonForbidden: " ",
		httpapi.ReasonInternal: "corr_id", httpapi.ReasonRestored: "accept-restore", httpapi.ReasonDraining: "Nothing was changed", "expired": "is over",
		"payee_unknown": "to: The payee does not exist",
	}[p.Reason]
	switch side, _ := p.Details["field"].(string); {
	case p.Reason == "account_locked" && side != "":
		why = side + ": a flag forbids this account"
	case p.Details["cause"] == "account_unknown":
		why = "from: Nobody has ever paid this account"
	}
	if !strings.Contains(p.Detail, why) {
		t.Errorf("%s: %q, want %q in it", doc, p.Detail, why)
	}
	switch p.Details["outcome"] {
	case "unknown":
		if !strings.Contains(p.Detail, "same request") {
			t.Errorf("%s: %q does not say how to find out", doc, p.Detail)
		}
	case "none":
		if !strings.Contains(strings.ToLower(p.Detail), "nothing was") {
			t.Errorf("%s: %q does not say that nothing was done", doc, p.Detail)
		}
	}
}

// checkRetryAfter: whole seconds from 1 on wherever it makes sense to come again, the same outside
// the body as in it, none elsewhere.
func checkRetryAfter(t *testing.T, doc string, w *httptest.ResponseRecorder, p wire.Problem) {
	t.Helper()
	want := w.Code == 429 || w.Code == 503 || w.Code == 507 || p.Reason == "idem_in_flight"
	given := w.Header().Get("Retry-After")
	if n, _ := strconv.Atoi(given); want != (n >= 1) || given != "" && n != p.RetryAfter {
		t.Errorf("%s: Retry-After %q, in the body %d", doc, given, p.RetryAfter)
	}
	if (w.Header().Get("WWW-Authenticate") != "") != (w.Code == http.StatusUnauthorized) {
		t.Errorf("%s: challenged as %q", doc, w.Header().Get("WWW-Authenticate"))
	}
}
