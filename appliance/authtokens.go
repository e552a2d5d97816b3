package appliance

import (
	"errors"
	"fmt"
	"time"

	"ronbox/httpapi"
	"ronbox/store"
)

// errKeyMoved says that the key that minted a token is not the active one any more, or that a revocation has overtaken it:
// mint again.
var errKeyMoved = errors.New("the token key was rotated or its tokens revoked meanwhile")

// addToken keeps what is known of a token that is about to be handed out.
type addToken struct {
	ID   tokenID
	Row  tokenRow
	Note store.Event
}

// Kind implements store.Command.
func (addToken) Kind() string { return "node.add_token/1" }

// Apply adds the row, and moves the end of its key's overlap.
func (c addToken) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	id := kidPrefix + kidID(c.Row.Kid)
	key, known := kids.Get(r, id)
	if !known || key.State != kidActive || c.Row.void(r, c.ID, c.Row.Epoch) {
		return struct{}{}, errKeyMoved
	}
	n := total(r, totalTokens)
	if n >= maxTokens {
		return struct{}{}, &httpapi.ConflictError{Reason: fmt.Sprintf(
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

// void says whether a token no longer counts although it has not expired.
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
