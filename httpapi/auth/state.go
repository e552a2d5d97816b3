package auth

import (
	"fmt"
	"time"
)

// State is what tokens are judged by: the keys, the epoch and what is revoked. It is never changed; a change is another State, which an
// Authority takes by one pointer.
type State struct {
	keys    map[string]root
	active  string
	epoch   uint64
	revoked revocations
	proven  *proven // tokens whose MAC one of these keys was found to match
}

// root is a key that verifies.
type root struct {
	key   []byte
	until time.Time // the zero time for no end
}

// NewState derives the root keys that may verify. Without a secret there are none.
func NewState(secret []byte, keys []Key, revoked []Revocation, epoch uint64) *State {
	s := &State{keys: make(map[string]root), epoch: epoch, proven: newProven(), revoked: newRevocations(revoked)}
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

// With is the state with more revocations, made in about the time that those take, however many there are already.
func (s *State) With(more ...Revocation) *State {
	next := *s
	next.revoked = s.revoked.with(more)
	return &next
}

// root finds the key that made a token, if it may still verify at now.
func (s *State) root(kid string, now time.Time, skew time.Duration) (root, bool) {
	r, ok := s.keys[kid]
	if !ok || !r.stands(now, skew) {
		return root{}, false
	}
	return r, true
}

func (r root) stands(now time.Time, skew time.Duration) bool {
	return r.until.IsZero() || now.Before(r.until.Add(skew))
}

// standing looks for what voids a genuine token that acts for tenant.
func (s *State) standing(id *Identifier, tenant string) error {
	if id.Epoch != s.epoch {
		return fmt.Errorf("of epoch %d, in force is %d", id.Epoch, s.epoch)
	}
	if r, ok := s.revoked.find(*id, tenant); ok {
		return fmt.Errorf("%s %s was revoked at %s", r.What, r.Value, r.At.UTC().Format(time.RFC3339))
	}
	return nil
}
