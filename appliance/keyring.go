package appliance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
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
	revoked map[revID]auth.Revocation
	state   *auth.State

	mints atomic.Bool // a key is in force that mints
}

func newKeyring(a *auth.Authority) *keyring {
	return &keyring{auth: a, revoked: map[revID]auth.Revocation{}}
}

// load reads the file and puts it in force; a file without a key gets its first.
func (k *keyring) load(ctx context.Context, s *store.Store, secret []byte, now time.Time) error {
	k.secret, k.epoch = secret, s.Info().AuthEpoch
	err := s.View(ctx, func(r store.Reader) error {
		k.keys = readKids(r)
		k.revoke(readRevocations(r))
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
	k.revoke(c.revoked)
	for _, id := range c.purged {
		delete(k.revoked, id)
	}
	switch {
	case c.keys == nil && len(c.purged) == 0 && len(c.revoked) == 0:
	case c.keys == nil && len(c.purged) == 0:
		k.state = k.state.With(c.revoked...)
		k.auth.Swap(k.state)
	default:
		if c.keys != nil {
			k.keys = c.keys
		}
		k.rebuild()
	}
}

// revoke holds each once: a tenant can be revoked again and again.
func (k *keyring) revoke(list []auth.Revocation) {
	for _, r := range list {
		k.revoked[newRevID(r.What, r.Value)] = r
	}
}

func (k *keyring) rebuild() {
	k.state = auth.NewState(k.secret, authKeys(k.keys), slices.Collect(maps.Values(k.revoked)), k.epoch)
	k.auth.Swap(k.state)
	k.mints.Store(active(k.keys) >= 0)
}

var errNoKey = errors.New("no token key is in force: every token is refused; rotate the key (`ronbox key rotate`)")

// ready says why no token can be judged. Whatever takes the active key away puts the next one in its place, so only a bug
// can do that; callers would take it for a fault of their tokens.
func (k *keyring) ready() error {
	if !k.mints.Load() {
		return errNoKey
	}
	return nil
}
