package node

import (
	"time"

	"ronbox/httpapi/wire"
)

// MintRequest is the body of POST /admin/v1/tokens. TTL is a text such as "1h" or "30d"; empty
// means the default.
type MintRequest struct {
	Sub     string   `json:"sub,omitzero"`
	Tenant  string   `json:"tenant,omitzero"`
	Scopes  []string `json:"scopes"`
	TTL     string   `json:"ttl,omitzero" format:"duration?"`
	Path    string   `json:"path,omitzero"`
	Methods []string `json:"methods,omitempty"`
	Caveats []string `json:"caveats,omitempty" doc:"more caveats: ip = 10.0.0.0/8"`
}

// Token is the answer to MintRequest. No other answer contains the text of the token.
type Token struct {
	Token     string       `json:"token"`
	TID       string       `json:"tid" format:"ulid"`
	ExpiresAt wire.Instant `json:"expires_at"`
}

// TokenInfo is a minted token without its text: an entry of TokenList.
type TokenInfo struct {
	TID       string       `json:"tid" format:"ulid"`
	Kid       string       `json:"kid" doc:"root key that signed it"`
	Sub       string       `json:"sub"`
	Tenant    string       `json:"tenant,omitzero"`
	Scopes    []string     `json:"scopes"`
	Caveats   []string     `json:"caveats,omitempty" doc:"as minted; a holder may have appended more"`
	IssuedAt  wire.Instant `json:"issued_at"`
	ExpiresAt wire.Instant `json:"expires_at"`
	Revoked   bool         `json:"revoked"`
}

// TokenList is the body of GET /admin/v1/tokens: tokens that have not expired, oldest first.
type TokenList struct {
	Tokens []TokenInfo `json:"tokens"`
	Next   string      `json:"next,omitzero" doc:"?cursor= of the next page"`
}

// RevokeRequest is the body of POST /admin/v1/tokens/revoke. Exactly one of TID, Kid, Tenant and
// All is set. All revokes every token minted so far.
type RevokeRequest struct {
	TID    string `json:"tid,omitzero"`
	Kid    string `json:"kid,omitzero"`
	Tenant string `json:"tenant,omitzero"`
	All    bool   `json:"all,omitzero"`
	Reason string `json:"reason,omitzero" doc:"for the audit trail"`
}

// Revoked is the answer to RevokeRequest, sent after the revocation has taken effect.
type Revoked struct {
	What    string    `json:"what" enum:"tid|kid|tenant|epoch"`
	Value   string    `json:"value"`
	Until   time.Time `json:"until,omitzero" doc:"expiry of the last such token"`
	Already bool      `json:"already,omitzero" doc:"already revoked"`
}

// VerifyRequest is the body of POST /admin/v1/tokens/verify: a token and a request. Without a
// scope any token is sufficient. A caveat fails if its member among service to ip is missing,
// because every request has these. A missing member among tenant to bytes is not checked, because
// the engine checks it later.
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

// Verdict is the answer to VerifyRequest. The members after Reason are present only if the token
// is authentic.
type Verdict struct {
	Allowed   bool           `json:"allowed"`
	Authentic bool           `json:"authentic" doc:"signed by this node and not modified"`
	Reason    string         `json:"reason,omitzero"`
	TID       string         `json:"tid,omitzero" format:"ulid"`
	Kid       string         `json:"kid,omitzero"`
	Sub       string         `json:"sub,omitzero"`
	Tenant    string         `json:"tenant,omitzero"`
	Epoch     uint64         `json:"epoch,omitzero"`
	Scopes    []string       `json:"scopes,omitempty"`
	ExpiresAt wire.Instant   `json:"expires_at,omitzero"`
	Failed    []FailedCaveat `json:"failed,omitempty"`
}

// FailedCaveat is one caveat that the request does not meet.
type FailedCaveat struct {
	Caveat string `json:"caveat"`
	Reason string `json:"reason"`
}

// KeyInfo is a root key of tokens: an entry of KeyList, and the answer to POST
// /admin/v1/keys/rotate and /keys/{kid}/retire. No answer contains the secret.
type KeyInfo struct {
	Kid         string    `json:"kid"`
	State       string    `json:"state" enum:"active|verify|retired"`
	CreatedAt   time.Time `json:"created_at"`
	RotateAt    time.Time `json:"rotate_at,omitzero" doc:"of the active key: time of the next rotation"`
	VerifyUntil time.Time `json:"verify_until,omitzero" doc:"of a verifying key: expiry of its last token"`
}

// KeyList is the body of GET /admin/v1/keys, newest first.
type KeyList struct {
	Keys   []KeyInfo `json:"keys"`
	Active string    `json:"active" doc:"kid of the key that signs new tokens"`
}

// EventAudit is the name of frames of GET /admin/v1/audit/stream with an AuditRow.
const EventAudit = "audit"
