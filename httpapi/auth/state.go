package auth

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"maps"
	"strconv"
	"sync"
	"time"
)

// keyLen is the length of a root key in bytes.
const keyLen = 32

// keyInfo separates root keys from other keys derived from the node secret.
const keyInfo = "ronbox/macaroon/1"

// KeyState is the use that a key may still have.
type KeyState string

// The states of a key, in the order it goes through them.
const (
	KeyActive  KeyState = "active"  // mints and verifies; one key at a time
	KeyVerify  KeyState = "verify"  // verifies the tokens it minted, until the last has expired
	KeyRetired KeyState = "retired" // is as if it had never been
)

// Key is the public part of a root key, which is derived from it and the node secret.
type Key struct {
	Kid         string
	Salt        []byte
	State       KeyState
	CreatedAt   time.Time
	VerifyUntil time.Time // of KeyVerify; the zero time for no end
}

// rootKey derives the root key that belongs to salt. Neither the key nor the secret is ever stored beside the salt.
func rootKey(secret, salt []byte) []byte {
	key, err := hkdf.Key(sha256.New, secret, salt, keyInfo, keyLen)
	if err != nil {
		panic("auth: HKDF refused a fixed length: " + err.Error())
	}
	return key
}

// State is what tokens are checked against: the keys, the epoch and the revocations. It is never changed; a change is another State, which
// an Authority takes by one pointer.
type State struct {
	keys     map[string]root
	active   string
	epoch    uint64
	revoked  revocations
	verified *verifiedCache // tokens of these keys
}

// root is a key that verifies.
type root struct {
	key   []byte
	until time.Time // the zero time for no end
}

// NewState derives the root keys that may verify. Without a secret there are none.
func NewState(secret []byte, keys []Key, revoked []Revocation, epoch uint64) *State {
	s := &State{keys: make(map[string]root), epoch: epoch, verified: newVerifiedCache(), revoked: newRevocations(revoked)}
	var newest time.Time
	for _, k := range keys {
		if len(secret) == 0 || k.State != KeyActive && k.State != KeyVerify {
			continue
		}
		r := root{key: rootKey(secret, k.Salt)}
		if k.State == KeyVerify {
			r.until = k.VerifyUntil
		} else if s.active == "" || k.CreatedAt.After(newest) {
			s.active, newest = k.Kid, k.CreatedAt
		}
		s.keys[k.Kid] = r
	}
	return s
}

// With returns the state with more revocations, made in about the time that those take, however many there are already.
func (s *State) With(more ...Revocation) *State {
	next := *s
	next.revoked = s.revoked.with(more)
	return &next
}

// root returns the key that made a token, if it may still verify at now.
func (s *State) root(kid string, now time.Time, skew time.Duration) (root, bool) {
	r, ok := s.keys[kid]
	if !ok || !r.usable(now, skew) {
		return root{}, false
	}
	return r, true
}

func (r root) usable(now time.Time, skew time.Duration) bool {
	return r.until.IsZero() || now.Before(r.until.Add(skew))
}

// checkRevoked returns why a genuine token that acts for tenant is revoked, nil if it is not.
func (s *State) checkRevoked(id *Identifier, tenant string) error {
	if id.Epoch != s.epoch {
		return fmt.Errorf("of epoch %d, in force is %d", id.Epoch, s.epoch)
	}
	if r, ok := s.revoked.find(*id, tenant); ok {
		return fmt.Errorf("%s %s was revoked at %s", r.What, r.Value, r.At.UTC().Format(time.RFC3339))
	}
	return nil
}

// The kinds of revocation.
const (
	revokeTID    = "tid"    // one token, with all that was narrowed from it
	revokeKid    = "kid"    // all tokens of a key
	revokeTenant = "tenant" // all tokens of a tenant that were issued until then
	revokeEpoch  = "epoch"  // all tokens of an epoch that were issued until then
)

// MaxSkew bounds auth.clock_skew. A revocation can be forgotten, and a key retired, that long after its last token expires.
const MaxSkew = 5 * time.Minute

// Revocation voids tokens before they expire.
type Revocation struct {
	What, Value string // "tid", "kid", "tenant" or "epoch", and which one
	At          time.Time
	Until       time.Time // when the last token that it voids expires
	Reason      string
}

// voids reports whether r voids a token of its key that was issued at iat.
func (r Revocation) voids(iat int64) bool {
	return r.What == revokeTID || r.What == revokeKid || iat <= r.At.Unix()
}

// revocationKey is what a revocation is found by.
type revocationKey struct {
	what, value string
	n           uint64 // the value of an epoch
}

func (r Revocation) key() revocationKey {
	if r.What == revokeEpoch {
		if n, err := strconv.ParseUint(r.Value, 10, 64); err == nil {
			return revocationKey{what: r.What, n: n}
		}
	}
	return revocationKey{what: r.What, value: r.Value}
}

// maxFresh is how many revocations are copied for one more, at most.
const maxFresh = 1024

// revocations is a set that shares its bulk with the one it was made from. Neither map is changed once made.
type revocations struct {
	bulk  map[revocationKey]Revocation
	fresh map[revocationKey]Revocation // hides bulk
}

func newRevocations(list []Revocation) revocations {
	bulk := make(map[revocationKey]Revocation, len(list))
	add(bulk, list)
	return revocations{bulk: bulk}
}

// add keeps the later of two with the same key.
func add(m map[revocationKey]Revocation, list []Revocation) {
	for _, r := range list {
		key := r.key()
		if old, ok := m[key]; !ok || old.At.Before(r.At) {
			m[key] = r
		}
	}
}

func (s revocations) with(more []Revocation) revocations {
	fresh := make(map[revocationKey]Revocation, len(s.fresh)+len(more))
	maps.Copy(fresh, s.fresh)
	for _, r := range more {
		if old, ok := s.bulk[r.key()]; !ok || old.At.Before(r.At) {
			add(fresh, []Revocation{r})
		}
	}
	if len(fresh) <= maxFresh {
		return revocations{bulk: s.bulk, fresh: fresh}
	}
	bulk := make(map[revocationKey]Revocation, len(s.bulk)+len(fresh))
	maps.Copy(bulk, s.bulk)
	maps.Copy(bulk, fresh)
	return revocations{bulk: bulk}
}

// find returns the first revocation that voids a token of id that acts for tenant.
func (s revocations) find(id Identifier, tenant string) (Revocation, bool) {
	for _, key := range [...]revocationKey{
		{what: revokeTID, value: id.TID}, {what: revokeKid, value: id.Kid}, {what: revokeTenant, value: tenant}, {what: revokeEpoch, n: id.Epoch},
	} {
		if r, ok := s.get(key); ok && r.voids(id.IssuedAt) {
			return r, true
		}
	}
	return Revocation{}, false
}

func (s revocations) get(key revocationKey) (Revocation, bool) {
	if r, ok := s.fresh[key]; ok {
		return r, true
	}
	r, ok := s.bulk[key]
	return r, ok
}

// Bounds of the cache of verified tokens: those that a busy node sees between two rotations, in about 2 MB, 16 if all are as long as fits.
const (
	maxVerified      = 512  // tokens of one generation, of two
	maxVerifiedBytes = 1024 // bytes; a longer one is verified each time
)

// verifiedCache holds tokens whose MAC was verified, with their policies, so that a token in steady use costs one hash. Whether it is still
// valid and allows the request is checked each time.
type verifiedCache struct {
	seed  maphash.Seed // secret, so that the time of a lookup reveals nothing of other tokens
	mu    sync.Mutex
	young map[uint64]*policy // guarded by mu
	old   map[uint64]*policy // guarded by mu
}

func newVerifiedCache() *verifiedCache {
	return &verifiedCache{seed: maphash.MakeSeed(), young: make(map[uint64]*policy)}
}

// get returns a token's policy, and keeps it for another generation.
func (p *verifiedCache) get(token string) *policy {
	key := maphash.String(p.seed, token)
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.young[key]
	if !ok {
		if found, ok = p.old[key]; ok {
			p.keep(key, found)
		}
	}
	if !ok || found.token != token {
		return nil
	}
	return found
}

func (p *verifiedCache) put(found *policy) {
	if len(found.token) > maxVerifiedBytes {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep(maphash.String(p.seed, found.token), found)
}

// keep wants mu held.
func (p *verifiedCache) keep(key uint64, found *policy) {
	if len(p.young) >= maxVerified {
		p.old, p.young = p.young, make(map[uint64]*policy, maxVerified)
	}
	p.young[key] = found
}
