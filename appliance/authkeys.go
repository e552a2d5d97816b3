package appliance

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/store"
)

// authChange is what a command of the bucket changed of what is in force. The zero value changes nothing.
type authChange struct {
	keys    []keyed           // all of them as they are now; nil: as they were
	revoked []auth.Revocation // added
	purged  []revID           // gone
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

// put makes the key the active one of all.
func (k freshKid) put(all []keyed, at store.Stamp, w *store.Writes) ([]keyed, error) {
	if findKid(all, k.ID) >= 0 {
		return nil, fmt.Errorf("token key %s is there already", k.ID.kid())
	}
	row := kidRow{Salt: k.Salt, State: kidActive, CreatedAt: at.At}
	kids.Put(w, k.ID, row)
	return append(forgetRetired(all, w), keyed{k.ID, row}), nil
}

// forgetRetired lets the oldest retired keys go, beyond those that are kept for a look back: a key that nobody knows is as
// void as a retired one.
func forgetRetired(all []keyed, w *store.Writes) []keyed {
	var kept []keyed
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

// addKid puts the first token key into the file.
type addKid struct{ Key freshKid }

// Kind implements store.Command.
func (addKid) Kind() string { return "node.add_kid/1" }

// Apply adds the key unless an active one is there.
func (c addKid) Apply(r store.Reader, at store.Stamp, w *store.Writes) (authChange, error) {
	all := readKids(r)
	if active(all) >= 0 {
		return authChange{keys: all}, nil
	}
	all, err := c.Key.put(all, at, w)
	if err != nil {
		return authChange{}, err
	}
	w.Audit(store.Event{Event: "auth.kid_added", Decision: "allow", Detail: map[string]string{"kid": c.Key.ID.kid()}})
	return authChange{keys: all}, nil
}

// rotateKid puts a new key in the place of the active one, which goes on verifying until its last token has expired.
type rotateKid struct {
	Key  freshKid
	Due  int64       // ns: only if the active key is older; 0: in any case
	Note store.Event // who asked
}

// Kind implements store.Command.
func (rotateKid) Kind() string { return "node.rotate_kid/1" }

// Apply rotates. The result has no keys if it was not due.
func (c rotateKid) Apply(r store.Reader, at store.Stamp, w *store.Writes) (authChange, error) {
	all := readKids(r)
	was := active(all)
	if was >= 0 && c.Due > 0 && at.At-all[was].CreatedAt < c.Due {
		return authChange{}, nil
	}
	all, err := c.Key.rotate(all, at, w)
	if err != nil {
		return authChange{}, err
	}
	note := detailed(c.Note, "kid", c.Key.ID.kid())
	if was >= 0 {
		note = detailed(note, "before", all[was].id.kid())
	}
	w.Audit(note)
	return authChange{keys: all}, nil
}

// rotate demotes the active key and puts the new one.
func (k freshKid) rotate(all []keyed, at store.Stamp, w *store.Writes) ([]keyed, error) {
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
		return nil, &httpapi.ConflictError{Reason: fmt.Sprintf(
			"%d token keys still verify: retire some of them, or wait until their tokens have expired", live)}
	}
	return k.put(all, at, w)
}

// retireKid ends a key before its tokens do: they are void from then on.
type retireKid struct {
	ID   kidID
	Note store.Event
}

// Kind implements store.Command.
func (retireKid) Kind() string { return "node.retire_kid/1" }

var errActiveKid = errors.New("the key mints: rotate first, then retire it")

// Apply retires the key. One that is retired already stays as it is.
func (c retireKid) Apply(r store.Reader, at store.Stamp, w *store.Writes) (authChange, error) {
	all := readKids(r)
	i := findKid(all, c.ID)
	switch {
	case i < 0:
		return authChange{}, noKid(c.ID.kid())
	case all[i].State == kidActive:
		return authChange{}, &httpapi.ConflictError{Reason: errActiveKid.Error()}
	case all[i].State == kidRetired:
		return authChange{keys: all}, nil
	}
	all[i].retire(at, w)
	w.Audit(detailed(c.Note, "kid", c.ID.kid()))
	return authChange{keys: all}, nil
}

func noKid(kid string) error { return fmt.Errorf("no key %s: %w", kid, httpapi.ErrNoSuch) }

// retire voids the tokens of the key.
func (k *keyed) retire(at store.Stamp, w *store.Writes) {
	k.State, k.VerifyUntil = kidRetired, at.At
	kids.Put(w, k.id, k.kidRow)
}

// detailed is e with one more detail; e itself stays as it is.
func detailed(e store.Event, key, value string) store.Event {
	detail := make(map[string]string, len(e.Detail)+1)
	maps.Copy(detail, e.Detail)
	detail[key] = value
	e.Detail = detail
	return e
}
