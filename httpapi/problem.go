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
	"ronbox/httpapi/refusal"
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
	ReasonCORSOff      = "cors_off"
)

// nodeRetry is the node's own Retry-After of refusal.WaitDegraded, in seconds.
const nodeRetry = 5

// Details holds further members of a problem.
type Details = map[string]any

// Map maps a kind of error to a row of the service's table, or else of refusal.Shared.
type Map struct {
	Is            func(error) bool
	Reason, Cause string // of the row; a cause becomes details.cause
	Details       func(error) Details
	Text          func(error) string // replaces Means and Changed of the row; nil: those are sent
}

// answer is a Map with its row, in the spelling of a service.
type answer struct {
	refusal.Row
	to Map
}

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

// Said returns the text of err. It is the Text of errors that are for the caller to read.
func Said(err error) string { return err.Error() }

// Told returns constant details.
func Told(d Details) func(error) Details { return func(error) Details { return d } }

// ErrNoSuch is returned by an engine for an unknown name: status 404.
var ErrNoSuch = errors.New("not found")

// internalMap maps bugs, and all errors that no other Map matches.
var internalMap = Map{Is: func(error) bool { return true }, Reason: ReasonInternal}

// answersOf binds the maps of a service, and then those that all services share, to their rows. It
// panics if a Map has no row.
func answersOf(sv *Service) []answer {
	var out []answer
	for _, m := range slices.Concat(sv.Errors, sharedMaps(), []Map{internalMap}) {
		row := sv.Refusals.Find(m.Reason, m.Cause)
		if row == nil || row.Cause != m.Cause {
			panic("httpapi: " + sv.Name + " has no row of " + m.Reason + " " + m.Cause)
		}
		out = append(out, answer{sv.spell(*row), m})
	}
	return out
}

// classify returns the answer to err.
func (s *service) classify(err error) *answer {
	for i := range s.answers {
		if s.answers[i].to.Is(err) {
			return &s.answers[i]
		}
	}
	return nil // the last one matches every error
}

// spell returns a row in the spelling of the service. Its own rows are in it already.
func (s *Service) spell(r refusal.Row) refusal.Row {
	if slices.Contains(s.Refusals, r) {
		return r
	}
	if s.TimeoutStatus != 0 {
		if r.Status == http.StatusGatewayTimeout {
			r.Status = s.TimeoutStatus
		}
		if r.Status == http.StatusServiceUnavailable && r.Wait == refusal.WaitNone {
			r.Wait = refusal.WaitDegraded
		}
	}
	return r
}

// Refusal is a kind of refusal that a service may answer.
type Refusal struct {
	Service string
	refusal.Row
}

// Refusals returns all kinds of refusals, by service.
func (s *Server) Refusals() (out []Refusal) {
	for _, name := range slices.Sorted(maps.Keys(s.services)) {
		sv := s.services[name]
		var seen refusal.Table
		for i := range sv.answers {
			if row := sv.answers[i].Row; !slices.Contains(seen, row) {
				seen = append(seen, row)
				out = append(out, Refusal{name, row})
			}
		}
	}
	return out
}

// refuse answers the request with a problem for err, and counts it. It returns false if an answer
// had begun.
func (s *Server) refuse(c *Request, b *boundRoute, err error) bool {
	r := b.service.classify(err)
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

func (s *Server) writeProblem(c *Request, r *answer, err error) {
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

func (s *Server) problem(c *Request, r *answer, err error) *wire.Problem {
	details := r.details(err)
	field, _ := details["field"].(string)
	text := ""
	if r.to.Text != nil {
		text = r.to.Text(err)
	}
	return &wire.Problem{
		Type: problemType(c.service.Name, r.Reason), Title: r.Title, Status: r.Status,
		Detail: r.Detail(text, field, details), Instance: instance(c.corrID),
		Reason: r.Reason, Service: c.service.Name, Retryable: r.Retry, CorrID: c.corrID,
		RetryAfter: s.retryAfter(c.settings, c.service, r.Wait, err), Details: details,
	}
}

// details returns the details of err, with the cause of the row.
func (a *answer) details(err error) (out Details) {
	if a.to.Details != nil {
		out = a.to.Details(err)
	}
	if a.Cause != "" {
		if out = maps.Clone(out); out == nil {
			out = Details{}
		}
		out["cause"] = a.Cause
	}
	return out
}

// instance returns the correlation id as a URN.
func instance(corrID string) string {
	if isUUID(corrID) {
		return "urn:uuid:" + strings.ToLower(corrID)
	}
	return "urn:ulid:" + corrID
}

// retryAfter returns the Retry-After in seconds, or 0 for none.
func (s *Server) retryAfter(l *settings, sv *service, w refusal.Wait, err error) int {
	switch w {
	case refusal.WaitBusy:
		return 1 + rand.IntN(2)
	case refusal.WaitDegraded:
		return sv.RetryAfter
	case refusal.WaitDrain:
		left := l.drainCap - s.gate.draining(s.now())
		return int(max(left, 0).Round(time.Second)/time.Second) + nodeRetry
	case refusal.WaitToken:
		return max(1, int((tokenWait(err)+time.Second-1)/time.Second))
	case refusal.WaitNone:
	}
	return 0
}
