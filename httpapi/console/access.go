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

// sender is who asks, and how it reached the node.
type sender struct {
	peer           *front.Peer
	named, trusted bool // as front.Forwarded reports
	scheme, host   string
}

// admits reports whether the console exists for the sender of a request.
func (h *Console) admits(c *httpapi.Request) bool {
	s := sender{peer: front.PeerOf(c.HTTP())}
	s.named, s.trusted = front.Forwarded(c.HTTP())
	s.scheme, s.host = c.Origin()
	return h.rules.Load().admit(s, h.d.Certified)
}

// admit reports whether a sender is admitted. A browser that was led here by a foreign name (DNS
// rebinding) is not, nor one that reaches beyond this machine without TLS.
func (r *rules) admit(s sender, certified func(host string) bool) bool {
	allowed := func(p netip.Prefix) bool { return p.Contains(s.peer.Addr.Unmap()) }
	if s.peer.Socket || !slices.ContainsFunc(r.allow, allowed) {
		return false
	}
	if s.named && !s.trusted {
		return false
	}
	host := s.host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	listed := slices.Contains(r.hosts, host)
	if !listed && !isLocal(host) && !certified(host) {
		return false
	}
	return s.peer.Addr.IsLoopback() || s.scheme == "https" || s.trusted && listed
}

// isLocal reports whether a host is an address or a name that always means this machine.
func isLocal(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}
