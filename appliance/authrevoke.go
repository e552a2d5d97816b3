package appliance

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/store"
)

// What can be revoked.
const (
	revokeTID    = "tid"    // one token
	revokeKid    = "kid"    // every token of one key
	revokeTenant = "tenant" // every token of one tenant made so far
	revokeEpoch  = "epoch"  // every token made so far
)

// revoke withdraws tokens before they expire.
type revoke struct {
	What   string
	Value  string // of an epoch: ignored
	Epoch  uint64 // in force
	Tenant string // whose tokens it may be about, "" for any
	Reason string
	Until  int64    // Unix ns: when the longest token minted now would expire; those minted before count by themselves
	Key    freshKid // in case the key that mints is among what is revoked
	Note   store.Event
}

// Kind implements store.Command.
func (revoke) Kind() string { return "node.revoke/1" }

// revoked is the result of a revoke.
type revoked struct {
	authChange
	what, value string
	until       int64 // Unix ns
	already     bool
}

// Apply keeps the revocation, and for a key or an epoch retires the keys, with a new one in the place of the active.
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
		return revoked{}, &httpapi.ConflictError{Reason: fmt.Sprintf(
			"%d revocations are kept: rotate the key and retire the old one instead, which voids all its tokens at once", n)}
	} else {
		totals.Put(w, totalRevocations, n+1)
	}
	revocations.Put(w, id, row)
	expiries.Put(w, expires(seconds(row.Until), string(id)), struct{}{})
	out.authChange.revoked = []auth.Revocation{row.revocation(id)}
	w.Audit(detailed(detailed(c.Note, "what", out.what), "value", out.value))
	return out, nil
}

// decide says what is revoked until when, and retires the keys that go with it.
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
		out.keys, out.already, err = c.endKeys(r, at, w, func(k keyed) bool { return k.id.kid() == c.Value })
	case revokeEpoch:
		out.value = strconv.FormatUint(c.Epoch, 10)
		out.keys, _, err = c.endKeys(r, at, w, func(keyed) bool { return true })
	}
	return out, err
}

var errForeign = errors.New("it revokes tokens of its own tenant only")

// lastExpiry is when the last token of all that stand expires, whatever was the longest life when it was minted.
func lastExpiry(all []keyed) (last int64) {
	for _, k := range all {
		if k.State != kidRetired {
			last = max(last, k.LastExpiry)
		}
	}
	return last
}

// endKeys retires the keys that end, and puts a new one if none is active then.
func (c revoke) endKeys(r store.Reader, at store.Stamp, w *store.Writes, ends func(keyed) bool) (all []keyed, already bool, err error) {
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
