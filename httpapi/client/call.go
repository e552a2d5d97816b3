package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
)

// ReplayHeader is "true" in the answer to a request that an earlier one has done.
const ReplayHeader = "Idempotent-Replayed"

const (
	corrHeader = "X-Corr-ID"
	smallBody  = 4 << 20 // any answer that does not say otherwise
)

// Call is one request and what to do with its answer.
type Call struct {
	Method string      // GET when empty
	Path   string      // escaped
	Query  Query       // none when empty
	Header http.Header // beside those of every request
	Body   any         // JSON, none when nil; a []byte is sent as it is, its type being in Header
	Into   any         // JSON, or a *[]byte for the bytes as they are; the answer is dropped when nil
	Limit  int64       // of the answer in bytes, 4 MiB when 0
	Accept []int       // statuses at or above 300 whose body is the answer too
}

func (k Call) String() string { return cmp.Or(k.Method, http.MethodGet) + " " + k.Path }

// Query collects the parameters of a call; those without a value are left out.
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

// Page adds what asks for a page of a list: from cursor on, unless it is empty, with limit rows, unless that is 0.
func (q Query) Page(cursor string, limit int) Query {
	return q.Text("cursor", cursor).Number("limit", uint64(max(limit, 0)))
}

// Do performs k within the client's timeout and returns the answer's header.
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
		return nil, fmt.Errorf("%s: the answer is not what this client knows: %w", k, err)
	}
	return resp.Header, nil
}

// Ask performs k and gives its answer.
func Ask[T any](ctx context.Context, c *Client, k Call) (out T, err error) {
	k.Into = &out
	_, err = c.Do(ctx, k)
	return out, err
}

// Bytes reads path as it is answered.
func (c *Client) Bytes(ctx context.Context, path string) ([]byte, error) {
	return Ask[[]byte](ctx, c, Call{Path: path})
}

// read takes the whole body: an answer cut short is an unknown outcome, not a short answer.
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

// send returns an answer with a status below 300 or one that k accepts; the caller closes its body.
func (c *Client) send(ctx context.Context, k Call) (*http.Response, error) {
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, k.String(), err)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	for _, s := range k.Accept {
		if resp.StatusCode == s {
			return resp, nil
		}
	}
	defer drainClose(resp.Body)
	return nil, c.decodeProblem(resp)
}

func (c *Client) request(ctx context.Context, k Call) (*http.Request, error) {
	target := c.base + k.Path
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
	req, err := http.NewRequestWithContext(ctx, cmp.Or(k.Method, http.MethodGet), target, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k, err)
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

// readBounded reads all of r, or says ErrTooLarge after limit bytes.
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

// drainClose lets the connection be used again when little is left to read.
func drainClose(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 16<<10) // a full drain could cost more than a new connection
	_ = body.Close()
}

var (
	// ErrNotReachable means that no connection to the node came about: nothing was sent.
	ErrNotReachable = errors.New("node not reachable")
	// ErrUnknown means that a request may have been sent, and that there is no whole answer.
	ErrUnknown = errors.New("outcome unknown")
	// errNoAnswer is ErrUnknown of a request that only reads: there is no outcome to know.
	errNoAnswer error = &readError{}
	// ErrTooLarge means that an answer is larger than this client reads.
	ErrTooLarge = errors.New("answer too large")
)

// transportError sorts what http.Client.Do returned. A failed dial sent nothing; after that anything may have happened.
func (c *Client) transportError(ctx context.Context, what string, err error) error {
	cause := context.Cause(ctx)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%w at %s: %w", ErrNotReachable, c.where, op.Err)
	}
	if tls, ok := errors.AsType[*handshakeError](err); ok && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%w at %s: %w", ErrNotReachable, c.where, tls)
	}
	lost := ErrUnknown
	if strings.HasPrefix(what, http.MethodGet+" ") {
		lost = errNoAnswer
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // what says which call it was
	}
	return fmt.Errorf("%s: %w: %w", what, lost, cmp.Or(cause, err))
}

// readError is an ErrUnknown in other words.
type readError struct{}

func (*readError) Error() string { return "no whole answer" }

func (*readError) Is(target error) bool { return target == ErrUnknown }

// Retryable reports whether the same call may succeed later without any change: the node said so, was not there, or its
// answer was lost. A mutation may be repeated only where the call is idempotent; those of this package say so.
func Retryable(err error) bool {
	if p, ok := errors.AsType[*wire.Problem](err); ok {
		return p.Retryable || p.Unknown()
	}
	return errors.Is(err, ErrNotReachable) || errors.Is(err, ErrUnknown) && !errors.Is(err, ErrTooLarge)
}

// decodeProblem reads a refusal; an answer that is none (a proxy's page) becomes one that says so.
func (c *Client) decodeProblem(resp *http.Response) error {
	body, err := readBounded(resp.Body, smallBody)
	p := &wire.Problem{}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if err == nil && strings.TrimSpace(media) == wire.ProblemType && json.Unmarshal(body, p) == nil && p.Reason != "" {
		p.Status = resp.StatusCode
		return p
	}
	return &wire.Problem{
		Type: "about:blank", Title: http.StatusText(resp.StatusCode), Status: resp.StatusCode,
		Detail: fmt.Sprintf("%s answered without a problem document; is it a ronbox node?", c.where),
		Code:   "Foreign", Reason: "foreign_answer", Service: "client", CorrID: resp.Header.Get(corrHeader),
		Retryable: resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError,
	}
}

// Healthz asks whether the process lives. It answers whatever state the node is in.
func (c *Client) Healthz(ctx context.Context) error {
	_, err := c.Do(ctx, Call{Path: "/healthz"})
	return err
}

// Ready reads /readyz: of one service or, when empty, of the node; plane is "", "read" or "write". Not being ready is
// an answer, not an error.
func (c *Client) Ready(ctx context.Context, service, plane string) (wire.Ready, error) {
	q := Query{}.Text("service", service).Text("plane", plane)
	return Ask[wire.Ready](ctx, c, Call{Path: "/readyz", Query: q, Accept: []int{http.StatusServiceUnavailable}})
}

// NodeVersion reads what is running and which database it serves.
func (c *Client) NodeVersion(ctx context.Context) (wire.VersionInfo, error) {
	return Ask[wire.VersionInfo](ctx, c, Call{Path: "/version"})
}

// Metrics reads one scrape in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.Bytes(ctx, "/metrics") }

// OpenAPI reads the document that describes every route.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) { return c.Bytes(ctx, "/openapi.json") }

// Schema reads the JSON Schema of one body, named as in the components of OpenAPI.
func (c *Client) Schema(ctx context.Context, name string) ([]byte, error) {
	return c.Bytes(ctx, "/schema/"+url.PathEscape(name))
}
