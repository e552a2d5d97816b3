package sites

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
)

// Names looks up names. Its method returns soon after ctx ends and is safe for concurrent use.
type Names interface {
	// Manifest returns the manifest of a name such as docs.example or docs.example@1.2.0. from is
	// the network of the caller, for the share and the rate of lookups that leave the node; the
	// zero Addr has no rate. Manifest returns ErrNotFound for an unknown name, a *PathError for an
	// invalid one, flow.ErrBusy or a *RateError beyond a limit, and ErrNames if the lookup may
	// succeed later.
	Manifest(ctx context.Context, name string, from netip.Addr) (Named, error)
}

// NameScheme begins the content of a placement that is a name.
const NameScheme = "name:"

// Named is the manifest of a name.
type Named struct {
	Manifest b3.Digest
	Age      time.Duration // since this node read it or another node answered
	Owner    string        // identity of the node that owns the name; "" if unknown
}

// Request asks for a file of a site.
type Request struct {
	Name   string // of the site, as docs.example or docs.example@1.2.0
	Path   string // Path, Page and Weight are as in site.Request
	Page   bool
	Weight site.Codings
	From   netip.Addr // network of the caller; the zero Addr has no rate of lookups and no share of searches
}

// File is a file of a site. The caller must close it.
type File struct {
	*asset.Object
	Found site.Found
	Age   time.Duration // of the lookup of the name
}

// File returns a file of a site: the name leads to the manifest, and the manifest to the object. It
// fetches missing objects until ctx ends, and at most for edge.ingress.timeout_secs each. The
// object always belongs to the manifest that the name has now. File returns ErrNotFound,
// site.ErrDirectory, a *PathError, a *SiteError, a *MissingError, flow.ErrBusy, a *RateError, or an
// error of the lookup of the name.
func (s *Server) File(ctx context.Context, r Request) (f File, err error) {
	named, err := s.named(ctx, r.Name, r.From)
	if err != nil {
		return f, err
	}
	m, err := s.Manifest(ctx, named, r.From)
	if err != nil {
		return f, err
	}
	hint := near.Hint{Owner: named.Owner, Manifest: named.Manifest, Name: NameScheme + r.Name}
	s.Opened(hint, m)
	entry, ok, err := m.Look(site.Request{Path: r.Path, Page: r.Page, Weight: r.Weight})
	if err != nil {
		return f, err
	}
	if !ok {
		return f, asset.ErrNotFound
	}
	hint.From = r.From
	o, err := s.object(ctx, entry.Digest, hint.Sized(entry.Size))
	if err != nil {
		return f, err
	}
	if o.Size != entry.Size {
		o.Close()
		lie := fmt.Sprintf("has %d bytes, the manifest says %d", o.Size, entry.Size)
		return f, &asset.SiteError{Manifest: named.Manifest, Cause: &site.Error{Path: entry.Path, Reason: lie}}
	}
	o.Type, o.Immutable = site.Served(entry.Type), false
	return File{o, entry, named.Age}, nil
}

// object returns an object by its digest, and fetches it if it is missing.
func (s *Server) object(ctx context.Context, d b3.Digest, h near.Hint) (*asset.Object, error) {
	t := asset.Target{Digest: d, Name: asset.PathOf(d)}
	if o := s.d.Content.Warm(t.Name); o != nil {
		return o, nil
	}
	o, _, err := s.d.Content.Open(ctx, t)
	if !content.IsMiss(err) {
		return o, err
	}
	if err = s.fetchMissing(ctx, d, h); err != nil {
		return nil, err
	}
	if o, _, err = s.d.Content.Open(ctx, t); err == nil {
		o.Filled = true
	} else if content.IsMiss(err) {
		err = &asset.MissingError{Object: d, Cause: err}
	}
	return o, err
}

// fetchMissing fetches an object from other nodes.
func (s *Server) fetchMissing(ctx context.Context, d b3.Digest, h near.Hint) error {
	ctx, cancel := context.WithTimeout(ctx, s.d.Config().Timeout())
	defer cancel()
	err := s.d.Near.Fetch(ctx, d, h)
	_, rate := errors.AsType[*asset.RateError](err)
	if err == nil || rate || errors.Is(err, flow.ErrBusy) {
		return err
	}
	return &asset.MissingError{Object: d, Cause: err}
}

// Opened records the objects of a manifest that is stored here. h names its owner, its
// digest and its name. It is a no-op without a fleet.
func (s *Server) Opened(h near.Hint, m *site.Manifest) {
	if s.d.Near != nil && !s.listing.has(h.Manifest) {
		s.listing.add(&openedSite{h, ObjectsOf(m)})
	}
}

// Fetch fetches the object of a path "b3/<hex>" from the fleet and returns it. Objects of manifests
// that this node has opened are fetched for everyone, others if may returns true. from is the
// network of the caller, as in near.Hint. Fetch returns ErrNotFound for any other path.
func (s *Server) Fetch(ctx context.Context, path string, from netip.Addr, may func() bool) (*asset.Object, error) {
	t, err := asset.ParsePath(path, "")
	if view, _ := s.d.Near.View(); view == nil || err != nil || t.Digest.IsZero() {
		return nil, asset.ErrNotFound
	}
	hint, known := s.listing.hint(t.Digest)
	if !known && !may() {
		return nil, asset.ErrNotFound
	}
	hint.From = from
	ctx, cancel := context.WithTimeout(ctx, s.d.Config().Timeout())
	defer cancel()
	if err := s.d.Near.Fetch(ctx, t.Digest, hint); err != nil {
		return nil, err
	}
	o, _, err := s.d.Content.Open(ctx, t)
	if err == nil {
		o.Filled = true
	}
	return o, err
}
