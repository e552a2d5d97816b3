package client

import (
	"context"
	"net/http"
	"net/url"

	"ronbox/httpapi/wire"
)

// Healthz asks whether the process lives. It answers whatever state the node is in.
func (c *Client) Healthz(ctx context.Context) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/healthz"})
	return err
}

// Ready reads /readyz: of one service or, when empty, of the node; plane is "", "read" or "write". Not being ready is
// an answer, not an error.
func (c *Client) Ready(ctx context.Context, service, plane string) (wire.Ready, error) {
	q := url.Values{}
	if service != "" {
		q.Set("service", service)
	}
	if plane != "" {
		q.Set("plane", plane)
	}
	return ask[wire.Ready](ctx, c, call{
		method: http.MethodGet, path: "/readyz", query: q, accept: []int{http.StatusServiceUnavailable},
	})
}

// NodeVersion reads what is running and which database it serves.
func (c *Client) NodeVersion(ctx context.Context) (wire.VersionInfo, error) {
	return ask[wire.VersionInfo](ctx, c, call{method: http.MethodGet, path: "/version"})
}

// Metrics reads one scrape in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.bytes(ctx, "/metrics") }

// OpenAPI reads the document that describes every route.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) { return c.bytes(ctx, "/openapi.json") }

// Schema reads the JSON Schema of one body, named as in the components of OpenAPI.
func (c *Client) Schema(ctx context.Context, name string) ([]byte, error) {
	return c.bytes(ctx, "/schema/"+url.PathEscape(name))
}
