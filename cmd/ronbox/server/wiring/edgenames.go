package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines"
	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/sites"
	"ronbox/engines/fleet"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
)

// edgeNames is the index and the view of the fleet, for the edge.
type edgeNames struct{ n *Set }

// namesFor returns the names for the edge, or nil if the index is off.
func namesFor(n *Set, c *config.Config) edge.Names {
	if !c.Index.Enabled {
		return nil
	}
	return edgeNames{n}
}

// index returns the engine, or edge.ErrNames if the index was shut out because of damaged rows.
func (e edgeNames) index() (*index.Engine, error) {
	for i := range e.n.engines {
		if found, ok := e.n.engines[i].Engine.(*indexEngine); ok && e.n.engines[i].damage == nil {
			return found.Engine, nil
		}
	}
	return nil, fmt.Errorf("%w: the index is shut out", asset.ErrNames)
}

// view returns the current view of the fleet, or nil.
func (e edgeNames) view() *fleet.View {
	f := engineOf[*fleetEngine](e.n)
	if f == nil {
		return nil
	}
	return f.view.Load()
}

// Manifest implements edge.Names.
func (e edgeNames) Manifest(ctx context.Context, site string, from netip.Addr) (sites.Named, error) {
	key, err := name.ParseKey("name:" + site)
	if err != nil {
		return sites.Named{}, &asset.PathError{Path: site, Reason: "is not the name of a site: " + err.Error()}
	}
	idx, err := e.index()
	if err != nil {
		return sites.Named{}, err
	}
	if e.n.StandsBy() {
		return e.stored(ctx, idx, key)
	}
	caller := name.Caller{Network: from}
	if from.IsValid() {
		caller.Cost = 1
	}
	a, err := idx.Resolve(ctx, key, name.ResolveOptions{From: caller})
	if err != nil {
		return sites.Named{}, lookupError(ctx, err)
	}
	out := sites.Named{Manifest: a.Manifest, Age: a.Age}
	plain, _, _ := strings.Cut(strings.TrimPrefix(key.String(), "name:"), "@")
	if owner, ok := e.view().Owner(plain); ok {
		out.Owner = owner.ID
	}
	return out, nil
}

// stored returns the manifest of a name as the file of a member has it that does not lead.
func (e edgeNames) stored(ctx context.Context, idx *index.Engine, key name.Key) (sites.Named, error) {
	m, err := idx.Stored(ctx, key)
	if err != nil {
		return sites.Named{}, lookupError(ctx, err)
	}
	out := sites.Named{Manifest: m}
	if e.n.Outage != nil {
		out.Age, _ = e.n.Outage()
	}
	return out, nil
}

// lookupError converts an error of a lookup to one of the edge.
func lookupError(ctx context.Context, err error) error {
	rate, limited := errors.AsType[*name.RateError](err)
	switch {
	case errors.Is(err, name.ErrNotFound):
		return asset.ErrNotFound
	case limited:
		return &asset.RateError{Wait: rate.Wait}
	case errors.Is(err, flow.ErrBusy), ctx.Err() != nil:
		return err
	}
	return fmt.Errorf("%w: %w", asset.ErrNames, err)
}

// Providers implements edge.Names.
func (e edgeNames) Providers(ctx context.Context, object b3.Digest) (ids []string, err error) {
	idx, err := e.index()
	if err != nil {
		return nil, err
	}
	set, err := idx.Providers(ctx, object, name.ProvidersOptions{})
	if err != nil {
		return nil, lookupError(ctx, err)
	}
	for _, p := range set.Providers {
		if p.Verified {
			ids = append(ids, string(p.Peer))
		}
	}
	return ids, nil
}

// edgeActor names the edge in the audit rows of its provider records.
var edgeActor = engines.Actor{Principal: "edge"}

// Announce implements edge.Names. It fails until the registry has the item of this node.
func (e edgeNames) Announce(ctx context.Context, objects []b3.Digest, ttl time.Duration) ([]b3.Digest, error) {
	idx, err := e.index()
	if err != nil {
		return nil, err
	}
	v := e.view()
	if v == nil {
		return nil, errors.New("the registry has no version yet")
	}
	self, ok := v.Node(v.Self)
	if !ok {
		return nil, errors.New("the registry has no sound item of fleet.node")
	}
	addr, err := multiaddrOf(self.Endpoint)
	if err != nil {
		return nil, err
	}
	list := make([]name.Announcement, len(objects))
	for i, object := range objects {
		list[i] = name.Announcement{CID: object, Addrs: []string{addr}, Region: self.Region, TTL: ttl}
	}
	all, err := idx.Announce(ctx, edgeActor, list, "")
	if err != nil {
		return nil, err
	}
	var done []b3.Digest
	for i, one := range all {
		if one.Err == nil {
			done = append(done, objects[i])
		}
		err = errors.Join(err, one.Err)
	}
	return done, err
}

// Withdraw implements edge.Names.
func (e edgeNames) Withdraw(ctx context.Context, objects []b3.Digest) error {
	idx, err := e.index()
	if err != nil {
		return err
	}
	for _, object := range objects {
		bad := idx.Withdraw(ctx, edgeActor, object, "", "")
		if bad != nil && !errors.Is(bad, name.ErrNotFound) {
			err = errors.Join(err, bad)
		}
	}
	return err
}

// multiaddrOf returns the multiaddr of an endpoint, as /dns4/a.example/tcp/8443/https.
func multiaddrOf(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("endpoint %q of this node is not a URL", endpoint)
	}
	kind := "dns4"
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		kind = map[bool]string{true: "ip4", false: "ip6"}[ip.Is4()]
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return fmt.Sprintf("/%s/%s/tcp/%s/%s", kind, u.Hostname(), port, u.Scheme), nil
}
