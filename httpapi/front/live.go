package front

import "net/netip"

// live is what a reload changes under the listeners' feet.
type live struct{ trusted, health []netip.Prefix }

// newLive reads the networks of cfg, which Validate has seen.
func newLive(cfg Config) *live {
	trusted, _ := ParseNetworks(cfg.Trusted)
	health, _ := ParseNetworks(cfg.HealthCIDRs)
	return &live{trusted: trusted, health: health}
}

func (l *live) trusts(a netip.Addr) bool { return contains(l.trusted, a) }
func (l *live) probes(a netip.Addr) bool { return contains(l.health, a) }

func contains(all []netip.Prefix, a netip.Addr) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
