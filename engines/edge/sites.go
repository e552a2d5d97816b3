package edge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/announce"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
)

// Names looks up names and publishes which objects this node provides. The node implements it with
// the index. Its methods return soon after ctx ends and are safe for concurrent use.
type Names interface {
	// Manifest returns the manifest of a name such as docs.example or docs.example@1.2.0. from is
	// the network of the caller, for the share and the rate of lookups that leave the node; the
	// zero Addr has no rate. Manifest returns ErrNotFound for an unknown name, a *PathError for an
	// invalid one, flow.ErrBusy or a *RateError beyond a limit, and ErrNames if the lookup may
	// succeed later.
	Manifest(ctx context.Context, name string, from netip.Addr) (Named, error)
	near.Names
	announce.Names
}

// nameScheme begins the content of a placement that is a name.
const nameScheme = "name:"

// Named is the manifest of a name.
type Named struct {
	Manifest b3.Digest
	Age      time.Duration // since this node read it or another node answered
	Owner    string        // identity of the node that owns the name; "" if unknown
}

// SiteRequest asks for a file of a site.
type SiteRequest struct {
	Name string     // of the site, as docs.example or docs.example@1.2.0
	Path string     // decoded, relative; a directory is "" or ends with a slash
	From netip.Addr // network of the caller; the zero Addr has no rate of lookups and no share of searches
}

// SiteFile is a file of a site. The caller must close it.
type SiteFile struct {
	*asset.Object
	Age time.Duration // of the lookup of the name
}

// Site returns a file of a site: the name leads to the manifest, and the manifest to the object. It
// fetches missing objects until ctx ends, and at most for edge.ingress.timeout_secs each. The
// object always belongs to the manifest that the name has now. Site returns ErrNotFound,
// site.ErrDirectory, a *PathError, a *SiteError, a *MissingError, flow.ErrBusy, a *RateError, or an
// error of the lookup of the name.
func (e *Engine) Site(ctx context.Context, r SiteRequest) (f SiteFile, err error) {
	named, err := e.named(ctx, r.Name, r.From)
	if err != nil {
		return f, err
	}
	m, err := e.manifest(ctx, named, r.From)
	if err != nil {
		return f, err
	}
	hint := near.Hint{Owner: named.Owner, Manifest: named.Manifest, Name: nameScheme + r.Name}
	e.openedManifest(hint, m)
	entry, ok, err := m.Look(r.Path)
	if err != nil {
		return f, err
	}
	if !ok {
		return f, asset.ErrNotFound
	}
	hint.From = r.From
	o, err := e.object(ctx, entry.Digest, hint.Sized(entry.Size))
	if err != nil {
		return f, err
	}
	if o.Size != entry.Size {
		o.Close()
		lie := fmt.Sprintf("has %d bytes, the manifest says %d", o.Size, entry.Size)
		return f, &asset.SiteError{Manifest: named.Manifest, Cause: &site.Error{Path: entry.Path, Reason: lie}}
	}
	o.Type, o.Immutable = site.Served(entry.Type), false
	return SiteFile{o, named.Age}, nil
}

// object returns an object by its digest, and fetches it if it is missing.
func (e *Engine) object(ctx context.Context, d b3.Digest, h near.Hint) (*asset.Object, error) {
	t := asset.Target{Digest: d, Name: asset.PathOf(d)}
	if o := e.content.Warm(t.Name); o != nil {
		return o, nil
	}
	o, _, err := e.content.Open(ctx, t)
	if !content.IsMiss(err) {
		return o, err
	}
	if err = e.fetchMissing(ctx, d, h); err != nil {
		return nil, err
	}
	if o, _, err = e.content.Open(ctx, t); err == nil {
		o.Filled = true
	} else if content.IsMiss(err) {
		err = &asset.MissingError{Object: d, Cause: err}
	}
	return o, err
}

// fetchMissing fetches an object from other nodes.
func (e *Engine) fetchMissing(ctx context.Context, d b3.Digest, h near.Hint) error {
	ctx, cancel := context.WithTimeout(ctx, e.Config().Timeout())
	defer cancel()
	err := e.near.Fetch(ctx, d, h)
	_, rate := errors.AsType[*asset.RateError](err)
	if err == nil || rate || errors.Is(err, flow.ErrBusy) {
		return err
	}
	return &asset.MissingError{Object: d, Cause: err}
}

// openedManifest records the objects of a manifest that is stored here. h names its owner, its
// digest and its name. It is a no-op without a fleet.
func (e *Engine) openedManifest(h near.Hint, m *site.Manifest) {
	if e.d.Fleet != nil && !e.listing.has(h.Manifest) {
		e.listing.add(&openedSite{h, objectsOf(m)})
	}
}

// FetchAsset is Asset for "b3/<hex>" if the object is not stored here: it fetches the object from
// the fleet. Objects of manifests that this node has opened are fetched for everyone, others if
// may returns true. from is the network of the caller, as in near.Hint. It returns ErrNotFound for
// any other path.
func (e *Engine) FetchAsset(ctx context.Context, path string, from netip.Addr, may func() bool) (*asset.Object, error) {
	t, err := asset.ParsePath(path, "")
	if err != nil || t.Digest.IsZero() || e.view() == nil {
		return nil, asset.ErrNotFound
	}
	hint, known := e.listing.hint(t.Digest)
	if !known && !may() {
		return nil, asset.ErrNotFound
	}
	hint.From = from
	ctx, cancel := context.WithTimeout(ctx, e.Config().Timeout())
	defer cancel()
	if err := e.near.Fetch(ctx, t.Digest, hint); err != nil {
		return nil, err
	}
	o, _, err := e.content.Open(ctx, t)
	if err == nil {
		o.Filled = true
	}
	return o, err
}
