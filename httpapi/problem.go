package httpapi

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

// The reasons that services share. They are also values of a label of rejected_total. A service
// adds its own in its rules.
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
	ReasonNotLeader    = "not_leader"
)

// HintForbidden is the hint of a refusal for lack of permission.
const HintForbidden = "the caller has no permission for this; `ronbox token inspect` shows what a token permits"

// Wait selects the Retry-After of a rule.
type Wait int

const (
	WaitNone     Wait = iota
	WaitBusy          // 1 or 2 s, at random, so that refused callers do not come back together
	WaitDegraded      // Service.RetryAfter
	WaitToken         // until the bucket has a token, at least 1 s
	WaitDrain         // the rest of the drain, and 5 s to start again
)

// nodeRetry is the node's own WaitDegraded, in seconds.
const nodeRetry = 5

// Details holds further members of a problem.
type Details = map[string]any

// Outcome is the part of a refusal that programs read.
type Outcome struct {
	Status int
	Reason string
	Code   string // Reason in the spelling of the service
	Retry  bool   // repeating the same request may succeed
}

// ErrorRule converts one kind of error to a problem. Only rules contain statuses.
type ErrorRule struct {
	Is func(error) bool
	Outcome
	Classify func(error) Outcome // replaces Outcome; may be nil
	Title    string
	Wait     Wait
	Hint     string // sent instead of the text of the error, which is then only logged
	Details  func(error) Details
	Text     func(error) string // detail text; nil: the text of the error
}

// When, As, Say, Called, After and With return a copy of the rule with another condition, reason,
// hint, code and title, wait, or details.
func (r ErrorRule) When(is func(error) bool) ErrorRule         { r.Is = is; return r }
func (r ErrorRule) As(reason string) ErrorRule                 { r.Reason = reason; return r }
func (r ErrorRule) Say(hint string) ErrorRule                  { r.Hint = hint; return r }
func (r ErrorRule) After(wait Wait) ErrorRule                  { r.Wait = wait; return r }
func (r ErrorRule) Called(code, title string) ErrorRule        { r.Code, r.Title = code, title; return r }
func (r ErrorRule) With(details func(error) Details) ErrorRule { r.Details = details; return r }

// Is returns a condition: the error is or wraps target.
func Is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

// IsA reports whether err is or wraps a T.
func IsA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// Any returns a condition that holds if one of fs does.
func Any(fs ...func(error) bool) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(fs, func(f func(error) bool) bool { return f(err) })
	}
}

// Detail returns details made from a T in the error.
func Detail[T error](read func(T) Details) func(error) Details {
	return func(err error) Details {
		if e, ok := errors.AsType[T](err); ok {
			return read(e)
		}
		return nil
	}
}

// Field returns the detail "field" with the name of a member, parameter or header.
func Field[T error](name func(T) string) func(error) Details {
	return Detail(func(e T) Details {
		if n := name(e); n != "" {
			return Details{"field": n}
		}
		return nil
	})
}

// Told returns constant details.
func Told(d Details) func(error) Details { return func(error) Details { return d } }

// ErrNoSuch is returned by an engine for an unknown name: status 404.
var ErrNoSuch = errors.New("not found")

// classify returns the rule for err, with the codes of the service.
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

// spell returns a shared rule with the codes of the service.
func (s *service) spell(r ErrorRule) ErrorRule {
	if s.Code != nil {
		r.Code = s.Code(r.Reason)
	}
	if s.TimeoutStatus != 0 {
		if r.Status == http.StatusGatewayTimeout {
			r.Status = s.TimeoutStatus
		}
		if r.Status == http.StatusServiceUnavailable && r.Wait == WaitNone {
			r.Wait = WaitDegraded
		}
	}
	return r
}

// Refusal is a kind of refusal that a service may answer.
type Refusal struct {
	Service string
	Outcome
	Title string // empty: it depends on the error
}

// Refusals returns all kinds of refusals, by service.
func (s *Server) Refusals() (out []Refusal) {
	add := func(service string, o Outcome, title string) {
		if o.Reason != "" && o.Code != "" {
			out = append(out, Refusal{service, o, title})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.services)) {
		sv := s.services[name]
		for _, r := range sv.Errors {
			add(name, r.Outcome, r.Title)
		}
		for _, o := range sv.Words {
			add(name, o, "")
		}
		for _, r := range append(s.rules, internalRule()) {
			r = sv.spell(r)
			add(name, r.Outcome, r.Title)
		}
	}
	return out
}

// refuse answers the request with a problem for err, and counts it. It returns false if an answer
// had begun.
func (s *Server) refuse(c *Request, b *boundRoute, err error) bool {
	r := s.classify(b.service, err)
	c.reason = r.Reason
	s.rejected(b.service.Name, r.Reason, 1)
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
	if merr != nil { // plain strings and numbers: cannot happen
		body = []byte(`{"status":500}`)
	}
	h := c.Header()
	problemHeaders(h, p, len(body))
	if r.Reason == ReasonDraining {
		h.Set("Connection", "close")
	}
	if r.Reason == ReasonNotLeader {
		s.nameLeader(h)
	}
	if m, ok := errors.AsType[*methodError](err); ok {
		h.Set("Allow", strings.Join(m.allow, ", "))
	}
	if errors.Is(err, errEncoding) {
		h.Set("Accept-Encoding", "gzip, zstd")
	}
	c.WriteHeader(r.Status)
	_, _ = c.Write(body) // an error means that the client has left
}

// problemHeaders sets the headers of the problem.
func problemHeaders(h http.Header, p *wire.Problem, size int) {
	h.Set("Content-Type", wire.ProblemType)
	h.Set("Cache-Control", CacheNone)
	h.Set("Content-Length", strconv.Itoa(size))
	if p.Status != http.StatusRequestedRangeNotSatisfiable { // there it is the length of the content
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

// instance returns the correlation id as a URN.
func instance(corrID string) string {
	if isUUID(corrID) {
		return "urn:uuid:" + strings.ToLower(corrID)
	}
	return "urn:ulid:" + corrID
}

// retryAfter returns the Retry-After in seconds, or 0 for none.
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
