package auth

import (
	"maps"
	"strconv"
	"time"
)

// What can be revoked.
const (
	revokeTID    = "tid"    // one token, with all that was narrowed from it
	revokeKid    = "kid"    // all tokens of a key
	revokeTenant = "tenant" // all tokens of a tenant that were issued until then
	revokeEpoch  = "epoch"  // all tokens of an epoch that were issued until then
)

// MaxSkew bounds auth.clock_skew. A revocation can be forgotten, and a key retired, that long after the last token it is about expires.
const MaxSkew = 5 * time.Minute

// Revocation voids tokens before they expire.
type Revocation struct {
	What, Value string // "tid", "kid", "tenant" or "epoch", and which
	At          time.Time
	Until       time.Time // when the last token it is about expires
	Reason      string
}

// voids says whether a token issued at iat is among what r is about.
func (r Revocation) voids(iat int64) bool {
	return r.What == revokeTID || r.What == revokeKid || iat <= r.At.Unix()
}

// about is what a revocation is found by.
type about struct {
	what, value string
	n           uint64 // the value of an epoch
}

func (r Revocation) about() about {
	if r.What == revokeEpoch {
		if n, err := strconv.ParseUint(r.Value, 10, 64); err == nil {
			return about{what: r.What, n: n}
		}
	}
	return about{what: r.What, value: r.Value}
}

// maxFresh is how many revocations are copied for one more, at most.
const maxFresh = 1024

// revocations is a set that shares its bulk with the one it was made from. Neither map is changed once made.
type revocations struct {
	bulk  map[about]Revocation
	fresh map[about]Revocation // hides bulk
}

func newRevocations(list []Revocation) revocations {
	bulk := make(map[about]Revocation, len(list))
	add(bulk, list)
	return revocations{bulk: bulk}
}

// add keeps the later of two about the same.
func add(m map[about]Revocation, list []Revocation) {
	for _, r := range list {
		key := r.about()
		if old, ok := m[key]; !ok || old.At.Before(r.At) {
			m[key] = r
		}
	}
}

func (s revocations) with(more []Revocation) revocations {
	fresh := make(map[about]Revocation, len(s.fresh)+len(more))
	maps.Copy(fresh, s.fresh)
	for _, r := range more {
		if old, ok := s.bulk[r.about()]; !ok || old.At.Before(r.At) {
			add(fresh, []Revocation{r})
		}
	}
	if len(fresh) <= maxFresh {
		return revocations{bulk: s.bulk, fresh: fresh}
	}
	bulk := make(map[about]Revocation, len(s.bulk)+len(fresh))
	maps.Copy(bulk, s.bulk)
	maps.Copy(bulk, fresh)
	return revocations{bulk: bulk}
}

// find is the first revocation that voids a token of id that acts for tenant.
func (s revocations) find(id Identifier, tenant string) (Revocation, bool) {
	for _, key := range [...]about{
		{what: revokeTID, value: id.TID}, {what: revokeKid, value: id.Kid}, {what: revokeTenant, value: tenant}, {what: revokeEpoch, n: id.Epoch},
	} {
		if r, ok := s.get(key); ok && r.voids(id.IssuedAt) {
			return r, true
		}
	}
	return Revocation{}, false
}

func (s revocations) get(key about) (Revocation, bool) {
	if r, ok := s.fresh[key]; ok {
		return r, true
	}
	r, ok := s.bulk[key]
	return r, ok
}
