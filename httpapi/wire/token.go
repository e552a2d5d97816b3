package wire

import "time"

// MintRequest is the body of POST /admin/v1/tokens. TTL is text such as "1h" or
// "30d"; empty is the node's default.
type MintRequest struct {
	Sub     string   `json:"sub,omitzero"`
	Tenant  string   `json:"tenant,omitzero"`
	Scopes  []string `json:"scopes"`
	TTL     string   `json:"ttl,omitzero" format:"duration?"`
	Path    string   `json:"path,omitzero"`
	Methods []string `json:"methods,omitempty"`
	Caveats []string `json:"caveats,omitempty" doc:"more caveats: ip = 10.0.0.0/8"`
}

// Token answers MintRequest. The token text is shown this once.
type Token struct {
	Token     string    `json:"token"`
	TID       string    `json:"tid" format:"ulid"`
	ExpiresAt time.Time `json:"expires_at"`
}

// TokenInfo is one minted token without its secret part: a row of TokenList.
type TokenInfo struct {
	TID       string    `json:"tid" format:"ulid"`
	Kid       string    `json:"kid" doc:"the root key that made it"`
	Sub       string    `json:"sub"`
	Tenant    string    `json:"tenant,omitzero"`
	Scopes    []string  `json:"scopes"`
	Caveats   []string  `json:"caveats,omitempty" doc:"as minted; a holder may have added more"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Revoked   bool      `json:"revoked"`
}

// TokenList is the body of GET /admin/v1/tokens: those not yet expired, oldest first.
type TokenList struct {
	Tokens []TokenInfo `json:"tokens"`
	Next   string      `json:"next,omitzero" doc:"?cursor= of the next page"`
}

// RevokeRequest is the body of POST /admin/v1/tokens/revoke. Exactly one of
// TID, Kid, Tenant and All is given; All ends every token made so far.
type RevokeRequest struct {
	TID    string `json:"tid,omitzero"`
	Kid    string `json:"kid,omitzero"`
	Tenant string `json:"tenant,omitzero"`
	All    bool   `json:"all,omitzero"`
	Reason string `json:"reason,omitzero" doc:"for the audit trail"`
}

// Revoked answers RevokeRequest; it is in force when it is sent.
type Revoked struct {
	What    string    `json:"what" enum:"tid|kid|tenant|epoch"`
	Value   string    `json:"value"`
	Until   time.Time `json:"until,omitzero" doc:"when the last such token would have expired by itself"`
	Already bool      `json:"already,omitzero" doc:"it was revoked before"`
}

// VerifyRequest is the body of POST /admin/v1/tokens/verify: a token and the
// request it would be used for. Of what every request has, service to ip, a
// caveat fails on a member left out; without a scope any token will do. What a
// request may not have, tenant to bytes, is not asked about where it is left
// out: engines look there when they know.
type VerifyRequest struct {
	Token   string `json:"token"`
	Scope   string `json:"scope,omitzero"`
	Service string `json:"service,omitzero" doc:"the audience"`
	Method  string `json:"method,omitzero"`
	Path    string `json:"path,omitzero"`
	IP      string `json:"ip,omitzero"`
	Tenant  string `json:"tenant,omitzero"`
	Account string `json:"account,omitzero"`
	Asset   string `json:"asset,omitzero"`
	Amount  string `json:"amount,omitzero" format:"amount?" doc:"decimal minor units"`
	Epoch   string `json:"epoch,omitzero"`
	Signer  string `json:"signer,omitzero"`
	Bytes   int64  `json:"bytes,omitzero" doc:"size of the body"`
}

// Verdict answers VerifyRequest. What follows Reason is only told when the
// token is authentic.
type Verdict struct {
	Allowed   bool           `json:"allowed"`
	Authentic bool           `json:"authentic" doc:"the node made it and nobody changed it"`
	Reason    string         `json:"reason,omitzero"`
	TID       string         `json:"tid,omitzero" format:"ulid"`
	Kid       string         `json:"kid,omitzero"`
	Sub       string         `json:"sub,omitzero"`
	Tenant    string         `json:"tenant,omitzero"`
	Epoch     uint64         `json:"epoch,omitzero"`
	Scopes    []string       `json:"scopes,omitempty"`
	ExpiresAt time.Time      `json:"expires_at,omitzero"`
	Failed    []FailedCaveat `json:"failed,omitempty"`
}

// FailedCaveat is one caveat that forbids what VerifyRequest asks about.
type FailedCaveat struct {
	Caveat string `json:"caveat"`
	Reason string `json:"reason"`
}

// KeyInfo is a root key of tokens: a row of KeyList, and the answer to
// POST /admin/v1/keys/rotate and /keys/{kid}/retire. The key itself is nowhere.
type KeyInfo struct {
	Kid         string    `json:"kid"`
	State       string    `json:"state" enum:"active|verify|retired"`
	CreatedAt   time.Time `json:"created_at"`
	RotateAt    time.Time `json:"rotate_at,omitzero" doc:"of the active one: when the next takes its place"`
	VerifyUntil time.Time `json:"verify_until,omitzero" doc:"of one in overlap: when its last token expires"`
}

// KeyList is the body of GET /admin/v1/keys, newest first.
type KeyList struct {
	Keys   []KeyInfo `json:"keys"`
	Active string    `json:"active" doc:"kid of the key that signs new tokens"`
}
