package console

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"ronbox/httpapi"
	"ronbox/httpapi/front"
)

// Config is the [console] section.
type Config struct {
	Enabled bool     `toml:"enabled" reload:"x"`
	Allow   []string `toml:"allow" reload:"r"` // networks whose browsers are answered
	Hosts   []string `toml:"hosts" reload:"r"` // names under which browsers reach the node, beside localhost
}

// DefaultConfig returns a console for browsers on the node's own machine.
func DefaultConfig() Config {
	return Config{Enabled: true, Allow: []string{"127.0.0.0/8", "::1/128"}, Hosts: []string{}}
}

// Validate returns an error that names every invalid key.
func (c *Config) Validate() error {
	var all []error
	if _, err := front.ParseNetworks(c.Allow); err != nil {
		all = append(all, fmt.Errorf("allow: %w", err))
	}
	for _, host := range c.Hosts {
		if host == "" || strings.ContainsAny(host, ":/ ") || host != strings.ToLower(host) {
			all = append(all, fmt.Errorf("hosts = %q: is no host name in lower case without a port", host))
		}
	}
	return errors.Join(all...)
}

// rules is a Config as requests use it.
type rules struct {
	allow []netip.Prefix
	hosts []string
}

func newRules(c Config) *rules {
	allow, err := front.ParseNetworks(c.Allow)
	if err != nil {
		allow = nil // Validate has refused it
	}
	return &rules{allow, c.Hosts}
}

// admits reports whether the console exists for the sender of a request. A browser that was led
// here by a foreign name (DNS rebinding) is not admitted, nor one that reaches beyond this machine
// without TLS.
func (h *Console) admits(c *httpapi.Request) bool {
	req, r := c.HTTP(), h.rules.Load()
	peer := front.PeerOf(req)
	allowed := func(p netip.Prefix) bool { return p.Contains(peer.Addr.Unmap()) }
	if peer.Socket || !slices.ContainsFunc(r.allow, allowed) {
		return false
	}
	named, trusted := front.Forwarded(req)
	if named && !trusted {
		return false
	}
	scheme, host := c.Origin()
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	listed := slices.Contains(r.hosts, host)
	if !listed && !isLocal(host) && !h.d.Certified(host) {
		return false
	}
	return peer.Addr.IsLoopback() || scheme == "https" || trusted && listed
}

// isLocal reports whether a host is an address or a name that always means this machine.
func isLocal(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}
