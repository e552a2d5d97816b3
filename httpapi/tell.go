package httpapi

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

// degradedRetry is the Retry-After, in seconds, of a node that cannot do something for now.
const degradedRetry = 5

// walletRetry is that of the wallet, which looks after its ledger every 25 ms.
const walletRetry = 2

// classify finds the row that knows err, in the words of a service.
func (s *Server) classify(service string, err error) row {
	r := internalRow()
	for _, known := range s.rows {
		if known.is(err) {
			r = known
			break
		}
	}
	if r.coded {
		return r.byCode(err)
	}
	if service == serviceWallet {
		return r.inWallet()
	}
	return r
}

// tell answers the call with the problem that err is, and counts it. It returns false when an answer had begun.
func (s *Server) tell(c *call, b *bound, err error) bool {
	r := s.classify(b.route.Service, err)
	c.reason = r.reason
	s.rejected(b.route.Service, r.reason)
	if errors.Is(err, errBodySlow) {
		s.timedOut(b.route.Service, front.OpRead)
	}
	if r.status == http.StatusTooManyRequests && b.busy != nil {
		b.busy(1)
	}
	if c.status != 0 {
		return false
	}
	s.writeProblem(c, r, err)
	return true
}

func (s *Server) writeProblem(c *call, r row, err error) {
	p := s.problem(c, r, err)
	body, merr := encode(p)
	if merr != nil { // plain strings and numbers only: cannot happen
		body = []byte(`{"status":500}`)
	}
	h := c.Header()
	problemHeaders(h, p, len(body))
	if r.reason == reasonDraining {
		h.Set("Connection", "close")
	}
	var m *methodError
	if errors.As(err, &m) {
		h.Set("Allow", strings.Join(m.allow, ", "))
	}
	if errors.Is(err, errEncoding) {
		h.Set("Accept-Encoding", "gzip, zstd")
	}
	c.WriteHeader(r.status)
	_, _ = c.Write(body) // who does not read it has left
}

// problemHeaders are those that the body calls for.
func problemHeaders(h http.Header, p *wire.Problem, size int) {
	h.Set("Content-Type", wire.ProblemType)
	h.Set("Cache-Control", cacheNone)
	h.Set("Content-Length", strconv.Itoa(size))
	h.Del("Etag")
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

func (s *Server) problem(c *call, r row, err error) *wire.Problem {
	service := c.route.Service
	p := &wire.Problem{
		Type: problemType(service, r.reason), Title: r.title, Status: r.status,
		Detail: r.hint, Instance: instance(c.corrID), Code: r.code, Reason: r.reason, Service: service,
		Retryable: r.retry, CorrID: c.corrID, RetryAfter: s.retryAfter(c.live, service, r.wait, err),
	}
	switch {
	case r.hint != "":
	case r.say != nil:
		p.Detail = r.say(err)
	default:
		p.Detail = err.Error()
	}
	if r.more != nil {
		p.Details = r.more(err)
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
func (s *Server) retryAfter(l *live, service string, w wait, err error) int {
	switch w {
	case waitBusy:
		return 1 + rand.IntN(2)
	case waitDegraded:
		if service == serviceWallet {
			return walletRetry
		}
		return degradedRetry
	case waitDrain:
		left := l.drainCap - s.gate.draining(s.now())
		return int(max(left, 0).Round(time.Second)/time.Second) + degradedRetry
	case waitToken:
		return max(1, int((tokenWait(err)+time.Second-1)/time.Second))
	case waitNone:
	}
	return 0
}

// rejected counts one refusal.
func (s *Server) rejected(service, reason string) {
	key := service + "\xff" + reason
	f, ok := s.refusals.Load(key)
	if !ok {
		f, _ = s.refusals.LoadOrStore(key, s.d.Metrics.Counter("rejected_total", service, "reason", reason))
	}
	f.(func(int))(1)
}

// timedOut counts a request that was not read in time, or an answer that was not written in time.
func (s *Server) timedOut(service, op string) {
	sv := s.services[service]
	if op == front.OpWrite {
		sv.lateWrites(1)
		return
	}
	sv.lateReads(1)
}

// tokenWait is how long the bucket that refused takes to its next token.
func tokenWait(err error) time.Duration {
	var empty *rateError
	var failed *auth.LimitedError
	switch {
	case errors.As(err, &empty):
		return empty.wait
	case errors.As(err, &failed):
		return failed.RetryAfter
	}
	return 0
}
