package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
)

const (
	corrHeader   = "X-Corr-ID"
	replayHeader = "Idempotent-Replayed"

	smallBody = 4 << 20   // any answer but a set of items
	largeBody = 256 << 20 // a set: 65,536 descriptors of 4 KiB on average
)

// call is one request and what to do with its answer.
type call struct {
	method string
	path   string
	query  url.Values
	header http.Header // beside those of every request
	body   any         // JSON, none when nil
	into   any         // JSON, the answer is dropped when nil
	limit  int64       // of the answer in bytes, smallBody when 0
	accept []int       // statuses at or above 300 whose body is the answer too
}

func (k call) String() string { return k.method + " " + k.path }

// do performs k within the client's timeout and returns the answer's header.
func (c *Client) do(ctx context.Context, k call) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.send(ctx, k)
	if err != nil {
		return nil, err
	}
	defer drainClose(resp.Body)
	raw, err := c.read(ctx, k, resp)
	if err != nil || k.into == nil {
		return resp.Header, err
	}
	if b, ok := k.into.(*[]byte); ok {
		*b = raw
		return resp.Header, nil
	}
	if err := json.Unmarshal(raw, k.into); err != nil {
		return nil, fmt.Errorf("%s: the answer is not what this client knows: %w", k, err)
	}
	return resp.Header, nil
}

// ask performs k and gives its answer.
func ask[T any](ctx context.Context, c *Client, k call) (out T, err error) {
	k.into = &out
	_, err = c.do(ctx, k)
	return out, err
}

// read takes the whole body: an answer cut short is an unknown outcome, not a short answer.
func (c *Client) read(ctx context.Context, k call, resp *http.Response) ([]byte, error) {
	limit := k.limit
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
func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
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
	for _, s := range k.accept {
		if resp.StatusCode == s {
			return resp, nil
		}
	}
	defer drainClose(resp.Body)
	return nil, c.decodeProblem(resp)
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	target := c.base + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	var body io.Reader
	if k.body != nil {
		raw, err := json.Marshal(k.body)
		if err != nil {
			return nil, fmt.Errorf("%s: encode the request: %w", k, err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
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
	for name, values := range k.header {
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
