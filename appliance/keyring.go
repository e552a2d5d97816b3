package appliance

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/oklog/ulid/v2"

	"ronbox/httpapi/auth"
	"ronbox/store"
)

// saltLen is the size of a token key's salt, bytes.
const saltLen = 32

// keyring answers auth's questions from one immutable snapshot. Until load it knows no key.
type keyring struct {
	secret []byte // owned by load
	now    atomic.Pointer[keySet]
}

// keySet is what is in force: never changed once published.
type keySet struct {
	roots  map[string][]byte // root key by kid
	active string
	epoch  uint64
}

// load reads the token keys from the file and publishes them; a file without one gets its first.
func (k *keyring) load(ctx context.Context, s *store.Store, secret []byte) error {
	k.secret = secret
	if err := k.refresh(ctx, s); err != nil {
		return err
	}
	if k.Active() != "" {
		return nil
	}
	c, err := newKid()
	if err != nil {
		return err
	}
	if _, err := store.Commit(ctx, s, store.Control, c); err != nil {
		return fmt.Errorf("add token key: %w", err)
	}
	return k.refresh(ctx, s)
}

func newKid() (addKid, error) {
	salt := make([]byte, saltLen)
	if _, err := rand.Read(salt); err != nil {
		return addKid{}, fmt.Errorf("draw salt: %w", err)
	}
	id, err := ulid.New(ulid.Now(), rand.Reader)
	if err != nil {
		return addKid{}, fmt.Errorf("draw key id: %w", err)
	}
	return addKid{ID: kidPrefix + kidID(id.String()), Salt: salt}, nil
}

func (k *keyring) refresh(ctx context.Context, s *store.Store) error {
	set := &keySet{roots: map[string][]byte{}, epoch: s.Info().AuthEpoch}
	err := s.View(ctx, func(r store.Reader) error {
		for id, row := range kids.Range(r, kidPrefix, kidPrefix+"\xff") {
			kid := strings.TrimPrefix(string(id), kidPrefix)
			set.roots[kid] = auth.RootKey(k.secret, row.Salt)
			if row.State == kidActive {
				set.active = kid
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read token keys: %w", err)
	}
	k.now.Store(set)
	return nil
}

// Root gives the root key of kid.
func (k *keyring) Root(kid string) ([]byte, bool) {
	set := k.now.Load()
	if set == nil {
		return nil, false
	}
	key, ok := set.roots[kid]
	return key, ok
}

// Active is the kid that mints, "" before load.
func (k *keyring) Active() string {
	if set := k.now.Load(); set != nil {
		return set.active
	}
	return ""
}

// Epoch is the auth epoch of the file: tokens of an older one are void.
func (k *keyring) Epoch() uint64 {
	if set := k.now.Load(); set != nil {
		return set.epoch
	}
	return 0
}

// Revoked says whether a token was withdrawn by its id. A restore withdraws all, by the epoch.
func (k *keyring) Revoked(string) bool { return false }
