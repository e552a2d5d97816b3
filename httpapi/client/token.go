package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"ronbox/httpapi/wire"
)

// Mint makes a token. Its text is in this answer and nowhere else.
func (c *Client) Mint(ctx context.Context, m wire.MintRequest) (wire.Token, error) {
	return adminPost[wire.Token](ctx, c, "tokens", m)
}

// Tokens reads one page of the tokens in force, without their texts; cursor is the Next of the page before, limit 0
// the node's own page size.
func (c *Client) Tokens(ctx context.Context, cursor string, limit int) (wire.TokenList, error) {
	k := call{method: http.MethodGet, path: adminPath + "tokens", query: page("cursor", cursor, limit)}
	return ask[wire.TokenList](ctx, c, k)
}

// Revoke ends tokens. It is in force when the answer comes. Idempotent.
func (c *Client) Revoke(ctx context.Context, r wire.RevokeRequest) (wire.Revoked, error) {
	return adminPost[wire.Revoked](ctx, c, "tokens/revoke", r)
}

// VerifyToken asks what a token would be allowed, and why not.
func (c *Client) VerifyToken(ctx context.Context, r wire.VerifyRequest) (wire.Verdict, error) {
	return adminPost[wire.Verdict](ctx, c, "tokens/verify", r)
}

// Keys lists the root keys of tokens, never what is in them.
func (c *Client) Keys(ctx context.Context) (wire.KeyList, error) {
	return adminGet[wire.KeyList](ctx, c, "keys")
}

// RotateKey makes a new root key for the tokens minted from now on; those of the one before stay valid until they expire.
// Not idempotent: each call makes one.
func (c *Client) RotateKey(ctx context.Context) (wire.KeyInfo, error) {
	return adminPost[wire.KeyInfo](ctx, c, "keys/rotate", nil)
}

// RetireKey ends a root key and every token made with it.
func (c *Client) RetireKey(ctx context.Context, kid string) (wire.KeyInfo, error) {
	return adminPost[wire.KeyInfo](ctx, c, "keys/"+url.PathEscape(kid)+"/retire", nil)
}

// page is the query for one page of a list.
func page(cursorName, cursor string, limit int) url.Values {
	q := url.Values{}
	if cursor != "" {
		q.Set(cursorName, cursor)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}
