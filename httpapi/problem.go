package httpapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/inflate"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// The reasons that services share, one vocabulary; also the label of rejected_total. A service adds its own in its rules.
const (
	ReasonMalformed    = "malformed"
	ReasonSchema       = "schema" // of a body
	ReasonBadHeader    = "bad_header"
	ReasonUnauth       = "unauth"
	ReasonForbidden    = "forbidden"
	ReasonNotFound     = "not_found"
	ReasonMethod       = "method"
	ReasonTimeout      = "timeout"
	ReasonConflict     = "conflict"
	ReasonPrecondition = "precondition"
	ReasonRange        = "range"
	ReasonLength       = "length_required"
	ReasonBodyCap      = "body_cap"
	ReasonMediaType    = "unsupported_type"
	ReasonRatioCap     = "ratio_cap"
	ReasonInflateCap   = "decompress_cap"
	ReasonAmnesia      = "amnesia"
	ReasonBusy         = "busy"
	ReasonRate         = "rate_limit"
	ReasonInflight     = "inflight"
	ReasonStreams      = "conn_cap"
	ReasonCanceled     = "canceled"
	ReasonDraining     = "draining"
	ReasonDegraded     = "degraded"
	ReasonRestored     = "restored"
	ReasonStoreFailed  = "store_failed"
	ReasonStoreFull    = "store_full"
	ReasonCommitUnsure = "commit_unknown"
	ReasonCorrupt      = "corrupt"
	ReasonInternal     = "internal"
)

// HintForbidden says how to see what a token allows.
const HintForbidden = "what was sent does not allow this; `ronbox token inspect` shows what a token allows"

const (
	hintDrain = "nothing was done; the node is on its way down"
	hintRate  = "nothing was begun; send it again after Retry-After"
	hintLate  = "the deadline passed before it was begun: nothing was written"
)

// Wait says which Retry-After goes with a rule.
type Wait int

const (
	WaitNone     Wait = iota
	WaitBusy          // 1 or 2 s, so that the refused do not come back together
	WaitDegraded      // as long as Service.RetryAfter says
	WaitToken         // until the bucket that refused has a token, at least 1 s
	WaitDrain         // what is left of the drain, and 5 s to start again
)

// nodeRetry is the Retry-After, in seconds, of a node that cannot do something for now.
const nodeRetry = 5

// Details is what a problem says beyond its reason.
type Details = map[string]any

// Outcome is what a program reads of a refusal.
type Outcome struct {
	Status int
	Reason string
	Code   string // Reason as the service spells it
	Retry  bool   // the same request may succeed later as it stands
}

// ErrorRule words one kind of error. In rules an error becomes a status, and nowhere else.
type ErrorRule struct {
	Is func(error) bool
	Outcome
	Classify func(error) Outcome // instead of Outcome, nil: that
	Title    string
	Wait     Wait
	Hint     string // answered instead of the error's own text, which is then for the log only
	Details  func(error) Details
	Text     func(error) string // the detail text; nil: the error's own
}

// When, As and Say give a rule that differs in the errors it is for, in reason and code, or in its hint.
func (r ErrorRule) When(is func(error) bool) ErrorRule         { r.Is = is; return r }
func (r ErrorRule) As(reason string) ErrorRule                 { r.Reason = reason; return r }
func (r ErrorRule) Say(hint string) ErrorRule                  { r.Hint = hint; return r }
func (r ErrorRule) Called(code, title string) ErrorRule        { r.Code, r.Title = code, title; return r }
func (r ErrorRule) With(details func(error) Details) ErrorRule { r.Details = details; return r }

// Is reports whether an error is or wraps target.
func Is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

// IsA reports whether err is or wraps a T.
func IsA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// Any reports whether one of several does.
func Any(fs ...func(error) bool) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(fs, func(f func(error) bool) bool { return f(err) })
	}
}

// Detail reads a T's own members, where there is one.
func Detail[T error](read func(T) Details) func(error) Details {
	return func(err error) Details {
		if e, ok := errors.AsType[T](err); ok {
			return read(e)
		}
		return nil
	}
}

// Field names the member, parameter or header that is wrong.
func Field[T error](name func(T) string) func(error) Details {
	return Detail(func(e T) Details {
		if n := name(e); n != "" {
			return Details{"field": n}
		}
		return nil
	})
}

// Told is the same details whatever the error.
func Told(d Details) func(error) Details { return func(error) Details { return d } }

var (
	outcomeNone    = Told(Details{"outcome": "none"})
	outcomeUnknown = Told(Details{"outcome": "unknown"})
)

// sharedRules are tried in order after those of the service; the first that knows an error words it. An error that none knows is
// internal.
func sharedRules() []ErrorRule {
	return slices.Concat(requestRules(), accessRules(), storeRules(), waitingRules())
}

// internalRule words a bug.
func internalRule() ErrorRule {
	return ErrorRule{Outcome: Outcome{http.StatusInternalServerError, ReasonInternal, "Internal", false},
		Title: "Internal error", Hint: "the node's log has the cause under this corr_id"}
}

// requestRules are faults of the request itself.
func requestRules() []ErrorRule {
	bad := ErrorRule{Outcome: Outcome{http.StatusBadRequest, ReasonMalformed, "Malformed", false}, Title: "Malformed request"}
	return []ErrorRule{
		bad.When(IsA[*BodyError]).As(ReasonSchema).With(Field(func(e *BodyError) string { return e.Field })),
		bad.When(IsA[*QueryError]).With(Field(func(e *QueryError) string { return e.Param })),
		bad.When(Any(Is(errNoBody), Is(errPath))),
		bad.When(IsA[*PathError]).With(Field(func(e *PathError) string { return e.Param })),
		bad.When(Is(errBodyCut)),
		bad.When(Is(errNested)),
		bad.When(Is(inflate.ErrStream)).Say("the body is not what its Content-Encoding says"),
		bad.When(Is(inflate.ErrRatio)).As(ReasonRatioCap).Say("the body inflates by too much; send it as it is"),
		bad.When(Is(inflate.ErrTooLarge)).As(ReasonInflateCap).Say("the inflated body is too large"),
		bad.When(Any(Is(auth.ErrSpec), Is(engines.ErrAmount), Is(engines.ErrAccount), Is(engines.ErrAsset))),
		bad.When(IsA[*HeaderError]).As(ReasonBadHeader).With(Field(func(e *HeaderError) string { return e.Header })),
		{Is: Is(errTarget), Outcome: Outcome{http.StatusRequestURITooLong, ReasonMalformed, "Malformed", false}, Title: "URI too long"},
		{Is: Is(errHeaders), Outcome: Outcome{http.StatusRequestHeaderFieldsTooLarge, ReasonBadHeader, "Malformed", false},
			Title: "Too many headers"},
		{Is: Is(errLength), Outcome: Outcome{http.StatusLengthRequired, ReasonLength, "LengthRequired", false}, Title: "Length required"},
		{Is: Is(ErrBodyTooLarge), Outcome: Outcome{http.StatusRequestEntityTooLarge, ReasonBodyCap, "PayloadTooLarge", false},
			Title: "Body too large"},
		{Is: Any(Is(errMediaType), Is(errEncoding), Is(inflate.ErrEncoding), IsA[*mediaError]),
			Outcome: Outcome{http.StatusUnsupportedMediaType, ReasonMediaType, "UnsupportedType", false}, Title: "Unsupported media type"},
		{Is: Is(errBodySlow), Outcome: Outcome{http.StatusRequestTimeout, ReasonTimeout, "Timeout", true},
			Title: "Request too slow", Details: outcomeNone},
		{Is: Is(ErrPrecondition), Outcome: Outcome{http.StatusPreconditionFailed, ReasonPrecondition, "PreconditionFailed", false},
			Title: "Precondition failed"},
		{Is: Is(ErrRange), Outcome: Outcome{http.StatusRequestedRangeNotSatisfiable, ReasonRange, "RangeNotSatisfiable", false},
			Title: "Range not satisfiable"},
	}
}

// accessRules are about the caller, and the state of the node.
func accessRules() []ErrorRule {
	full := ErrorRule{Outcome: Outcome{http.StatusTooManyRequests, ReasonBusy, "Busy", true}, Title: "Too many requests", Wait: WaitBusy}
	lacks := ErrorRule{Outcome: Outcome{http.StatusServiceUnavailable, ReasonDegraded, "NotReady", true}, Title: "Not ready", Wait: WaitDegraded}
	return []ErrorRule{
		{Is: Any(Is(ErrNoRoute), Is(errNoSchema), Is(ErrNoSuch)), Outcome: Outcome{http.StatusNotFound, ReasonNotFound, "NotFound", false},
			Title: "Not found"},
		{Is: IsA[*methodError], Outcome: Outcome{http.StatusMethodNotAllowed, ReasonMethod, "MethodNotAllowed", false},
			Title: "Method not allowed"},
		{Is: Is(auth.ErrUnauthenticated), Outcome: Outcome{http.StatusUnauthorized, ReasonUnauth, "Unauthorized", false},
			Title: "Not authenticated",
			Hint:  "send a token in force as 'Authorization: Bearer …'; `ronbox token mint` makes one"},
		{Is: Any(IsA[*auth.DeniedError], IsA[*engines.GrantError]), Outcome: Outcome{http.StatusForbidden, ReasonForbidden, "Forbidden", false},
			Title: "Not allowed", Text: DeniedText, Details: DeniedDetails},
		{Is: Any(IsA[*rateError], IsA[*auth.LimitedError]), Outcome: Outcome{http.StatusTooManyRequests, ReasonRate, "Busy", true},
			Title: "Too many requests", Wait: WaitToken, Hint: hintRate},
		full.When(Is(errInflight)).As(ReasonInflight),
		full.When(Is(errStreams)).As(ReasonStreams),
		{Is: Is(errDraining), Outcome: Outcome{http.StatusServiceUnavailable, ReasonDraining, "Draining", true},
			Title: "Node is draining", Wait: WaitDrain, Hint: hintDrain},
		lacks.When(Is(errStarting)).With(Told(Details{"cause": "starting"})),
		lacks.When(Is(errScrape)),
	}
}

// storeRules are what the file refuses. ErrPoisoned stands before ErrUnknown, which it may be too.
func storeRules() []ErrorRule {
	lacks := ErrorRule{Outcome: Outcome{http.StatusServiceUnavailable, ReasonDegraded, "NotReady", true}, Wait: WaitDegraded}
	return []ErrorRule{
		lacks.When(Is(store.ErrPoisoned)).As(ReasonStoreFailed).Called("StoreFailed", "Storage failed").With(outcomeUnknown).
			Say("the node stops and starts again from disk; the same request is safe to repeat"),
		{Is: Is(store.ErrFull), Outcome: Outcome{http.StatusInsufficientStorage, ReasonStoreFull, "StoreFull", true},
			Title: "Storage is full", Wait: WaitDegraded, Hint: "nothing was written; reads go on"},
		lacks.When(Is(store.ErrSlow)).Called("StorageBusy", "Storage is slow").Say("nothing was written"),
		lacks.When(Is(store.ErrRestored)).As(ReasonRestored).Called("NotReady", "Restored, not yet accepted").
			With(Told(Details{"cause": ReasonRestored})).Say("reads go on; `ronbox db accept-restore` lets writes in"),
		{Is: Is(errDamaged), Outcome: Outcome{http.StatusServiceUnavailable, ReasonCorrupt, "Corrupt", false}, Title: "Data is damaged"},
		{Is: Is(store.ErrCorrupt), Outcome: Outcome{http.StatusInternalServerError, ReasonCorrupt, "Corrupt", false},
			Title: "Data is damaged", Hint: "a row that this needs is damaged; `ronbox db verify` names it, `ronbox db restore` takes a snapshot back"},
		{Is: Is(store.ErrAmnesia), Outcome: Outcome{http.StatusServiceUnavailable, ReasonAmnesia, "NotReady", false},
			Title: "Not in memory mode", Hint: "the file lives in memory, by amnesia.enabled, and leaves nothing on a disk"},
		{Is: Is(store.ErrTimeout), Outcome: Outcome{http.StatusGatewayTimeout, ReasonTimeout, "Timeout", true},
			Title: "Deadline passed", Hint: hintLate, Details: outcomeNone},
	}
}

// waitingRules are how the wait for an answer can end without one.
func waitingRules() []ErrorRule {
	return []ErrorRule{
		{Is: Is(flow.ErrBusy), Outcome: Outcome{http.StatusTooManyRequests, ReasonBusy, "Busy", true},
			Title: "Queue is full", Wait: WaitBusy, Hint: "nothing was enqueued; send it again later"},
		{Is: Is(flow.ErrUnknown), Outcome: Outcome{http.StatusGatewayTimeout, ReasonCommitUnsure, "Timeout", true},
			Title: "Outcome unknown", Hint: "it may have taken effect; repeat the same request to learn", Details: outcomeUnknown},
		{Is: Is(flow.ErrClosed), Outcome: Outcome{http.StatusServiceUnavailable, ReasonDraining, "Draining", true},
			Title: "Node is draining", Wait: WaitDrain, Hint: hintDrain},
		{Is: Is(context.DeadlineExceeded), Outcome: Outcome{http.StatusGatewayTimeout, ReasonTimeout, "Timeout", true},
			Title: "Deadline passed", Hint: hintLate, Details: outcomeNone},
		{Is: Any(Is(flow.ErrCanceled), Is(flow.ErrAborted), Is(context.Canceled)),
			Outcome: Outcome{http.StatusServiceUnavailable, ReasonCanceled, "Canceled", true},
			Title:   "Cancelled", Wait: WaitDegraded, Hint: "it was given up before anything was done", Details: outcomeNone},
	}
}

// ErrNoSuch is what an engine returns for a name that stands for nothing: 404.
var ErrNoSuch = errors.New("there is no such thing here")

// classify finds the rule that knows err, in the words of a service.
func (s *Server) classify(sv *service, err error) ErrorRule {
	for i := range sv.Errors {
		if r := sv.Errors[i]; r.Is(err) {
			if r.Classify != nil {
				r.Outcome = r.Classify(err)
			}
			return r
		}
	}
	r := internalRule()
	for i := range s.rules {
		if s.rules[i].Is(err) {
			r = s.rules[i]
			break
		}
	}
	return sv.spell(r)
}

// spell is a shared rule in the words of the service.
func (s *service) spell(r ErrorRule) ErrorRule {
	if s.Code != nil {
		r.Code = s.Code(r.Reason)
	}
	if s.LateStatus != 0 {
		if r.Status == http.StatusGatewayTimeout {
			r.Status = s.LateStatus
		}
		if r.Status == http.StatusServiceUnavailable && r.Wait == WaitNone {
			r.Wait = WaitDegraded
		}
	}
	return r
}

// refuse answers the request with the problem that err is, and counts it. It returns false when an answer had begun.
func (s *Server) refuse(c *Request, b *boundRoute, err error) bool {
	r := s.classify(b.service, err)
	c.reason = r.Reason
	s.rejected(b.service.Name, r.Reason)
	if b.service.Refused != nil {
		b.service.Refused(r.Reason)
	}
	if errors.Is(err, errBodySlow) {
		s.timedOut(b.service.Name, front.OpRead)
	}
	if r.Status == http.StatusTooManyRequests && b.busy != nil {
		b.busy(1)
	}
	if c.status != 0 {
		return false
	}
	s.writeProblem(c, r, err)
	return true
}

func (s *Server) writeProblem(c *Request, r ErrorRule, err error) {
	p := s.problem(c, r, err)
	body, merr := encode(p)
	if merr != nil { // plain strings and numbers only: cannot happen
		body = []byte(`{"status":500}`)
	}
	h := c.Header()
	problemHeaders(h, p, len(body))
	if r.Reason == ReasonDraining {
		h.Set("Connection", "close")
	}
	if m, ok := errors.AsType[*methodError](err); ok {
		h.Set("Allow", strings.Join(m.allow, ", "))
	}
	if errors.Is(err, errEncoding) {
		h.Set("Accept-Encoding", "gzip, zstd")
	}
	c.WriteHeader(r.Status)
	_, _ = c.Write(body) // the client has left, or reads it
}

// problemHeaders are those that the body calls for.
func problemHeaders(h http.Header, p *wire.Problem, size int) {
	h.Set("Content-Type", wire.ProblemType)
	h.Set("Cache-Control", CacheNone)
	h.Set("Content-Length", strconv.Itoa(size))
	if p.Status != http.StatusRequestedRangeNotSatisfiable { // there it says of which content the length is
		h.Del("Etag")
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="ronbox"`)
	}
}

func problemType(service, reason string) string {
	return "urn:ronbox:problem:" + service + ":" + reason
}

func (s *Server) problem(c *Request, r ErrorRule, err error) *wire.Problem {
	p := &wire.Problem{
		Type: problemType(c.service.Name, r.Reason), Title: r.Title, Status: r.Status,
		Detail: r.Hint, Instance: instance(c.corrID), Code: r.Code, Reason: r.Reason, Service: c.service.Name,
		Retryable: r.Retry, CorrID: c.corrID, RetryAfter: s.retryAfter(c.settings, c.service, r.Wait, err),
	}
	switch {
	case r.Hint != "":
	case r.Text != nil:
		p.Detail = r.Text(err)
	default:
		p.Detail = err.Error()
	}
	if r.Details != nil {
		p.Details = r.Details(err)
	}
	return p
}

// instance is the correlation id as a URN.
func instance(corrID string) string {
	if isUUID(corrID) {
		return "urn:uuid:" + strings.ToLower(corrID)
	}
	return "urn:ulid:" + corrID
}

// retryAfter is in seconds, 0 for none.
func (s *Server) retryAfter(l *settings, sv *service, w Wait, err error) int {
	switch w {
	case WaitBusy:
		return 1 + rand.IntN(2)
	case WaitDegraded:
		return sv.RetryAfter
	case WaitDrain:
		left := l.drainCap - s.gate.draining(s.now())
		return int(max(left, 0).Round(time.Second)/time.Second) + nodeRetry
	case WaitToken:
		return max(1, int((tokenWait(err)+time.Second-1)/time.Second))
	case WaitNone:
	}
	return 0
}
