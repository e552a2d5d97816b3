package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
)

var (
	// ErrNotReachable means that no connection to the node came about: nothing was sent.
	ErrNotReachable = errors.New("node not reachable")
	// ErrUnknown means that a request may have been sent, and that there is no whole answer.
	ErrUnknown = errors.New("outcome unknown")
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
	if cause != nil {
		return fmt.Errorf("%s: %w: %w", what, ErrUnknown, cause)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrUnknown, err)
}

// Retryable tells whether the same call may succeed later without any change: the node said so, was not there, or its
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
