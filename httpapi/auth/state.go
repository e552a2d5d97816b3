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

// KeyState is the state of a root key.
type KeyState string

// The states of a key, in order.
const (
	KeyActive  KeyState = "active"  // mints and verifies; one key at a time
	KeyVerify  KeyState = "verify"  // verifies the tokens minted with it until the last has expired
	KeyRetired KeyState = "retired" // has no effect
)

// Key holds the public attributes of a root key. The key is derived from Salt and the node secret.
type Key struct {
	Kid         string
	Salt        []byte
	State       KeyState
	CreatedAt   time.Time
	VerifyUntil time.Time // of KeyVerify; zero: no end
}

// rootKey derives the root key for salt. Neither the key nor the secret is stored with the salt.
func rootKey(secret, salt []byte) []byte {
	key, err := hkdf.Key(sha256.New, secret, salt, keyInfo, keyLen)
	if err != nil {
		panic("auth: HKDF refused a fixed length: " + err.Error())
	}
	return key
}

// State holds the keys, the epoch and the revocations that tokens are checked against. It is
// immutable. A change is a new State, which an Authority adopts by one pointer.
type State struct {
	keys     map[string]root
	active   string
	epoch    uint64
	revoked  revocations
	verified *verifiedCache // verified tokens of these keys
}

// root is a root key that verifies.
type root struct {
	key   []byte
	until time.Time // zero: no end
}

// NewState derives the root keys that may verify. Without a secret there are none.
func NewState(secret []byte, keys []Key, revoked []Revocation, epoch uint64) *State {
	s := &State{
		keys:     make(map[string]root),
		epoch:    epoch,
		verified: newVerifiedCache(),
		revoked:  newRevocations(revoked),
	}
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

// With returns the state with more revocations. Its cost depends on their number only, not on that
// of earlier ones.
func (s *State) With(more ...Revocation) *State {
	next := *s
	next.revoked = s.revoked.with(more)
	return &next
}

// root returns the key of a token if it may verify at now.
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

// checkRevoked returns the reason why a genuine token for tenant is revoked, or nil.
func (s *State) checkRevoked(id *Identifier, tenant string) error {
	if id.Epoch != s.epoch {
		return fmt.Errorf("of epoch %d, in force is %d", id.Epoch, s.epoch)
	}
	if r, ok := s.revoked.find(*id, tenant); ok {
		return fmt.Errorf("%s %s was revoked at %s", r.What, r.Value, formatTime(r.At))
	}
	return nil
}

// The kinds of revocation.
const (
	revokeTID    = "tid"    // one token, with all derived from it
	revokeKid    = "kid"    // all tokens of a key
	revokeTenant = "tenant" // all tokens of a tenant issued until then
	revokeEpoch  = "epoch"  // all tokens of an epoch issued until then
)

// MaxSkew bounds auth.clock_skew. A revocation can be forgotten, and a key retired, this long after
// its last token has expired.
const MaxSkew = 5 * time.Minute

// Revocation revokes tokens before they expire.
type Revocation struct {
	What, Value string // "tid", "kid", "tenant" or "epoch", and its value
	At          time.Time
	Until       time.Time // when the last revoked token expires
	Reason      string
}

// voids reports whether r revokes a token with its key that was issued at iat.
func (r Revocation) voids(iat int64) bool {
	return r.What == revokeTID || r.What == revokeKid || iat <= r.At.Unix()
}

// revocationKey is the key of a revocation in a set.
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

// maxFresh bounds the number of revocations that adding one copies.
const maxFresh = 1024

// revocations is a set that shares most of its content with the set it was derived from. Neither
// map is modified later.
type revocations struct {
	bulk  map[revocationKey]Revocation
	fresh map[revocationKey]Revocation // overrides bulk
}

func newRevocations(list []Revocation) revocations {
	bulk := make(map[revocationKey]Revocation, len(list))
	add(bulk, list)
	return revocations{bulk: bulk}
}

// add keeps the later of two revocations with the same key.
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

// find returns the first revocation that revokes a token of id for tenant.
func (s revocations) find(id Identifier, tenant string) (Revocation, bool) {
	for _, key := range [...]revocationKey{
		{what: revokeTID, value: id.TID}, {what: revokeKid, value: id.Kid},
		{what: revokeTenant, value: tenant}, {what: revokeEpoch, n: id.Epoch},
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

// Bounds of the cache of verified tokens. It holds the tokens that a busy node sees between two
// rotations, in about 2 MB, or 16 MB if all have the largest size.
const (
	maxVerified      = 512  // tokens per generation; there are two
	maxVerifiedBytes = 1024 // longer tokens are verified each time
)

// verifiedCache holds tokens with a verified MAC, and their policies, so that a token in regular
// use costs one hash. Each request still checks whether the token is valid and permits the request.
type verifiedCache struct {
	seed  maphash.Seed       // secret, so that lookup times reveal nothing about other tokens
	mu    sync.Mutex         // a leaf
	young map[uint64]*policy // guarded by mu
	old   map[uint64]*policy // guarded by mu
}

func newVerifiedCache() *verifiedCache {
	return &verifiedCache{seed: maphash.MakeSeed(), young: make(map[uint64]*policy)}
}

// get returns the policy of a token and keeps it for another generation.
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

// keep adds a policy. Called with mu held.
func (p *verifiedCache) keep(key uint64, found *policy) {
	if len(p.young) >= maxVerified {
		p.old, p.young = p.young, make(map[uint64]*policy, maxVerified)
	}
	p.young[key] = found
}
