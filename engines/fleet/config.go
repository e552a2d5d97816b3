package fleet

import (
	"errors"
	"fmt"
	"net/netip"

	"ronbox/appliance/unit"
)

// Config is the section [fleet].
type Config struct {
	// false: the items of the registry mean nothing to this node
	Enabled bool   `toml:"enabled"`
	Node    string `toml:"node"` // id of this node's item, as "node/a"; "": it has none
	// PEM file of CA certificates for nodes without pins; "": those of the system
	CAFile string `toml:"ca_file"`
	// networks of nodes without pins that are not public
	AllowPrivate []string `toml:"allow_private"`
	// bytes of placed content; 0: half of edge.cas.max_bytes
	MaxPlaced unit.Size `toml:"max_placed"`
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config { return Config{AllowPrivate: []string{}} }

// maxNetworks bounds allow_private: each address that is dialled is compared with all of them.
const maxNetworks = 256

// Validate returns all faults of c, joined.
func (c Config) Validate() error {
	var node, many error
	if c.Node != "" && !ValidNodeID(c.Node) {
		node = fmt.Errorf("node = %q: must be node/ and [a-z0-9][a-z0-9_-]{0,62}, the id of an item", c.Node)
	}
	if len(c.AllowPrivate) > maxNetworks {
		many = fmt.Errorf("allow_private: names %d networks, at most %d", len(c.AllowPrivate), maxNetworks)
	}
	_, nets := c.PrivateNets()
	return errors.Join(node, many, nets)
}

// PrivateNets returns the networks of AllowPrivate.
func (c Config) PrivateNets() (nets []netip.Prefix, err error) {
	for _, text := range c.AllowPrivate {
		p, bad := netip.ParsePrefix(text)
		if bad != nil || p.Masked() != p {
			err = errors.Join(err, fmt.Errorf("allow_private = %q: must be a network such as 10.0.0.0/8", text))
			continue
		}
		nets = append(nets, p)
	}
	return nets, err
}
