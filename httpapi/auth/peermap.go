package auth

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// PeerMap says what the users of this machine may do over the admin socket. It is never changed.
type PeerMap struct {
	uids, gids map[uint32][]string
}

// NewPeerMap lets own and root do everything, and so the uids of allow; m gives others, "uid:1000" or "gid:100", the scopes it lists, and
// has the last word on each uid it names.
func NewPeerMap(allow []uint32, m map[string][]string, own uint32) (*PeerMap, error) {
	p := &PeerMap{uids: map[uint32][]string{}, gids: map[uint32][]string{}}
	for _, uid := range append([]uint32{0, own}, allow...) {
		p.uids[uid] = []string{ScopeAdmin}
	}
	var errs []error
	for who, scopes := range m {
		errs = append(errs, p.add(who, scopes))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *PeerMap) add(who string, scopes []string) error {
	kind, digits, _ := strings.Cut(who, ":")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != digits || kind != "uid" && kind != "gid" {
		return fmt.Errorf("uds.map.%q: must be uid:N or gid:N", who)
	}
	if len(scopes) == 0 {
		return fmt.Errorf("uds.map.%q: needs at least one scope", who)
	}
	normal := make([]string, len(scopes))
	for i, s := range scopes {
		if normal[i], err = NormalScope(s); err != nil {
			return fmt.Errorf("uds.map.%q: %w", who, err)
		}
	}
	if kind == "uid" {
		p.uids[uint32(n)] = normal
	} else {
		p.gids[uint32(n)] = normal
	}
	return nil
}

// Scopes are those of the peer's uid and of its primary group together. Without ok the peer is a stranger, to be turned away.
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
