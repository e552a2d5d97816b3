package client

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/wire"
)

// adminPath is before every route of the operator.
const adminPath = "/admin/v1/"

// adminGet reads what an operator's route answers.
func adminGet[T any](ctx context.Context, c *Client, route string) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodGet, path: adminPath + route})
}

// adminPost sends body, none when nil, to an operator's route and reads the answer.
func adminPost[T any](ctx context.Context, c *Client, route string, body any) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodPost, path: adminPath + route, body: body})
}

// Status reads the node's own view of itself.
func (c *Client) Status(ctx context.Context) (wire.Status, error) {
	return adminGet[wire.Status](ctx, c, "status")
}

// Drain asks the node to stop in order; it answers before it does.
func (c *Client) Drain(ctx context.Context, reason string) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: adminPath + "drain", body: wire.DrainRequest{Reason: reason}})
	return err
}

// Genesis installs version 1 while the log is empty; one that has begun refuses with conflict.
func (c *Client) Genesis(ctx context.Context, payload []byte, approvals []wire.Approval) (wire.Committed, error) {
	return adminPost[wire.Committed](ctx, c, "registry/genesis", wire.Genesis{Payload: jsontext.Value(payload), Approvals: approvals})
}

// Config reads every key in force and where its value came from; a secret shows as "***".
func (c *Client) Config(ctx context.Context) (wire.ConfigShow, error) {
	return adminGet[wire.ConfigShow](ctx, c, "config")
}

// Reload has the node read its configuration again. A refusal changes nothing; its details name the keys.
func (c *Client) Reload(ctx context.Context) (wire.Reloaded, error) {
	return adminPost[wire.Reloaded](ctx, c, "config/reload", nil)
}
