package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/registry"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/inflate"
	"ronbox/store"
)

// The reasons, one vocabulary for all services; also the label of rejected_total.
const (
	reasonMalformed    = "malformed"
	reasonSchema       = "schema" // of a body
	reasonBadHeader    = "bad_header"
	reasonUnauth       = "unauth"
	reasonForbidden    = "forbidden"
	reasonNotFound     = "not_found"
	reasonMethod       = "method"
	reasonTimeout      = "timeout"
	reasonConflict     = "conflict"
	reasonExpired      = "expired"
	reasonPruned       = "pruned"
	reasonLength       = "length_required"
	reasonBodyCap      = "body_cap"
	reasonHardLimit    = "hard_limit"
	reasonMediaType    = "unsupported_type"
	reasonChain        = "chain_mismatch"
	reasonSkew         = "version_skew"
	reasonDuplicate    = "duplicate_approval"
	reasonSignature    = "invalid_sig"
	reasonRevoked      = "revoked_key"
	reasonQuorum       = "quorum"
	reasonClock        = "clock_skew"
	reasonRatioCap     = "ratio_cap"
	reasonInflateCap   = "decompress_cap"
	reasonReload       = "reload_refused"
	reasonAmnesia      = "amnesia"
	reasonBusy         = "busy"
	reasonRate         = "rate_limit"
	reasonInflight     = "inflight"
	reasonStreams      = "conn_cap"
	reasonCanceled     = "canceled"
	reasonDraining     = "draining"
	reasonDegraded     = "degraded"
	reasonRestored     = "restored"
	reasonStoreFailed  = "store_failed"
	reasonStoreFull    = "store_full"
	reasonCommitUnsure = "commit_unknown"
	reasonInternal     = "internal"
	reasonLimits       = "limits_exceeded"
)

// Hints that several rows share.
const (
	hintForbidden = "what was sent does not allow this; `ronbox token inspect` shows what a token allows"
	hintDrain     = "nothing was done; the node is on its way down"
	hintRate      = "nothing was begun; send it again after Retry-After"
	hintLate      = "the deadline passed before it was begun: nothing was written"
)

// wait says which Retry-After goes with a row.
type wait int

const (
	waitNone     wait = iota
	waitBusy          // 1 or 2 s, so that the refused do not come back together
	waitDegraded      // 5 s, of the wallet 2 s
	waitToken         // until the bucket that refused has a token, at least 1 s
	waitDrain         // what is left of the drain, and 5 s to start again
)

// details is what a problem says beyond its reason.
type details = map[string]any

// A row tells one kind of error. Here, and for the wallet in walletproblem.go, an error becomes a status, and nowhere else.
type row struct {
	is     func(error) bool
	coded  bool // status, reason, code and retry are the wallet's to say, by the error
	status int
	reason string
	code   string // registry's and the node's spelling, or the wallet's of what it alone refuses
	title  string
	retry  bool
	wait   wait
	hint   string // told instead of the error's own text, which is then for the log only
	more   func(error) details
	say    func(error) string // the detail text; nil: the error's own
}

// problemRows are tried in order; the first that knows an error tells it. An error that none knows is internal.
func problemRows() []row {
	out := walletRows() // first: they say more than the causes they hold
	out = append(out, requestRows()...)
	out = append(out, accessRows()...)
	out = append(out, nodeRows()...)
	out = append(out, recordRows()...)
	out = append(out, registryRows()...)
	out = append(out, storeRows()...)
	return append(out, waitingRows()...)
}

// internalRow tells a bug.
func internalRow() row {
	return row{status: http.StatusInternalServerError, reason: reasonInternal, code: "Internal",
		title: "Internal error", hint: "the node's log has the cause under this corr_id"}
}

// requestRows are faults of the request itself.
func requestRows() []row {
	bad := row{status: http.StatusBadRequest, reason: reasonMalformed, code: "Malformed", title: "Malformed request"}
	return []row{
		bad.when(as[*BodyError]).because(reasonSchema).with(field(func(e *BodyError) string { return e.Field })),
		bad.when(as[*QueryError]).with(field(func(e *QueryError) string { return e.Param })),
		bad.when(either(is(errNoBody), is(errPath))),
		bad.when(is(errTxID)).with(func(error) details { return details{"field": paramTx} }),
		bad.when(is(errBodyCut)),
		bad.when(is(errNested)),
		bad.when(is(inflate.ErrStream)).told("the body is not what its Content-Encoding says"),
		bad.when(is(inflate.ErrRatio)).because(reasonRatioCap).told("the body inflates by too much; send it as it is"),
		bad.when(is(inflate.ErrTooLarge)).because(reasonInflateCap).told("the inflated body is too large"),
		bad.when(either(is(auth.ErrSpec), is(engines.ErrAmount), is(engines.ErrAccount), is(engines.ErrAsset))),
		bad.when(as[*HeaderError]).because(reasonBadHeader).with(field(func(e *HeaderError) string { return e.Header })),
		{is: is(errTarget), status: http.StatusRequestURITooLong, reason: reasonMalformed, code: "Malformed", title: "URI too long"},
		{is: is(errHeaders), status: http.StatusRequestHeaderFieldsTooLarge, reason: reasonBadHeader, code: "Malformed",
			title: "Too many headers"},
		{is: is(errLength), status: http.StatusLengthRequired, reason: reasonLength, code: "LengthRequired",
			title: "Length required"},
		{is: is(errBodyCap), status: http.StatusRequestEntityTooLarge, reason: reasonBodyCap, code: "PayloadTooLarge",
			title: "Body too large"},
		{is: either(is(errMediaType), is(errEncoding), is(inflate.ErrEncoding)), status: http.StatusUnsupportedMediaType,
			reason: reasonMediaType, code: "UnsupportedType", title: "Unsupported media type"},
		{is: is(errBodySlow), status: http.StatusRequestTimeout, reason: reasonTimeout, code: "Timeout",
			title: "Request too slow", retry: true, more: outcome("none")},
	}
}

// accessRows are about who asks for what, and when.
func accessRows() []row {
	absent := row{status: http.StatusNotFound, reason: reasonNotFound, code: "NotFound", title: "Not found"}
	full := row{status: http.StatusTooManyRequests, code: "Busy", title: "Too many requests", retry: true, wait: waitBusy}
	return []row{
		absent.when(either(is(errNoRoute), is(errNoSchema), is(ErrNoSuch))),
		{is: as[*methodError], status: http.StatusMethodNotAllowed, reason: reasonMethod, code: "MethodNotAllowed",
			title: "Method not allowed"},
		{is: is(auth.ErrUnauthenticated), status: http.StatusUnauthorized, reason: reasonUnauth, code: "Unauthorized",
			title: "Not authenticated",
			hint:  "send a token in force as 'Authorization: Bearer …'; `ronbox token mint` makes one"},
		{is: either(as[*auth.DeniedError], as[*engines.GrantError]), status: http.StatusForbidden, reason: reasonForbidden,
			code: "Forbidden", title: "Not allowed", hint: hintForbidden, more: indexed(nil)},
		{is: either(as[*rateError], as[*auth.LimitedError]), status: http.StatusTooManyRequests, reason: reasonRate, code: "Busy",
			title: "Too many requests", retry: true, wait: waitToken, hint: hintRate},
		full.when(is(errInflight)).because(reasonInflight),
		full.when(is(errStreams)).because(reasonStreams),
		{is: is(errDraining), status: http.StatusServiceUnavailable, reason: reasonDraining, code: "Draining",
			title: "Node is draining", retry: true, wait: waitDrain, hint: hintDrain},
		{is: is(errStarting), status: http.StatusServiceUnavailable, reason: reasonDegraded, code: "NotReady",
			title: "Not ready", retry: true, wait: waitDegraded, more: func(error) details { return details{"cause": "starting"} }},
		{is: is(errScrape), status: http.StatusServiceUnavailable, reason: reasonDegraded, code: "NotReady",
			title: "Not ready", retry: true, wait: waitDegraded},
	}
}

// nodeRows are what the node itself refuses.
func nodeRows() []row {
	clash := row{status: http.StatusConflict, reason: reasonConflict, code: "Conflict", title: "Not in this state"}
	return []row{
		clash.when(as[*ConflictError]),
		clash.when(is(obs.ErrNotRecording)).told("the flight recorder is off"),
		{is: as[*ReloadError], status: http.StatusUnprocessableEntity, reason: reasonReload, code: "ReloadRefused",
			title: "Configuration refused", more: detail(func(e *ReloadError) details {
				return details{"cause": e.Reason, "keys": slices.Concat([]string{}, e.Keys)}
			})},
	}
}

// recordRows are what the signed formats refuse.
func recordRows() []row {
	bad := row{status: http.StatusUnprocessableEntity}
	return []row{
		{is: is(record.ErrMalformed), status: http.StatusBadRequest, reason: reasonMalformed, code: "Malformed",
			title: "Malformed request", more: field(func(e *record.FieldError) string { return e.Field }), say: fieldText},
		{is: is(record.ErrHardLimit), status: http.StatusRequestEntityTooLarge, reason: reasonHardLimit,
			code: "HardLimitExceeded", title: "Beyond a fixed limit"},
		{is: is(record.ErrChainMismatch), status: http.StatusConflict, reason: reasonChain, code: "ChainMismatch",
			title: "Does not build on HEAD"},
		{is: is(record.ErrVersionSkew), status: http.StatusConflict, reason: reasonSkew, code: "VersionSkew",
			title: "Version out of turn"},
		bad.when(is(record.ErrInvalidSig)).because(reasonSignature).called("InvalidSig", "Invalid signature"),
		bad.when(is(record.ErrRevokedKey)).because(reasonRevoked).called("RevokedKey", "Key is not active").
			with(detail(func(e *record.RevokedKeyError) details {
				return details{"signer_id": e.SignerID, "status": e.Status}
			})),
		bad.when(is(record.ErrQuorum)).because(reasonQuorum).called("QuorumFailed", "Quorum not reached").
			with(detail(func(e *record.QuorumError) details { return details{"have": e.Have, "need": e.Need} })),
		bad.when(is(record.ErrClockSkew)).because(reasonClock).called("ClockSkew", "Clock skew"),
	}
}

// registryRows are what the registry refuses.
func registryRows() []row {
	return []row{
		{is: is(registry.ErrNotFound), status: http.StatusNotFound, reason: reasonNotFound, code: "NotFound",
			title: "Not found"},
		{is: is(registry.ErrExpired), status: http.StatusGone, reason: reasonExpired, code: "Expired",
			title: "Proposal has expired"},
		{is: is(registry.ErrPruned), status: http.StatusGone, reason: reasonPruned, code: "Pruned",
			title: "Version was pruned"},
		{is: as[*registry.DuplicateApprovalError], status: http.StatusConflict, reason: reasonDuplicate,
			code: "DuplicateApproval", title: "Approved before",
			more: detail(func(e *registry.DuplicateApprovalError) details { return details{"identical": e.Identical} })},
		{is: is(registry.ErrConflict), status: http.StatusConflict, reason: reasonConflict, code: "Conflict",
			title: "Not in this state",
			more:  detail(func(e *registry.StateError) details { return details{"state": e.State} })},
		{is: is(registry.ErrForbidden), status: http.StatusForbidden, reason: reasonForbidden, code: "Forbidden",
			title: "Not allowed", hint: hintForbidden},
		{is: is(registry.ErrRange), status: http.StatusBadRequest, reason: reasonMalformed, code: "Malformed",
			title: "Range not served"},
		{is: as[*registry.PendingLimitError], status: http.StatusTooManyRequests, reason: reasonBusy, code: "Busy",
			title: "Too many proposals", retry: true, wait: waitBusy,
			more: detail(func(e *registry.PendingLimitError) details { return details{"limit": e.Limit, "max": e.Max} })},
		{is: as[*registry.NotReadyError], status: http.StatusServiceUnavailable, reason: reasonDegraded, code: "NotReady",
			title: "Not ready", retry: true, wait: waitDegraded,
			more: detail(func(e *registry.NotReadyError) details { return details{"cause": e.Cause} })},
		{is: as[*registry.TimeoutError], status: http.StatusGatewayTimeout, reason: reasonTimeout, code: "Timeout",
			title: "Deadline passed", retry: true, more: outcome("none")},
	}
}

// storeRows are what the file refuses. ErrPoisoned stands before ErrUnknown, which it may be too.
func storeRows() []row {
	return []row{
		{is: is(store.ErrPoisoned), status: http.StatusServiceUnavailable, reason: reasonStoreFailed, code: "StoreFailed",
			title: "Storage failed", retry: true, wait: waitDegraded,
			hint: "the node stops and starts again from disk; the same request is safe to repeat", more: outcome("unknown")},
		{is: is(store.ErrFull), status: http.StatusInsufficientStorage, reason: reasonStoreFull, code: "StoreFull",
			title: "Storage is full", retry: true, wait: waitDegraded,
			hint: "nothing was written; reads go on"},
		{is: is(store.ErrSlow), status: http.StatusServiceUnavailable, reason: reasonDegraded, code: "StorageBusy",
			title: "Storage is slow", retry: true, wait: waitDegraded, hint: "nothing was written"},
		{is: is(store.ErrRestored), status: http.StatusServiceUnavailable, reason: reasonRestored, code: "NotReady",
			title: "Restored, not yet accepted", retry: true, wait: waitDegraded,
			hint: "reads go on; `ronbox db accept-restore` lets writes in",
			more: func(error) details { return details{"cause": reasonRestored} }},
		{is: is(store.ErrAmnesia), status: http.StatusServiceUnavailable, reason: reasonAmnesia, code: "NotReady",
			title: "Not in memory mode", hint: "the file lives in memory, by amnesia.enabled, and leaves nothing on a disk"},
		{is: is(store.ErrTimeout), status: http.StatusGatewayTimeout, reason: reasonTimeout, code: "Timeout",
			title: "Deadline passed", retry: true, hint: hintLate, more: outcome("none")},
	}
}

// waitingRows are how the wait for an answer can end without one.
func waitingRows() []row {
	return []row{
		{is: is(flow.ErrBusy), status: http.StatusTooManyRequests, reason: reasonBusy, code: "Busy",
			title: "Queue is full", retry: true, wait: waitBusy, hint: "nothing was enqueued; send it again later"},
		{is: is(flow.ErrUnknown), status: http.StatusGatewayTimeout, reason: reasonCommitUnsure, code: "Timeout",
			title: "Outcome unknown", retry: true,
			hint: "it may have taken effect; repeat the same request to learn", more: outcome("unknown")},
		{is: is(flow.ErrClosed), status: http.StatusServiceUnavailable, reason: reasonDraining, code: "Draining",
			title: "Node is draining", retry: true, wait: waitDrain, hint: hintDrain},
		{is: is(context.DeadlineExceeded), status: http.StatusGatewayTimeout, reason: reasonTimeout, code: "Timeout",
			title: "Deadline passed", retry: true, hint: hintLate, more: outcome("none")},
		{is: either(is(flow.ErrCanceled), is(flow.ErrAborted), is(context.Canceled)), status: http.StatusServiceUnavailable,
			reason: reasonCanceled, code: "Canceled", title: "Cancelled", retry: true, wait: waitDegraded,
			hint: "it was given up before anything was done", more: outcome("none")},
	}
}

func (r row) when(is func(error) bool) row      { r.is = is; return r }
func (r row) because(reason string) row         { r.reason = reason; return r }
func (r row) told(hint string) row              { r.hint = hint; return r }
func (r row) called(code, title string) row     { r.code, r.title = code, title; return r }
func (r row) with(more func(error) details) row { r.more = more; return r }
func is(target error) func(error) bool          { return func(err error) bool { return errors.Is(err, target) } }
func outcome(what string) func(error) details {
	return func(error) details { return details{"outcome": what} }
}
func either(fs ...func(error) bool) func(error) bool {
	return func(err error) bool {
		for _, f := range fs {
			if f(err) {
				return true
			}
		}
		return false
	}
}

// as tells whether err is or wraps a T.
func as[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// fieldText is a FieldError without what title and reason say already.
func fieldText(err error) string {
	var e *record.FieldError
	if !errors.As(err, &e) {
		return err.Error()
	}
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + ": " + e.Reason
}

// detail reads a T's own members, where there is one.
func detail[T error](read func(T) details) func(error) details {
	return func(err error) details {
		e, ok := errors.AsType[T](err)
		if !ok {
			return nil
		}
		return read(e)
	}
}

// field names the member, parameter or header that is wrong.
func field[T error](name func(T) string) func(error) details {
	return detail(func(e T) details {
		if n := name(e); n != "" {
			return details{"field": n}
		}
		return nil
	})
}
