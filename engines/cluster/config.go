package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"ronbox/appliance/unit"
)

// Config is the section [cluster]. It has no effect on a node whose file belongs to no cluster.
type Config struct {
	Bind      string        `toml:"bind"`      // address of the peer port
	Advertise string        `toml:"advertise"` // address under which other members reach it; "": bind
	Heartbeat unit.Duration `toml:"heartbeat"` // time without a word of the leader after which a member stands
	// OutageReads permits answers that may be out of date while no leader is known.
	OutageReads bool `toml:"outage_reads" reload:"r"`
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{Bind: "127.0.0.1:7946", Heartbeat: unit.Duration(time.Second), OutageReads: true}
}

// Validate returns all faults of c, joined.
func (c Config) Validate() error {
	return errors.Join(
		validateAddress("bind", c.Bind, 0),
		c.validateAdvertise(),
		unit.Between("heartbeat", c.Heartbeat, 100*time.Millisecond, time.Minute),
	)
}

// validateAdvertise refuses an address that no other member can dial.
func (c Config) validateAdvertise() error {
	if c.Advertise == "" {
		return nil
	}
	if err := validateAddress("advertise", c.Advertise, 1); err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(c.Advertise)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("advertise = %q: must name the host", c.Advertise)
	}
	return nil
}

// validateAddress returns an error if value is not host:port with a port of at least lowest.
func validateAddress(key, value string, lowest uint64) error {
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("%s = %q: must be host:port", key, value)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < lowest {
		return fmt.Errorf("%s = %q: port must be %d..65535", key, value, lowest)
	}
	return nil
}

// Address returns the address under which other members reach the node.
func (c Config) Address() string { return cmp.Or(c.Advertise, c.Bind) }
