package tokens

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Keys returns the token keys, newest first.
func (i *Issuer) Keys(ctx context.Context) (nodeapi.KeyList, error) {
	out := nodeapi.KeyList{Keys: []nodeapi.KeyInfo{}}
	err := i.store.View(ctx, func(r store.Reader) error {
		all := readKids(r)
		for _, k := range slices.Backward(all) {
			out.Keys = append(out.Keys, i.keyInfo(k))
		}
		if at := active(all); at >= 0 {
			out.Active = all[at].id.kid()
		}
		return nil
	})
	return out, err
}

func (i *Issuer) keyInfo(k tokenKey) nodeapi.KeyInfo {
	out := nodeapi.KeyInfo{Kid: k.id.kid(), State: k.State, CreatedAt: time.Unix(0, k.CreatedAt).UTC()}
	switch k.State {
	case kidActive:
		out.RotateAt = out.CreatedAt.Add(i.config().Rotate.D())
	case kidVerify:
		out.VerifyUntil = time.Unix(0, k.VerifyUntil).UTC()
	}
	return out
}

// RotateKey replaces the active token key. The old key verifies until its last token has expired.
func (i *Issuer) RotateKey(ctx context.Context, by engines.Actor, corrID string) (nodeapi.KeyInfo, error) {
	return i.rotate(ctx, by, corrID, 0)
}

// RotateDue rotates the active key if it is as old as the configuration allows.
func (i *Issuer) RotateDue(ctx context.Context, by engines.Actor) error {
	var all []tokenKey
	if err := i.store.View(ctx, func(r store.Reader) error { all = readKids(r); return nil }); err != nil {
		return err
	}
	limit := i.config().Rotate.D()
	if at := active(all); at >= 0 && i.wall().Sub(time.Unix(0, all[at].CreatedAt)) < limit {
		return nil
	}
	_, err := i.rotate(ctx, by, "", limit)
	return err
}

// rotate rotates the active key if it is at least as old as due. The KeyInfo is zero if it was not.
func (i *Issuer) rotate(
	ctx context.Context,
	by engines.Actor,
	corrID string,
	due time.Duration,
) (nodeapi.KeyInfo, error) {
	fresh, err := newKid(i.wall())
	if err != nil {
		return nodeapi.KeyInfo{}, err
	}
	c := rotateKid{Key: fresh, Due: int64(due), Note: AuditEvent("auth.kid_rotated", by, corrID, nil)}
	done, err := store.Commit(ctx, i.store, store.Control, c, i.apply)
	if err != nil {
		return nodeapi.KeyInfo{}, err
	}
	if at := findKid(done.keys, fresh.ID); at >= 0 {
		return i.keyInfo(done.keys[at]), nil
	}
	return nodeapi.KeyInfo{}, nil
}

// RetireKey invalidates the tokens of a key that is not active.
func (i *Issuer) RetireKey(ctx context.Context, by engines.Actor, corrID, kid string) (nodeapi.KeyInfo, error) {
	if !isULID(kid) {
		return nodeapi.KeyInfo{}, fmt.Errorf("no key has such an id: %w", httpapi.ErrNoSuch)
	}
	id := kidPrefix + kidID(kid)
	done, err := store.Commit(ctx, i.store, store.Control,
		retireKid{ID: id, Note: AuditEvent("auth.kid_retired", by, corrID, nil)}, i.apply)
	if err != nil {
		return nodeapi.KeyInfo{}, err
	}
	return i.keyInfo(done.keys[findKid(done.keys, id)]), nil
}

// change is the effect of a command on the keys and revocations. The zero value changes nothing.
type change struct {
	keys    []tokenKey        // all keys after the change; nil: unchanged
	revoked []auth.Revocation // added revocations
	purged  []revID           // removed revocations
}

// freshKid is a key that is not in the file yet.
type freshKid struct {
	ID   kidID
	Salt []byte
}

// saltLen is the size of a token key's salt, bytes.
const saltLen = 32

func newKid(now time.Time) (freshKid, error) {
	salt := make([]byte, saltLen)
	if _, err := rand.Read(salt); err != nil {
		return freshKid{}, fmt.Errorf("draw salt: %w", err)
	}
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return freshKid{}, fmt.Errorf("draw key id: %w", err)
	}
	return freshKid{ID: kidPrefix + kidID(id.String()), Salt: salt}, nil
}

// put adds the key and makes it the active one.
func (k freshKid) put(all []tokenKey, at store.Stamp, w *store.Writes) ([]tokenKey, error) {
	if findKid(all, k.ID) >= 0 {
		return nil, fmt.Errorf("token key %s is there already", k.ID.kid())
	}
	row := kidRow{Salt: k.Salt, State: kidActive, CreatedAt: at.At}
	kids.Put(w, k.ID, row)
	return append(forgetRetired(all, w), tokenKey{k.ID, row}), nil
}

// forgetRetired removes the oldest retired keys beyond maxRetired. An unknown key is as invalid as
// a retired one.
func forgetRetired(all []tokenKey, w *store.Writes) []tokenKey {
	var kept []tokenKey
	retired := 0
	for _, k := range slices.Backward(all) {
		if k.State == kidRetired {
			if retired++; retired >= maxRetired {
				kids.Delete(w, k.id)
				continue
			}
		}
		kept = append(kept, k)
	}
	slices.Reverse(kept)
	return kept
}

// addKid adds the first token key.
type addKid struct{ Key freshKid }

// Kind implements store.Command.
func (addKid) Kind() string { return "node.add_kid/1" }

// Apply adds the key unless there is an active one.
func (c addKid) Apply(r store.Reader, at store.Stamp, w *store.Writes) (change, error) {
	all := readKids(r)
	if active(all) >= 0 {
		return change{keys: all}, nil
	}
	all, err := c.Key.put(all, at, w)
	if err != nil {
		return change{}, err
	}
	w.Audit(store.Event{Event: "auth.kid_added", Decision: "allow", Detail: map[string]string{"kid": c.Key.ID.kid()}})
	return change{keys: all}, nil
}

// rotateKid replaces the active key, which verifies until its last token has expired.
type rotateKid struct {
	Key  freshKid
	Due  int64       // ns: rotate only if the active key is older; 0: always
	Note store.Event // audit row
}

// Kind implements store.Command.
func (rotateKid) Kind() string { return "node.rotate_kid/1" }

// Apply rotates the key. The result has no keys if the rotation was not due.
func (c rotateKid) Apply(r store.Reader, at store.Stamp, w *store.Writes) (change, error) {
	all := readKids(r)
	was := active(all)
	if was >= 0 && c.Due > 0 && at.At-all[was].CreatedAt < c.Due {
		return change{}, nil
	}
	all, err := c.Key.rotate(all, at, w)
	if err != nil {
		return change{}, err
	}
	note := detailed(c.Note, "kid", c.Key.ID.kid())
	if was >= 0 {
		note = detailed(note, "before", all[was].id.kid())
	}
	w.Audit(note)
	return change{keys: all}, nil
}

// rotate demotes the active key and adds the new one.
func (k freshKid) rotate(all []tokenKey, at store.Stamp, w *store.Writes) ([]tokenKey, error) {
	live := 0
	for i := range all {
		if all[i].State == kidRetired {
			continue
		}
		live++
		if all[i].State == kidActive {
			all[i].State, all[i].VerifyUntil = kidVerify, max(all[i].LastExpiry, at.At)
			kids.Put(w, all[i].id, all[i].kidRow)
		}
	}
	if live >= maxKids {
		return nil, &nodehttp.ConflictError{Reason: fmt.Sprintf(
			"%d token keys still verify: retire some of them, or wait until their tokens have expired", live)}
	}
	return k.put(all, at, w)
}

// retireKid retires a key and invalidates its tokens.
type retireKid struct {
	ID   kidID
	Note store.Event
}

// Kind implements store.Command.
func (retireKid) Kind() string { return "node.retire_kid/1" }

var errActiveKid = errors.New("the key mints: rotate first, then retire it")

// Apply retires the key. It has no effect on a retired key.
func (c retireKid) Apply(r store.Reader, at store.Stamp, w *store.Writes) (change, error) {
	all := readKids(r)
	i := findKid(all, c.ID)
	switch {
	case i < 0:
		return change{}, noKid(c.ID.kid())
	case all[i].State == kidActive:
		return change{}, &nodehttp.ConflictError{Reason: errActiveKid.Error()}
	case all[i].State == kidRetired:
		return change{keys: all}, nil
	}
	all[i].retire(at, w)
	w.Audit(detailed(c.Note, "kid", c.ID.kid()))
	return change{keys: all}, nil
}

func noKid(kid string) error { return fmt.Errorf("no key %s: %w", kid, httpapi.ErrNoSuch) }

// retire invalidates the tokens of the key.
func (k *tokenKey) retire(at store.Stamp, w *store.Writes) {
	k.State, k.VerifyUntil = kidRetired, at.At
	kids.Put(w, k.id, k.kidRow)
}
