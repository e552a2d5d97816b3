package front

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxSocketPath is what fits in sockaddr_un with its NUL.
const maxSocketPath = 107

// UDSConfig is the section [uds], the admin socket. Path is resolved by the owner of the data directory.
type UDSConfig struct {
	Path      string              `toml:"path" reload:"b"`
	AllowUIDs []uint32            `toml:"allow_uids" reload:"b"` // let in like the node's own uid
	Map       map[string][]string `toml:"map" reload:"r"`        // "uid:1000" or "gid:100" to the scopes of such a peer
}

// DefaultUDSConfig gives every default.
func DefaultUDSConfig() UDSConfig {
	return UDSConfig{AllowUIDs: []uint32{}, Map: map[string][]string{}}
}

// Validate joins every fault of c. Whether the scopes exist is judged by who gives them.
func (c UDSConfig) Validate() error {
	var faults []error
	if len(c.Path) > maxSocketPath {
		faults = append(faults, fmt.Errorf("path = %q: %d bytes, a socket path has at most %d", c.Path, len(c.Path), maxSocketPath))
	}
	for _, who := range slices.Sorted(maps.Keys(c.Map)) {
		if !isPeerName(who) {
			faults = append(faults, fmt.Errorf("map: %q: must be uid:<number> or gid:<number>", who))
		}
	}
	return errors.Join(faults...)
}

func isPeerName(s string) bool {
	kind, number, _ := strings.Cut(s, ":")
	_, err := strconv.ParseUint(number, 10, 32)
	return err == nil && (kind == "uid" || kind == "gid")
}

// namesOthers tells whether anyone but the node's own user and root may be let in.
func (c UDSConfig) namesOthers() bool {
	other := func(uid uint32) bool { return !uidAllowed(uid, 0) }
	if slices.ContainsFunc(c.AllowUIDs, other) {
		return true
	}
	for who := range c.Map {
		kind, number, _ := strings.Cut(who, ":")
		id, _ := strconv.ParseUint(number, 10, 32) // Validate has seen it
		if kind == "gid" || other(uint32(id)) {
			return true
		}
	}
	return false
}
