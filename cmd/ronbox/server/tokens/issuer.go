package tokens

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/store"
)

// Deps are the dependencies of an Issuer.
type Deps struct {
	Auth   *auth.Authority // verifies the tokens
	Store  *store.Store
	Log    hclog.Logger
	Wall   func() time.Time   // the wall clock: of caveats
	Now    func() time.Time   // the clock of the store's stamps
	Config func() auth.Config // returns the current configuration
}

// Issuer mints and revokes tokens, and rotates and retires their keys. A change is synced, then
// applied to the state of its Authority, then answered. It is safe for concurrent use once Load has
// returned.
type Issuer struct {
	auth   *auth.Authority
	store  *store.Store
	log    hclog.Logger
	wall   func() time.Time
	now    func() time.Time
	config func() auth.Config

	secret []byte // set by Load, as is epoch
	epoch  uint64

	// The applied state. It is written by Load and then only by the committer.
	keys    []tokenKey
	revoked map[revID]auth.Revocation
	state   *auth.State

	mints atomic.Bool // some key is active
}

// New returns an Issuer that mints nothing until Load.
func New(d Deps) *Issuer {
	return &Issuer{
		auth:    d.Auth,
		store:   d.Store,
		log:     d.Log,
		wall:    d.Wall,
		now:     d.Now,
		config:  d.Config,
		revoked: map[revID]auth.Revocation{},
	}
}

// Load reads the keys and revocations from the file. The keys are derived from secret. If the file
// has no key, Load adds the first one. It returns ErrSecret if the secret does not belong to the
// file. Call it once, before the first request.
func (i *Issuer) Load(ctx context.Context, secret []byte) error {
	i.secret, i.epoch = secret, i.store.Info().AuthEpoch
	var root rootRow
	err := i.store.View(ctx, func(r store.Reader) (err error) {
		if root, err = readRoot(r); err == nil {
			err = store.CheckNames(r, 0, Bucket)
		}
		if err != nil {
			return err
		}
		i.keys = readKids(r)
		i.addRevocations(readRevocations(r))
		return nil
	})
	if err != nil {
		return fmt.Errorf("read token keys: %w", err)
	}
	if err := i.settle(ctx, root); err != nil {
		return err
	}
	i.rebuild()
	if active(i.keys) >= 0 {
		return nil
	}
	fresh, err := newKid(i.wall())
	if err != nil {
		return err
	}
	if _, err := store.Commit(ctx, i.store, store.Control, addKid{fresh}, i.apply); err != nil {
		return fmt.Errorf("add token key: %w", err)
	}
	return nil
}

// Derive derives a key for another use from the node secret. The key is the same at every start and
// reveals no other key. Snapshots do not contain it. Call it after Load.
func (i *Issuer) Derive(use string) b3.Digest { return b3.Derive(use).Sum(i.secret) }

// apply makes a change current. The committer calls it after the sync and before the answer.
func (i *Issuer) apply(c change) {
	i.addRevocations(c.revoked)
	for _, id := range c.purged {
		delete(i.revoked, id)
	}
	switch {
	case c.keys == nil && len(c.purged) == 0 && len(c.revoked) == 0:
	case c.keys == nil && len(c.purged) == 0:
		i.state = i.state.With(c.revoked...)
		i.auth.Swap(i.state)
	default:
		if c.keys != nil {
			i.keys = c.keys
		}
		i.rebuild()
	}
}

// addRevocations keeps one revocation per target, because a tenant can be revoked repeatedly.
func (i *Issuer) addRevocations(list []auth.Revocation) {
	for _, r := range list {
		i.revoked[newRevID(r.What, r.Value)] = r
	}
}

func (i *Issuer) rebuild() {
	i.state = auth.NewState(i.secret, authKeys(i.keys), slices.Collect(maps.Values(i.revoked)), i.epoch)
	i.auth.Swap(i.state)
	i.mints.Store(active(i.keys) >= 0)
}

var errNoKey = errors.New("no token key is in force: every token is refused; rotate the key (`ronbox key rotate`)")

// Ready returns nil while a key is active. Every operation that removes the active key replaces it,
// so an error is a bug; callers would take it for a fault of their tokens.
func (i *Issuer) Ready() error {
	if !i.mints.Load() {
		return errNoKey
	}
	return nil
}

// AuditEvent returns the audit row of an action of by.
func AuditEvent(name string, by engines.Actor, corrID string, detail map[string]string) store.Event {
	e := store.Event{
		Event:     name,
		Decision:  "allow",
		CorrID:    corrID,
		CapID:     by.CapID,
		Principal: by.Principal,
		Detail:    maps.Clone(detail),
	}
	maps.DeleteFunc(e.Detail, func(_, v string) bool { return v == "" })
	if by.UID != nil {
		e.UID = strconv.FormatUint(uint64(*by.UID), 10)
	}
	return e
}

// detailed returns a copy of e with one more detail.
func detailed(e store.Event, key, value string) store.Event {
	e.Detail = maps.Clone(e.Detail)
	if e.Detail == nil {
		e.Detail = map[string]string{}
	}
	e.Detail[key] = value
	return e
}
