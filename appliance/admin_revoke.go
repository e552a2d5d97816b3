package appliance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// Bounds of what a revocation may say: its value is a key in the file.
const (
	maxRevokeValue  = 256  // bytes
	maxRevokeReason = 1024 // bytes
)

// Revoke withdraws tokens. It returns once that is in force.
func (n *Node) Revoke(ctx context.Context, by engines.Actor, corrID string, q wire.RevokeRequest) (wire.Revoked, error) {
	what, value, err := revokeWhat(q)
	if err != nil {
		return wire.Revoked{}, err
	}
	if err := mayRevoke(by, what, value); err != nil {
		return wire.Revoked{}, err
	}
	fresh, err := newKid(n.now())
	if err != nil {
		return wire.Revoked{}, err
	}
	note := auditEvent("auth.revoked", by, corrID, nil)
	note.Reason = q.Reason
	done, err := store.Commit(ctx, n.store, store.Control, revoke{
		What: what, Value: value, Epoch: n.store.Info().AuthEpoch, Tenant: by.Tenant, Reason: q.Reason, Key: fresh, Note: note,
		Until: n.now().Add(n.conf().Auth.MaxTTL.D()).UnixNano(),
	}, func(r revoked) { n.keys.apply(r.authChange) })
	if errors.Is(err, errForeign) {
		return wire.Revoked{}, denied(by, errForeign.Error())
	}
	if err != nil {
		return wire.Revoked{}, err
	}
	return wire.Revoked{What: done.what, Value: done.value, Until: time.Unix(0, done.until).UTC(), Already: done.already}, nil
}

// revokeWhat says which one of the four is asked for.
func revokeWhat(q wire.RevokeRequest) (what, value string, err error) {
	given := 0
	for _, one := range []struct{ what, value string }{{revokeTID, q.TID}, {revokeKid, q.Kid}, {revokeTenant, q.Tenant}} {
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

// Keys lists the token keys, newest first.
func (n *Node) Keys(ctx context.Context) (wire.KeyList, error) {
	out := wire.KeyList{Keys: []wire.KeyInfo{}}
	err := n.store.View(ctx, func(r store.Reader) error {
		all := readKids(r)
		for i := len(all) - 1; i >= 0; i-- {
			out.Keys = append(out.Keys, n.keyInfo(all[i]))
		}
		if i := active(all); i >= 0 {
			out.Active = all[i].id.kid()
		}
		return nil
	})
	return out, err
}

func (n *Node) keyInfo(k keyed) wire.KeyInfo {
	out := wire.KeyInfo{Kid: k.id.kid(), State: k.State, CreatedAt: time.Unix(0, k.CreatedAt).UTC()}
	switch k.State {
	case kidActive:
		out.RotateAt = out.CreatedAt.Add(n.conf().Auth.Rotate.D())
	case kidVerify:
		out.VerifyUntil = time.Unix(0, k.VerifyUntil).UTC()
	}
	return out
}

// RotateKey puts a new token key in the place of the active one, which verifies until its last token has expired.
func (n *Node) RotateKey(ctx context.Context, by engines.Actor, corrID string) (wire.KeyInfo, error) {
	return n.rotate(ctx, by, corrID, 0)
}

// rotate rotates a key that is at least as old as due. The zero KeyInfo says that it was not.
func (n *Node) rotate(ctx context.Context, by engines.Actor, corrID string, due time.Duration) (wire.KeyInfo, error) {
	fresh, err := newKid(n.now())
	if err != nil {
		return wire.KeyInfo{}, err
	}
	c := rotateKid{Key: fresh, Due: int64(due), Note: auditEvent("auth.kid_rotated", by, corrID, nil)}
	done, err := store.Commit(ctx, n.store, store.Control, c, n.keys.apply)
	if err != nil {
		return wire.KeyInfo{}, err
	}
	if i := findKid(done.keys, fresh.ID); i >= 0 {
		return n.keyInfo(done.keys[i]), nil
	}
	return wire.KeyInfo{}, nil
}

// RetireKey voids the tokens of a key that does not mint any more.
func (n *Node) RetireKey(ctx context.Context, by engines.Actor, corrID, kid string) (wire.KeyInfo, error) {
	if !isULID(kid) {
		return wire.KeyInfo{}, fmt.Errorf("no key has such an id: %w", httpapi.ErrNoSuch)
	}
	id := kidPrefix + kidID(kid)
	done, err := store.Commit(ctx, n.store, store.Control, retireKid{ID: id, Note: auditEvent("auth.kid_retired", by, corrID, nil)}, n.keys.apply)
	if err != nil {
		return wire.KeyInfo{}, err
	}
	return n.keyInfo(done.keys[findKid(done.keys, id)]), nil
}
