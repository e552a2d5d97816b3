package wiring

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/sig"
	"ronbox/appliance/upstream"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	registryapi "ronbox/httpapi/registry"
)

// newHub returns the node that the configuration follows, nil if it follows none.
func newHub(c *flow.Catalog, m *obs.Metrics, cfg *config.Config) *registryapi.Hub {
	if cfg.Registry.Follow.URL == "" {
		return nil
	}
	allow, _ := cfg.Fleet.PrivateNets() // Validate has checked them
	var own []netip.AddrPort
	if bound, err := netip.ParseAddrPort(cfg.Server.Bind); err == nil && bound.Port() != 0 {
		own = append(own, bound)
	}
	return registryapi.NewHub(c, m, cfg.Registry.Follow.URL, allow, own)
}

// caPool returns the certificates of a PEM file, nil for "": those of the system.
func caPool(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("fleet.ca_file: %w", err)
	}
	pool, err := sig.Roots(pem)
	if err != nil {
		return nil, fmt.Errorf("fleet.ca_file: %s %w", file, err)
	}
	return pool, nil
}

// HubError is returned by Init for a hub whose log cannot be followed.
type HubError struct{ Hub, Reason string }

func (e *HubError) Error() string { return e.Hub + ": " + e.Reason }

// BeginFrom copies the log of an export to a new follower. It returns a *HubError if the log is not
// to be believed.
func (n *Set) BeginFrom(ctx context.Context, dir string) error {
	err := n.Registry().BeginFrom(ctx, dir)
	if fault, bad := errors.AsType[*tables.FollowFault](err); bad {
		return &HubError{dir, fault.Error()}
	}
	return err
}

// hubWithin bounds the look at the hub in Init.
const hubWithin = 5 * time.Second

// LookAtHub returns a *HubError if the log of the hub does not begin with the configured genesis,
// or has no log key, without which nothing vouches for it. unheard is the reason if the hub did not
// answer: the node then follows it later.
func LookAtHub(ctx context.Context, cfg *config.Config) (unheard, err error) {
	roots, err := caPool(cfg.Fleet.CAFile)
	if err != nil {
		return nil, err
	}
	m := obs.NewMetrics()
	hub := newHub(flow.NewCatalog(m, nil), m, cfg)
	if err := hub.Open(roots); err != nil {
		return nil, err
	}
	defer hub.Close()
	ctx, cancel := context.WithTimeout(ctx, hubWithin)
	defer cancel()
	raw, err := hub.Payload(ctx, 1)
	switch {
	case errors.Is(err, document.ErrNotFound):
		return nil, &HubError{hub.URL(), "its log has no genesis yet"}
	case errors.Is(err, upstream.ErrAddress):
		return nil, &HubError{hub.URL(), "its address is not public: name its network in fleet.allow_private"}
	case err != nil:
		return err, nil
	case b3.Sum(raw).String() != cfg.Registry.Follow.Genesis:
		return nil, &HubError{hub.URL(), fmt.Sprintf("its log begins with genesis %s, not with %s",
			b3.Sum(raw), cfg.Registry.Follow.Genesis)}
	}
	genesis, err := record.ParsePayload(raw)
	if err != nil {
		return nil, &HubError{hub.URL(), fmt.Sprintf("its genesis is malformed: %v", err)}
	}
	if genesis.SignerSet == nil {
		return nil, &HubError{hub.URL(), "its version 1 names no signers: the hash is that of a later version"}
	}
	_, err = hub.Checkpoint(ctx)
	if errors.Is(err, document.ErrNotFound) && len(genesis.SignerSet.LogKeys) == 0 {
		return nil, &HubError{hub.URL(), "its signers admit no log key, so nothing vouches for what it serves"}
	}
	return nil, nil
}
