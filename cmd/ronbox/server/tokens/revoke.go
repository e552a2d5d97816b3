package tokens

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Bounds of a revocation. Its value is part of a key.
const (
	maxRevokeValue  = 256  // bytes
	maxRevokeReason = 1024 // bytes
)

// Revoke revokes tokens. The revocation is in force when it returns.
func (i *Issuer) Revoke(
	ctx context.Context,
	by engines.Actor,
	corrID string,
	q nodeapi.RevokeRequest,
) (nodeapi.Revoked, error) {
	what, value, err := revokeWhat(q)
	if err != nil {
		return nodeapi.Revoked{}, err
	}
	if err := mayRevoke(by, what, value); err != nil {
		return nodeapi.Revoked{}, err
	}
	fresh, err := newKid(i.wall())
	if err != nil {
		return nodeapi.Revoked{}, err
	}
	note := AuditEvent("auth.revoked", by, corrID, nil)
	note.Reason = q.Reason
	done, err := store.Commit(ctx, i.store, store.Control, revoke{
		What:   what,
		Value:  value,
		Epoch:  i.store.Info().AuthEpoch,
		Tenant: by.Tenant,
		Reason: q.Reason,
		Key:    fresh,
		Note:   note,
		Until:  i.wall().Add(i.config().MaxTTL.D()).UnixNano(),
	}, func(r revoked) { i.apply(r.change) })
	if errors.Is(err, errForeign) {
		return nodeapi.Revoked{}, denied(by, errForeign.Error())
	}
	if err != nil {
		return nodeapi.Revoked{}, err
	}
	return nodeapi.Revoked{
		What:    done.what,
		Value:   done.value,
		Until:   time.Unix(0, done.until).UTC(),
		Already: done.already,
	}, nil
}

// revokeWhat returns the target of a request.
func revokeWhat(q nodeapi.RevokeRequest) (what, value string, err error) {
	given := 0
	for _, one := range []struct{ what, value string }{{revokeTID, q.TID}, {revokeKid, q.Kid},
		{revokeTenant, q.Tenant}} {
		if one.value != "" {
			what, value = one.what, one.value
			given++
		}
	}
	if q.All {
		what = revokeEpoch
		given++
	}
	switch {
	case given != 1:
		return "", "", &httpapi.BodyError{Reason: "exactly one of tid, kid, tenant and all must be given"}
	case (what == revokeTID || what == revokeKid) && !isULID(value):
		return "", "", &httpapi.BodyError{Field: what, Reason: "must be an id as the node lists it"}
	case len(value) > maxRevokeValue:
		return "", "", &httpapi.BodyError{Field: what, Reason: "is longer than 256 bytes"}
	case len(q.Reason) > maxRevokeReason:
		return "", "", &httpapi.BodyError{Field: "reason", Reason: "is longer than 1024 bytes"}
	}
	return what, value, nil
}

func isULID(text string) bool {
	_, err := ulid.ParseStrict(text)
	return err == nil
}

// Targets of a revocation.
const (
	revokeTID    = "tid"    // one token
	revokeKid    = "kid"    // every token of one key
	revokeTenant = "tenant" // every token of one tenant made so far
	revokeEpoch  = "epoch"  // every token made so far
)

// revoke revokes tokens before they expire.
type revoke struct {
	What   string
	Value  string // ignored for an epoch
	Epoch  uint64 // the current epoch
	Tenant string // restricts the tokens; "": none
	Reason string
	Until  int64    // Unix ns: when the longest token minted now would expire; those minted before count by themselves
	Key    freshKid // replaces the active key if that is revoked
	Note   store.Event
}

// Kind implements store.Command.
func (revoke) Kind() string { return "node.revoke/1" }

// revoked is the result of a revoke.
type revoked struct {
	change
	what, value string
	until       int64 // Unix ns
	already     bool
}

// Apply adds the revocation. For a key or an epoch it also retires the keys and replaces the
// active one.
func (c revoke) Apply(r store.Reader, at store.Stamp, w *store.Writes) (revoked, error) {
	out, err := c.decide(r, at, w)
	if err != nil || out.already {
		return out, err
	}
	row := revRow{At: at.At, Until: out.until, Reason: c.Reason}
	id := newRevID(out.what, out.value)
	old, known := revocations.Get(r, id)
	if known {
		expiries.Delete(w, expires(seconds(old.Until), string(id)))
	} else if n := total(r, totalRevocations); n >= maxRevocations {
		return revoked{}, &nodehttp.ConflictError{Reason: fmt.Sprintf(
			"%d revocations are kept: rotate the key and retire the old one instead, which voids all its tokens",
			n,
		)}
	} else {
		totals.Put(w, totalRevocations, n+1)
	}
	revocations.Put(w, id, row)
	expiries.Put(w, expires(seconds(row.Until), string(id)), struct{}{})
	out.change.revoked = []auth.Revocation{row.revocation(id)}
	w.Audit(detailed(detailed(c.Note, "what", out.what), "value", out.value))
	return out, nil
}

// decide determines the target and the end of the revocation, and retires the affected keys.
func (c revoke) decide(r store.Reader, at store.Stamp, w *store.Writes) (out revoked, err error) {
	out = revoked{what: c.What, value: c.Value, until: max(c.Until, at.At, lastExpiry(readKids(r)))}
	switch c.What {
	case revokeTID:
		row, known := tokens.Get(r, tokenPrefix+tokenID(c.Value))
		if c.Tenant != "" && row.Tenant != c.Tenant {
			return out, errForeign
		}
		if known {
			out.until = time.Unix(row.ExpiresAt, 0).UnixNano()
		}
		var old revRow
		old, out.already = revocations.Get(r, newRevID(c.What, c.Value))
		if out.already {
			out.until = old.Until
		}
	case revokeKid:
		out.keys, out.already, err = c.endKeys(r, at, w, func(k tokenKey) bool { return k.id.kid() == c.Value })
	case revokeEpoch:
		out.value = strconv.FormatUint(c.Epoch, 10)
		out.keys, _, err = c.endKeys(r, at, w, func(tokenKey) bool { return true })
	}
	return out, err
}

var errForeign = errors.New("it revokes tokens of its own tenant only")

// lastExpiry returns the latest expiry of all valid tokens.
func lastExpiry(all []tokenKey) (last int64) {
	for _, k := range all {
		if k.State != kidRetired {
			last = max(last, k.LastExpiry)
		}
	}
	return last
}

// endKeys retires the revoked keys, and adds a new key if no key is active afterwards.
func (c revoke) endKeys(
	r store.Reader,
	at store.Stamp,
	w *store.Writes,
	ends func(tokenKey) bool,
) (all []tokenKey, already bool, err error) {
	all = readKids(r)
	known, changed := false, false
	for i := range all {
		if !ends(all[i]) {
			continue
		}
		known = true
		if all[i].State != kidRetired {
			all[i].retire(at, w)
			changed = true
		}
	}
	if !known {
		return nil, false, noKid(c.Value)
	}
	if active(all) < 0 {
		all, err = c.Key.put(all, at, w)
	}
	return all, !changed, err
}

func seconds(ns int64) int64 { return time.Unix(0, ns).Unix() }

// mayRevoke prevents an actor from revoking the tokens of others: only an administrator revokes
// keys, and a tenant revokes only its own tokens.
func mayRevoke(by engines.Actor, what, value string) error {
	switch {
	case (what == revokeKid || what == revokeEpoch) && !by.Admin:
		return denied(by, "only node.admin revokes a key, or all")
	case what != revokeTID && by.Tenant != "" && (what != revokeTenant || value != by.Tenant):
		return denied(by, "it revokes tokens of its own tenant only")
	}
	return nil
}
