package tokens

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
	nodehttp "ronbox/httpapi/node"
	"ronbox/httpapi/scopes"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Mint makes a token. Its record and its audit row are synced before it returns.
func (i *Issuer) Mint(
	ctx context.Context,
	by engines.Actor,
	corrID string,
	m nodeapi.MintRequest,
) (nodeapi.Token, error) {
	if m.Tenant == "" {
		m.Tenant = by.Tenant
	}
	held, err := mayMint(by, m)
	if err != nil {
		return nodeapi.Token{}, err
	}
	if err := errors.Join(scopes.CheckAll(m.Scopes), scopes.CheckCaveats(m.Caveats)); err != nil {
		return nodeapi.Token{}, fmt.Errorf("%w: %w", auth.ErrSpec, err)
	}
	m.Caveats = append(slices.Clone(m.Caveats), held...)
	spec, err := mintSpec(m)
	if err != nil {
		return nodeapi.Token{}, err
	}
	if spec.Sub == "" {
		spec.Sub = by.Principal
	}
	spec.Now = i.wall()
	return i.MintSpec(ctx, by, corrID, spec)
}

func mintSpec(m nodeapi.MintRequest) (auth.MintSpec, error) {
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

// MintSpec makes a token with the active key, and retries with the next key if that was rotated
// meanwhile.
func (i *Issuer) MintSpec(
	ctx context.Context,
	by engines.Actor,
	corrID string,
	spec auth.MintSpec,
) (nodeapi.Token, error) {
	for tries := 0; ; tries++ {
		token, id, err := i.auth.Mint(spec)
		if err != nil {
			return nodeapi.Token{}, err
		}
		seen, err := auth.Inspect(token)
		if err != nil {
			return nodeapi.Token{}, fmt.Errorf("read what was minted: %w", err)
		}
		add := addToken{ID: tokenPrefix + tokenID(id.TID), Row: newTokenRow(seen)}
		add.Note = AuditEvent("auth.token_minted", by, corrID, map[string]string{
			"tid":        id.TID,
			"kid":        id.Kid,
			"sub":        id.Sub,
			"tenant":     id.Tenant,
			"scopes":     strings.Join(add.Row.Scopes, ","),
			"caveats":    strings.Join(add.Row.Caveats, "; "),
			"expires_at": seen.ExpiresAt.Format(time.RFC3339),
		})
		_, err = store.Commit(ctx, i.store, store.Control, add)
		switch {
		case err == nil:
			return nodeapi.Token{Token: token, TID: id.TID, ExpiresAt: seen.ExpiresAt}, nil
		case errors.Is(err, errKeyMoved) && tries == 0:
			continue
		case errors.Is(err, errKeyMoved):
			return nodeapi.Token{}, &nodehttp.ConflictError{Reason: errKeyMoved.Error() + ": mint again"}
		default:
			return nodeapi.Token{}, fmt.Errorf("keep token: %w", err)
		}
	}
}

// newTokenRow returns the claims of a token without its proof.
func newTokenRow(seen auth.Inspection) tokenRow {
	row := tokenRow{
		Kid:       seen.Kid,
		Sub:       seen.Sub,
		Tenant:    seen.Tenant,
		IssuedAt:  seen.IssuedAt,
		ExpiresAt: seen.ExpiresAt.Unix(),
		Epoch:     seen.Epoch,
		Scopes:    seen.Scopes,
	}
	row.Caveats = seen.Caveats[2:] // without the scope and the expiry that each token begins with
	for _, c := range row.Caveats {
		if tenant, ok := strings.CutPrefix(c, "tenant = "); ok {
			row.Tenant = tenant // a token with two tenants would allow nothing
		}
	}
	return row
}

// maxTokenPage bounds one page of Tokens.
const maxTokenPage = 1000

// Tokens returns the unexpired tokens after cursor, oldest first. An actor of a tenant sees only
// the tokens of that tenant.
func (i *Issuer) Tokens(ctx context.Context, by engines.Actor, cursor string, limit int) (nodeapi.TokenList, error) {
	if limit < 1 || limit > maxTokenPage {
		limit = maxTokenPage
	}
	out, epoch, now := nodeapi.TokenList{Tokens: []nodeapi.TokenInfo{}}, i.store.Info().AuthEpoch, i.wall()
	err := i.store.View(ctx, func(r store.Reader) error {
		for id, row := range tokens.Range(r, tokenPrefix+tokenID(cursor), tokenPrefix+after) {
			tid := strings.TrimPrefix(string(id), tokenPrefix)
			if tid == cursor || row.ExpiresAt <= now.Unix() || by.Tenant != "" && row.Tenant != by.Tenant {
				continue
			}
			if len(out.Tokens) == limit {
				out.Next = out.Tokens[limit-1].TID
				return nil
			}
			out.Tokens = append(out.Tokens, nodeapi.TokenInfo{
				TID:       tid,
				Kid:       row.Kid,
				Sub:       row.Sub,
				Tenant:    row.Tenant,
				Scopes:    row.Scopes,
				Caveats:   row.Caveats,
				IssuedAt:  wire.Instant{Time: time.Unix(row.IssuedAt, 0)},
				ExpiresAt: wire.Instant{Time: time.Unix(row.ExpiresAt, 0)},
				Revoked:   row.void(r, id, epoch),
			})
		}
		return nil
	})
	return out, err
}

// VerifyToken decides on a token as for a request with it, and returns the reasons.
func (i *Issuer) VerifyToken(_ context.Context, v nodeapi.VerifyRequest) (nodeapi.Verdict, error) {
	r := auth.Request{
		Method:  v.Method,
		Path:    v.Path,
		Service: v.Service,
		Scope:   v.Scope,
		Now:     i.wall(),
		Tenant:  v.Tenant,
		Account: v.Account,
		Asset:   v.Asset,
		Amount:  v.Amount,
		Epoch:   v.Epoch,
		Signer:  v.Signer,
		Bytes:   v.Bytes,
	}
	if v.IP != "" {
		ip, err := netip.ParseAddr(v.IP)
		if err != nil {
			return nodeapi.Verdict{}, &httpapi.BodyError{Field: "ip", Reason: "must be an address such as 192.0.2.1"}
		}
		r.IP = ip
	}
	if _, err := engines.ParseAmount(v.Amount); v.Amount != "" && err != nil {
		return nodeapi.Verdict{}, &httpapi.BodyError{
			Field:  "amount",
			Reason: "must be a decimal string of at most 39 digits, up to 2^128-1",
		}
	}
	return verdict(i.auth.Verify(v.Token, r)), nil
}

func verdict(d auth.Decision) nodeapi.Verdict {
	out := nodeapi.Verdict{Allowed: d.Allowed, Authentic: d.Authentic}
	for _, f := range d.Failed {
		if f.Caveat == "" && out.Reason == "" {
			out.Reason = f.Reason // applies to the whole token
		} else if d.Authentic {
			out.Failed = append(out.Failed, nodeapi.FailedCaveat{Caveat: f.Caveat, Reason: f.Reason})
		}
	}
	if !d.Authentic {
		return out // the claims of a forged token are not shown
	}
	out.TID, out.Kid, out.Sub, out.Tenant, out.Epoch = d.TID, d.Kid, d.Sub, d.Tenant, d.Epoch
	out.Scopes, out.ExpiresAt = d.Scopes, wire.Instant{Time: d.ExpiresAt}
	return out
}

// errKeyMoved is returned when the key that minted a token is no longer active, or a revocation
// covers the token: mint again.
var errKeyMoved = errors.New("the token key was rotated or its tokens revoked meanwhile")

// addToken records the claims of a new token.
type addToken struct {
	ID   tokenID
	Row  tokenRow
	Note store.Event
}

// Kind implements store.Command.
func (addToken) Kind() string { return "node.add_token/1" }

// Apply adds the row and extends the overlap of its key.
func (c addToken) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	id := kidPrefix + kidID(c.Row.Kid)
	key, known := kids.Get(r, id)
	if !known || key.State != kidActive || c.Row.void(r, c.ID, c.Row.Epoch) {
		return struct{}{}, errKeyMoved
	}
	n := total(r, totalTokens)
	if n >= maxTokens {
		return struct{}{}, &nodehttp.ConflictError{Reason: fmt.Sprintf(
			"%d tokens have not expired: mint for a shorter time, or attenuate one token for many holders", n)}
	}
	if tokens.Has(r, c.ID) {
		return struct{}{}, fmt.Errorf("token %s is there already", c.ID)
	}
	totals.Put(w, totalTokens, n+1)
	tokens.Put(w, c.ID, c.Row)
	expiries.Put(w, expires(c.Row.ExpiresAt, string(c.ID)), struct{}{})
	if end := time.Unix(c.Row.ExpiresAt, 0).UnixNano(); end > key.LastExpiry {
		key.LastExpiry = end
		kids.Put(w, id, key)
	}
	w.Audit(c.Note)
	return struct{}{}, nil
}

// void reports whether an unexpired token is invalid.
func (row tokenRow) void(r store.Reader, id tokenID, epoch uint64) bool {
	key, known := kids.Get(r, kidPrefix+kidID(row.Kid))
	if !known || key.State == kidRetired || row.Epoch != epoch {
		return true
	}
	if revocations.Has(r, newRevID(revokeTID, string(id[len(tokenPrefix):]))) {
		return true
	}
	rev, revoked := revocations.Get(r, newRevID(revokeTenant, row.Tenant))
	return revoked && row.Tenant != "" && row.IssuedAt <= time.Unix(0, rev.At).Unix()
}

// denied returns the error for an actor without permission; the reason is logged.
func denied(by engines.Actor, reason string) error {
	return &auth.DeniedError{
		TID:         by.CapID,
		Kid:         by.Kid,
		Tenant:      by.Tenant,
		Scope:       "node.token",
		Reasons:     []string{reason},
		Fingerprint: by.Fingerprint,
	}
}

// mayMint prevents a minter from extending its own rights: only an administrator mints tokens for
// the node, and a tenant mints only for itself. The result holds the caveats of the minter's token,
// which apply to the new token. It returns an error if a caveat cannot be passed on.
func mayMint(by engines.Actor, m nodeapi.MintRequest) (held []string, err error) {
	if by.Tenant != "" && m.Tenant != by.Tenant {
		return nil, denied(by, "it mints for its own tenant only")
	}
	for _, s := range m.Scopes {
		if normal, err := auth.NormalScope(s); !by.Admin && err == nil && strings.HasPrefix(normal, "node.") {
			return nil, denied(by, "only node.admin mints a scope of the node")
		}
	}
	for _, c := range by.Caveats {
		switch key, _, _ := strings.Cut(c, " "); key {
		case "tenant", "scope": // checked above
		case "aud", "amnesia", "exp", "ip", "nbf":
			held = append(held, c)
		default: // a count would restart in each token, and a path would be that of the mint request
			return nil, denied(by, fmt.Sprintf("a token with a caveat %s mints none", key))
		}
	}
	return held, nil
}
