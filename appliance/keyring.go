package appliance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/store"
)

// keyring puts in force what the auth bucket says: it follows the file from load on, command by command.
type keyring struct {
	auth   *auth.Authority
	secret []byte // set by load, as is epoch
	epoch  uint64

	// What was last put in force. Written by load, then by the committer, which runs what changes it one after the other.
	keys    []keyed
	revoked []auth.Revocation
	state   *auth.State
}

func newKeyring(a *auth.Authority) *keyring { return &keyring{auth: a} }

// load reads the file and puts it in force; a file without a key gets its first.
func (k *keyring) load(ctx context.Context, s *store.Store, secret []byte, now time.Time) error {
	k.secret, k.epoch = secret, s.Info().AuthEpoch
	err := s.View(ctx, func(r store.Reader) error {
		k.keys, k.revoked = readKids(r), readRevocations(r)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read token keys: %w", err)
	}
	k.rebuild()
	if active(k.keys) >= 0 {
		return nil
	}
	fresh, err := newKid(now)
	if err != nil {
		return err
	}
	if _, err := store.Commit(ctx, s, store.Control, addKid{fresh}, k.apply); err != nil {
		return fmt.Errorf("add token key: %w", err)
	}
	return nil
}

// apply puts a change in force. The committer calls it once the change is synced, before anyone is answered.
func (k *keyring) apply(c authChange) {
	switch {
	case c.keys == nil && len(c.purged) == 0 && len(c.revoked) == 0:
	case c.keys == nil && len(c.purged) == 0:
		k.revoked = append(k.revoked, c.revoked...)
		k.state = k.state.With(c.revoked...)
		k.auth.Swap(k.state)
	default:
		if c.keys != nil {
			k.keys = c.keys
		}
		k.revoked = append(k.revoked, c.revoked...)
		k.purge(c.purged)
		k.rebuild()
	}
}

// purge forgets revocations that can void nothing any more.
func (k *keyring) purge(gone []revID) {
	if len(gone) == 0 {
		return
	}
	ids := make(map[revID]bool, len(gone))
	for _, id := range gone {
		ids[id] = true
	}
	k.revoked = slices.DeleteFunc(k.revoked, func(r auth.Revocation) bool { return ids[newRevID(r.What, r.Value)] })
}

func (k *keyring) rebuild() {
	k.state = auth.NewState(k.secret, authKeys(k.keys), k.revoked, k.epoch)
	k.auth.Swap(k.state)
}
