package appliance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// Mint makes a token. It is in the file and on the audit chain before it is handed out.
func (n *Node) Mint(ctx context.Context, by engines.Actor, corrID string, m wire.MintRequest) (wire.Token, error) {
	if m.Tenant == "" {
		m.Tenant = by.Tenant
	}
	held, err := mayMint(by, m)
	if err != nil {
		return wire.Token{}, err
	}
	m.Caveats = append(slices.Clone(m.Caveats), held...)
	spec, err := mintSpec(m)
	if err != nil {
		return wire.Token{}, err
	}
	if spec.Sub == "" {
		spec.Sub = by.Principal
	}
	spec.Now = n.now()
	return n.mint(ctx, by, corrID, spec)
}

func mintSpec(m wire.MintRequest) (auth.MintSpec, error) {
	spec := auth.MintSpec{
		Sub: m.Sub, Tenant: m.Tenant, Scopes: m.Scopes, Path: m.Path, Methods: m.Methods, Caveats: m.Caveats,
	}
	if m.TTL != "" {
		ttl, err := unit.ParseDuration(m.TTL)
		if err != nil {
			return spec, fmt.Errorf("%w: ttl %q: must be a duration such as 1h or 30d", auth.ErrSpec, m.TTL)
		}
		spec.TTL = ttl.D()
	}
	return spec, nil
}

// mint makes the token with the key that is active, and again with the next one if that was rotated meanwhile.
func (n *Node) mint(ctx context.Context, by engines.Actor, corrID string, spec auth.MintSpec) (wire.Token, error) {
	for tries := 0; ; tries++ {
		token, id, err := n.auth.Mint(spec)
		if err != nil {
			return wire.Token{}, err
		}
		seen, err := auth.Inspect(token)
		if err != nil {
			return wire.Token{}, fmt.Errorf("read what was minted: %w", err)
		}
		add := addToken{ID: tokenPrefix + tokenID(id.TID), Row: newTokenRow(seen)}
		add.Note = auditEvent("auth.token_minted", by, corrID, map[string]string{
			"tid": id.TID, "kid": id.Kid, "sub": id.Sub, "tenant": id.Tenant, "scopes": strings.Join(add.Row.Scopes, ","),
			"caveats": strings.Join(add.Row.Caveats, "; "), "expires_at": seen.ExpiresAt.Format(time.RFC3339),
		})
		_, err = store.Commit(ctx, n.store, store.Control, add)
		switch {
		case err == nil:
			return wire.Token{Token: token, TID: id.TID, ExpiresAt: seen.ExpiresAt}, nil
		case errors.Is(err, errKeyMoved) && tries == 0:
			continue
		case errors.Is(err, errKeyMoved):
			return wire.Token{}, &httpapi.ConflictError{Reason: errKeyMoved.Error() + ": mint again"}
		default:
			return wire.Token{}, fmt.Errorf("keep token: %w", err)
		}
	}
}

// newTokenRow is what is kept of a token: what it says of itself, without its proof.
func newTokenRow(seen auth.Inspection) tokenRow {
	row := tokenRow{
		Kid: seen.Kid, Sub: seen.Sub, Tenant: seen.Tenant, IssuedAt: seen.IssuedAt, ExpiresAt: seen.ExpiresAt.Unix(), Epoch: seen.Epoch,
		Scopes: seen.Scopes,
	}
	row.Caveats = seen.Caveats[2:] // behind the scope and the expiry that each token begins with
	for _, c := range row.Caveats {
		if tenant, ok := strings.CutPrefix(c, "tenant = "); ok {
			row.Tenant = tenant // no other one, or the token would allow nothing
		}
	}
	return row
}

// maxTokenPage bounds one page of Tokens.
const maxTokenPage = 1000

// Tokens lists what was minted and has not expired, oldest first, from behind cursor. Who acts for one tenant sees that
// tenant's.
func (n *Node) Tokens(ctx context.Context, by engines.Actor, cursor string, limit int) (wire.TokenList, error) {
	if limit < 1 || limit > maxTokenPage {
		limit = maxTokenPage
	}
	out, epoch, now := wire.TokenList{Tokens: []wire.TokenInfo{}}, n.store.Info().AuthEpoch, n.now()
	err := n.store.View(ctx, func(r store.Reader) error {
		for id, row := range tokens.Range(r, tokenPrefix+tokenID(cursor), tokenPrefix+after) {
			tid := strings.TrimPrefix(string(id), tokenPrefix)
			if tid == cursor || row.ExpiresAt <= now.Unix() || by.Tenant != "" && row.Tenant != by.Tenant {
				continue
			}
			if len(out.Tokens) == limit {
				out.Next = out.Tokens[limit-1].TID
				return nil
			}
			out.Tokens = append(out.Tokens, wire.TokenInfo{
				TID: tid, Kid: row.Kid, Sub: row.Sub, Tenant: row.Tenant, Scopes: row.Scopes, Caveats: row.Caveats,
				IssuedAt: time.Unix(row.IssuedAt, 0).UTC(), ExpiresAt: time.Unix(row.ExpiresAt, 0).UTC(), Revoked: row.void(r, id, epoch),
			})
		}
		return nil
	})
	return out, err
}

// VerifyToken decides on a token as a request would have it decided, and says why.
func (n *Node) VerifyToken(_ context.Context, v wire.VerifyRequest) (wire.Verdict, error) {
	r := auth.Request{
		Method: v.Method, Path: v.Path, Service: v.Service, Scope: v.Scope, Now: n.now(), Tenant: v.Tenant, Account: v.Account,
		Asset: v.Asset, Amount: v.Amount, Epoch: v.Epoch, Signer: v.Signer, Bytes: v.Bytes,
	}
	if v.IP != "" {
		ip, err := netip.ParseAddr(v.IP)
		if err != nil {
			return wire.Verdict{}, &httpapi.BodyError{Field: "ip", Reason: "must be an address such as 192.0.2.1"}
		}
		r.IP = ip
	}
	if _, err := engines.ParseAmount(v.Amount); v.Amount != "" && err != nil {
		return wire.Verdict{}, &httpapi.BodyError{Field: "amount", Reason: "must be a decimal string of at most 39 digits, up to 2^128-1"}
	}
	return verdictOf(n.auth.Verify(v.Token, r)), nil
}

func verdictOf(d auth.Decision) wire.Verdict {
	out := wire.Verdict{Allowed: d.Allowed, Authentic: d.Authentic}
	for _, f := range d.Failed {
		if f.Caveat == "" && out.Reason == "" {
			out.Reason = f.Reason // of the token as a whole
		} else if d.Authentic {
			out.Failed = append(out.Failed, wire.FailedCaveat{Caveat: f.Caveat, Reason: f.Reason})
		}
	}
	if !d.Authentic {
		return out // what a forged token says of itself is worth nothing
	}
	out.TID, out.Kid, out.Sub, out.Tenant, out.Epoch = d.TID, d.Kid, d.Sub, d.Tenant, d.Epoch
	out.Scopes, out.ExpiresAt = d.Scopes, d.ExpiresAt
	return out
}
