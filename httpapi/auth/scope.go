package auth

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ScopeAdmin implies every scope.
const ScopeAdmin = "node.admin"

// NormalScope returns a scope in the form "service.verb". It also accepts "service:verb".
func NormalScope(s string) (string, error) {
	service, verb, ok := strings.Cut(s, ".")
	if !ok {
		service, verb, ok = strings.Cut(s, ":")
	}
	if !ok || !scopeWord(service) || !scopeWord(verb) {
		return "", fmt.Errorf("%q is not a scope such as registry.propose", s)
	}
	return service + "." + verb, nil
}

// scopeWord reports whether w consists of lower-case letters, and digits and underscores after the
// first.
func scopeWord(w string) bool {
	for i := range len(w) {
		c := w[i]
		if (c < 'a' || c > 'z') && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return w != ""
}

// Implies reports whether scopes include want. An empty want is always included.
func Implies(scopes []string, want string) bool {
	return want == "" || slices.Contains(scopes, want) || slices.Contains(scopes, ScopeAdmin)
}

// MintScope is NormalScope, but a bare verb of the wallet is one of its scopes, because no other
// service has the same verb.
func MintScope(s string) (string, error) {
	switch s {
	case "read", "issue", "transfer", "burn":
		return "wallet." + s, nil
	}
	return NormalScope(s)
}

// Meet returns the intersection of two lists, without duplicates.
func Meet(a, b []string) []string {
	both := []string{}
	for _, s := range slices.Concat(a, b) {
		if Implies(a, s) && Implies(b, s) && !slices.Contains(both, s) {
			both = append(both, s)
		}
	}
	return both
}

// PeerMap holds the scopes of local users over the admin socket. It is immutable.
type PeerMap struct {
	uids, gids map[uint32][]string
}

// NewPeerMap grants every scope to own, root and the uids in allow. m grants scopes to "uid:1000"
// or "gid:100" and overrides the above for the uids that it names.
func NewPeerMap(allow []uint32, m map[string][]string, own uint32) (*PeerMap, error) {
	p := &PeerMap{uids: map[uint32][]string{}, gids: map[uint32][]string{}}
	for _, uid := range append([]uint32{0, own}, allow...) {
		p.uids[uid] = []string{ScopeAdmin}
	}
	var errs []error
	for peer, scopes := range m {
		errs = append(errs, p.add(peer, scopes))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *PeerMap) add(peer string, scopes []string) error {
	kind, digits, _ := strings.Cut(peer, ":")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != digits || kind != "uid" && kind != "gid" {
		return fmt.Errorf("uds.map.%q: must be uid:N or gid:N", peer)
	}
	if len(scopes) == 0 {
		return fmt.Errorf("uds.map.%q: needs at least one scope", peer)
	}
	normal := make([]string, len(scopes))
	for i, s := range scopes {
		if normal[i], err = NormalScope(s); err != nil {
			return fmt.Errorf("uds.map.%q: %w", peer, err)
		}
	}
	if kind == "uid" {
		p.uids[uint32(n)] = normal
	} else {
		p.gids[uint32(n)] = normal
	}
	return nil
}

// Scopes returns the scopes of the peer's uid and of its primary group. If ok is false, the peer is
// unknown and must be refused.
func (p *PeerMap) Scopes(uid, gid uint32) (scopes []string, ok bool) {
	own, byUID := p.uids[uid]
	group, byGID := p.gids[gid]
	switch {
	case byUID && byGID:
		return append(append([]string{}, own...), group...), true
	case byUID:
		return own, true
	}
	return group, byGID
}
