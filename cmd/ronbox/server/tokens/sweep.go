package tokens

import (
	"context"
	"strings"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/store"
)

// sweepRows bounds the rows of one sweep, so that its commit is fast.
const sweepRows = 1000

// keepRetired bounds the time for which a retired key is listed.
const keepRetired = 30 * 24 * time.Hour

// Sweep removes expired tokens and revocations, a thousand at a time, and ends overlaps of keys.
// Tokens expire by the wall clock, which may be wrong, so a row goes only once it has expired by
// the node's clock as well: a revoked token would be valid again if the wall clock went back.
func (i *Issuer) Sweep(ctx context.Context) error {
	now := min(i.wall().UnixNano(), i.now().UnixNano())
	sweep, due := sweepExpired{Before: now - int64(auth.MaxSkew)}, false
	if err := i.store.View(ctx, func(r store.Reader) error {
		due = sweep.due(r)
		return nil
	}); err != nil || !due {
		return err
	}
	for {
		out, err := store.Commit(ctx, i.store, store.Bulk, sweep, func(s swept) { i.apply(s.change) })
		if err != nil {
			return err
		}
		i.log.Debug("auth_swept", "tokens", out.tokens, "revocations", out.revocations, "keys", out.retired)
		if !out.more {
			return nil
		}
	}
}

// sweepExpired removes expired rows, retires keys after their overlap, and removes keys retired
// long ago.
type sweepExpired struct {
	Before int64 // rows that have expired before it go, Unix ns
}

// Kind implements store.Command.
func (sweepExpired) Kind() string { return "node.sweep_auth/2" }

// swept is the result of a sweep.
type swept struct {
	change
	tokens, revocations, retired int
	more                         bool // more rows are left
}

// Apply processes rows in the order of their expiry.
func (c sweepExpired) Apply(r store.Reader, at store.Stamp, w *store.Writes) (swept, error) {
	var out swept
	rows := 0
	for id := range expiries.Range(r, expiryPrefix, expires(seconds(c.Before), "")) {
		if rows++; rows > sweepRows {
			out.more = true
			break
		}
		expiries.Delete(w, id)
		if key := id.row(); strings.HasPrefix(key, tokenPrefix) {
			tokens.Delete(w, tokenID(key))
			out.tokens++
		} else {
			revocations.Delete(w, revID(key))
			out.purged = append(out.purged, revID(key))
			out.revocations++
		}
	}
	if rows > 0 {
		totals.Put(w, totalTokens, total(r, totalTokens)-uint64(out.tokens))
		totals.Put(w, totalRevocations, total(r, totalRevocations)-uint64(out.revocations))
	}
	c.keys(r, at, w, &out)
	return out, nil
}

// due reports whether a sweep would remove anything.
func (c sweepExpired) due(r store.Reader) bool {
	for range expiries.Range(r, expiryPrefix, expires(seconds(c.Before), "")) {
		return true
	}
	for _, k := range readKids(r) {
		if k.State == kidVerify && k.VerifyUntil < c.Before ||
			k.State == kidRetired && k.VerifyUntil < c.Before-int64(keepRetired) {
			return true
		}
	}
	return false
}

// keys ends overlaps and appends an audit row for each.
func (c sweepExpired) keys(r store.Reader, at store.Stamp, w *store.Writes, out *swept) {
	var left []tokenKey
	gone := false
	for _, k := range readKids(r) {
		switch {
		case k.State == kidVerify && k.VerifyUntil < c.Before:
			k.retire(at, w)
			out.retired++
			w.Audit(store.Event{Event: "auth.kid_retired", Decision: "allow", Principal: "janitor",
				Reason: "its last token has expired", Detail: map[string]string{"kid": k.id.kid()}})
		case k.State == kidRetired && k.VerifyUntil < c.Before-int64(keepRetired):
			kids.Delete(w, k.id)
			gone = true
			continue
		}
		left = append(left, k)
	}
	if out.retired > 0 || gone {
		out.change.keys = left
	}
}
