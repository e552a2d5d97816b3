package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
)

// ReplayHeader is "true" if an earlier request did the work.
const ReplayHeader = "Idempotent-Replayed"

const (
	corrHeader = "X-Corr-ID"
	smallBody  = 4 << 20 // default bound of an answer
)

// Call describes a request and how its answer is read.
type Call struct {
	Method string      // default GET
	Path   string      // escaped
	Query  Query       // may be nil
	Header http.Header // in addition to those of every request
	Body   any         // sent as JSON; a []byte is sent as is, with its type in Header; may be nil
	Stream io.Reader   // sent instead of Body, with its type in Header; may be nil
	Length int64       // bytes of Stream
	Into   any         // decoded from JSON, or a *[]byte for the raw bytes; nil: discarded
	Limit  int64       // of the answer in bytes; 0: 4 MiB
	Accept []int       // statuses from 300 on that are answers, not errors
}

func (k Call) String() string { return cmp.Or(k.Method, http.MethodGet) + " " + k.Path }

// Query holds the parameters of a call. Its methods skip empty values.
type Query url.Values

// Text adds a parameter unless v is empty.
func (q Query) Text(name, v string) Query {
	if v != "" {
		url.Values(q).Set(name, v)
	}
	return q
}

// Number adds a parameter unless v is 0.
func (q Query) Number(name string, v uint64) Query {
	if v == 0 {
		return q
	}
	return q.Text(name, strconv.FormatUint(v, 10))
}

// Time adds a parameter unless at is zero.
func (q Query) Time(name string, at time.Time) Query {
	if at.IsZero() {
		return q
	}
	return q.Text(name, at.UTC().Format(time.RFC3339Nano))
}

// Page adds the parameters of a page of a list: cursor unless it is empty, and limit unless it is
// 0.
func (q Query) Page(cursor string, limit int) Query {
	return q.Text("cursor", cursor).Number("limit", uint64(max(limit, 0)))
}

// Do performs k within the client's timeout and returns the header of the answer.
func (c *Client) Do(ctx context.Context, k Call) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.send(ctx, k)
	if err != nil {
		return nil, err
	}
	defer drainClose(resp.Body)
	raw, err := c.read(ctx, k, resp)
	if err != nil || k.Into == nil {
		return resp.Header, err
	}
	if b, ok := k.Into.(*[]byte); ok {
		*b = raw
		return resp.Header, nil
	}
	if err := json.Unmarshal(raw, k.Into); err != nil {
		return nil, fmt.Errorf("%s: the answer is not in the expected form: %w", k, err)
	}
	return resp.Header, nil
}

// Ask performs k and returns the decoded answer.
func Ask[T any](ctx context.Context, c *Client, k Call) (out T, err error) {
	k.Into = &out
	_, err = c.Do(ctx, k)
	return out, err
}

// Bytes performs GET path and returns the body.
func (c *Client) Bytes(ctx context.Context, path string) ([]byte, error) {
	return Ask[[]byte](ctx, c, Call{Path: path})
}

// read reads the whole body. A truncated body means an unknown outcome.
func (c *Client) read(ctx context.Context, k Call, resp *http.Response) ([]byte, error) {
	limit := k.Limit
	if limit == 0 {
		limit = smallBody
	}
	raw, err := readBounded(resp.Body, limit)
	if err == nil {
		return raw, nil
	}
	return nil, c.transportError(ctx, k.String(), err)
}

// sendOnce sends k to the node at a URL. It also returns the leader that the answer names, or "".
func (c *Client) sendOnce(ctx context.Context, k Call, base string) (*http.Response, string, error) {
	req, err := c.request(ctx, k, base)
	if err != nil {
		return nil, "", err
	}
	var connected, fresh, sent atomic.Bool
	trace := &httptrace.ClientTrace{
		GotConn:      func(g httptrace.GotConnInfo) { connected.Store(true); fresh.Store(!g.Reused) },
		WroteHeaders: func() { sent.Store(true) },
	}
	resp, err := c.http.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		if late := context.Cause(ctx); !connected.Load() && errors.Is(late, context.DeadlineExceeded) {
			return nil, "", fmt.Errorf("%w at %s: %w", ErrNotReachable, c.where, late)
		}
		if fresh.Load() {
			if refused := c.turnedAway(ctx); refused != nil {
				return nil, "", refused
			}
		}
		// net/http tries some requests again by itself, so the error may be that of a later try
		if sent.Load() && req.Method != http.MethodGet {
			return nil, "", lostAnswer(ctx, k.String(), err)
		}
		return nil, "", c.transportError(ctx, k.String(), err)
	}
	leader := resp.Header.Get(wire.LeaderHeader)
	if resp.StatusCode < http.StatusMultipleChoices || slices.Contains(k.Accept, resp.StatusCode) {
		return resp, leader, nil
	}
	defer drainClose(resp.Body)
	return nil, leader, c.decodeProblem(resp)
}

// turnedAwayWithin bounds the wait for the refusal of a connection.
const turnedAwayWithin = 200 * time.Millisecond

// turnedAway returns the refusal of a node whose socket this user may not use, or nil. The node
// sends it to each connection before it reads a request, so that net/http may lose it.
func (c *Client) turnedAway(ctx context.Context) error {
	if c.socket == "" || ctx.Err() != nil {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(turnedAwayWithin))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		return nil
	}
	defer drainClose(resp.Body)
	return c.decodeProblem(resp)
}

func (c *Client) request(ctx context.Context, k Call, base string) (*http.Request, error) {
	target := base + k.Path
	if len(k.Query) > 0 {
		target += "?" + url.Values(k.Query).Encode()
	}
	var body io.Reader
	if k.Body != nil {
		raw, ready := k.Body.([]byte)
		if !ready {
			var err error
			if raw, err = json.Marshal(k.Body); err != nil {
				return nil, fmt.Errorf("%s: encode the request: %w", k, err)
			}
		}
		body = bytes.NewReader(raw)
	}
	if k.Stream != nil && k.Length > 0 {
		body = k.Stream
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(k.Method, http.MethodGet), target, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k, err)
	}
	if k.Stream != nil {
		req.ContentLength = k.Length
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.agent != "" {
		req.Header.Set("User-Agent", c.agent)
	}
	for name, values := range k.Header {
		req.Header[name] = values
	}
	req.Header.Set(corrHeader, newCorrID())
	return req, nil
}

// readBounded reads all of r. It returns ErrTooLarge after limit bytes.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return raw, nil
}

// drainClose reads a short rest of the body, so that the connection can be reused.
func drainClose(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 16<<10) // reading more could cost more than a new connection
	_ = body.Close()
}

var (
	// ErrNotReachable is returned if no connection was made. Nothing was sent.
	ErrNotReachable = errors.New("node not reachable")
	// ErrUnknown is returned if the request may have been sent and there is no complete answer.
	ErrUnknown = errors.New("outcome unknown")
	// errNoAnswer is ErrUnknown for a request that only reads, and so has no outcome.
	errNoAnswer error = &readError{}
	// ErrTooLarge is returned if an answer exceeds the limit of the client.
	ErrTooLarge = errors.New("answer too large")
)

// transportError converts an error of http.Client.Do. After a failed dial the request was not sent.
// After other errors the outcome is unknown.
func (c *Client) transportError(ctx context.Context, what string, err error) error {
	cause := context.Cause(ctx)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%w at %s: %w", ErrNotReachable, c.where, op.Err)
	}
	if tls, ok := errors.AsType[*handshakeError](err); ok && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%w at %s: %w", ErrNotReachable, c.where, tls)
	}
	return lostAnswer(ctx, what, err)
}

// lostAnswer returns the error of a request that may have been sent and has no complete answer.
func lostAnswer(ctx context.Context, what string, err error) error {
	cause := context.Cause(ctx)
	lost := ErrUnknown
	if strings.HasPrefix(what, http.MethodGet+" ") {
		lost = errNoAnswer
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the method and URL
	}
	return fmt.Errorf("%s: %w: %w", what, lost, cmp.Or(cause, err))
}

// readError is ErrUnknown with another text.
type readError struct{}

func (*readError) Error() string { return "no whole answer" }

func (*readError) Is(target error) bool { return target == ErrUnknown }

// Retryable reports whether the same call may succeed later: the node said so, was not reachable,
// or its answer was lost. A mutation may be repeated only if the call is idempotent, as its
// documentation says.
func Retryable(err error) bool {
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return p.Retryable || p.Unknown()
	}
	return errors.Is(err, ErrNotReachable) || errors.Is(err, ErrUnknown) && !errors.Is(err, ErrTooLarge)
}

// decodeProblem returns the problem in a refusal. For an answer without one, such as a page of a
// proxy, it returns a problem that says so.
func (c *Client) decodeProblem(resp *http.Response) error {
	body, err := readBounded(resp.Body, smallBody)
	p := &wire.Problem{}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if err == nil && strings.TrimSpace(media) == wire.ProblemType && json.Unmarshal(body, p) == nil && p.Reason != "" {
		p.Status = resp.StatusCode
		return p
	}
	where := c.where
	if len(c.hosts.urls) > 1 {
		where = resp.Request.URL.Scheme + "://" + resp.Request.URL.Host
	}
	return &wire.Problem{
		Type: "about:blank", Title: http.StatusText(resp.StatusCode), Status: resp.StatusCode,
		Detail: fmt.Sprintf("%s answered without a problem document; is it a ronbox node?", where),
		Reason: "foreign_answer", Service: "client", CorrID: resp.Header.Get(corrHeader),
		Retryable: resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError,
	}
}

// Healthz checks that the process is alive, in any state of the node.
func (c *Client) Healthz(ctx context.Context) error {
	_, err := c.Do(ctx, Call{Path: "/healthz"})
	return err
}

// Ready reads /readyz of a service, or of the node if service is empty. plane is "", "read" or
// "write". A node that is not ready is not an error.
func (c *Client) Ready(ctx context.Context, service, plane string) (wire.Ready, error) {
	q := Query{}.Text("service", service).Text("plane", plane)
	return Ask[wire.Ready](ctx, c, Call{Path: "/readyz", Query: q, Accept: []int{http.StatusServiceUnavailable}})
}

// NodeVersion returns the version of the node and the identity of its database.
func (c *Client) NodeVersion(ctx context.Context) (wire.VersionInfo, error) {
	return Ask[wire.VersionInfo](ctx, c, Call{Path: "/version"})
}

// Metrics returns one scrape in the Prometheus text format.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.Bytes(ctx, "/metrics") }

// OpenAPI returns the OpenAPI document.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) { return c.Bytes(ctx, "/openapi.json") }

// Schema returns the JSON Schema of one body, by its name in the OpenAPI components.
func (c *Client) Schema(ctx context.Context, name string) ([]byte, error) {
	return c.Bytes(ctx, "/schema/"+url.PathEscape(name))
}
