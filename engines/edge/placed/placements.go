package placed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
	"ronbox/engines/edge/sites"
	"ronbox/engines/edge/tables"
	"ronbox/engines/fleet"
)

// The states of a placement.
const (
	Waiting  = "waiting"  // its content is not known yet; Reason says why
	Fetching = "fetching" // objects are missing
	Complete = "complete" // all objects are stored and pinned
	Refused  = "refused"  // it does not fit, or it is not sound; nothing is fetched
)

// Placement describes a placement that the registry names for this node.
type Placement struct {
	ID, Content string // of the item
	State       string
	Manifest    b3.Digest // of the site, or the object; zero if it is not known
	Objects     int       // distinct objects, with the manifest
	Missing     int       // objects that are not pinned here yet
	Wanted      int64     // bytes of all objects
	Bytes       int64     // bytes of the objects that are pinned here
	Reason      string    // why it waits, is refused, or did not proceed; "": no reason
}

// List returns the placements of this node, by id. It is empty without a fleet.
func (r *Placer) List() []Placement {
	if r == nil {
		return nil
	}
	if p := r.states.Load(); p != nil {
		return *p
	}
	return nil
}

// plan is the progress of a placement. It is owned by the task placer.
type plan struct {
	fleet.Placement
	root    b3.Digest // its object or manifest; zero until it is known
	owner   string
	objects []sites.Object // distinct, the root first; nil until the root was read
	unsound string         // why the objects are not those of the manifest; "": no reason is known
	state   Placement
	checked bool   // all objects were there in the epoch
	epoch   uint64 // of the rows
}

// name returns the name of the site that is placed, or "".
func (p *plan) name() string {
	name, ok := strings.CutPrefix(p.Content, sites.NameScheme)
	if !ok {
		return ""
	}
	return name
}

// hint returns where the objects of the placement are likely stored.
func (p *plan) hint(o sites.Object) near.Hint {
	h := near.Hint{Owner: p.owner, Manifest: p.root, Placed: true}
	if p.name() != "" {
		h.Name = p.Content
	}
	return h.Sized(o.Size)
}

func (p *plan) set(state, format string, args ...any) {
	p.state.State, p.state.Reason = state, fmt.Sprintf(format, args...)
}

// resolveWithin bounds the lookup of the name of a placement.
const resolveWithin = 10 * time.Second

// resolve finds the root of a placement. If that fails, a root that was found before stays.
func (r *Placer) resolve(ctx context.Context, p *plan) error {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	root, owner := b3.Digest{}, ""
	switch name := p.name(); {
	case name == "":
		root, _ = b3.Parse(p.Content) // a sound item has a digest
	case r.d.Names == nil:
		return errors.New("the index of this node is off, and the content is a name")
	default:
		named, err := r.d.Names.Manifest(ctx, name, netip.Addr{})
		if err != nil {
			return fmt.Errorf("look up %s: %w", p.Content, err)
		}
		root, owner = named.Manifest, named.Owner
	}
	if root != p.root {
		p.root, p.objects, p.checked, p.unsound = root, nil, false, ""
	}
	p.owner = owner
	return nil
}

// read fetches the root of a placement, unless it is stored, and lists its objects. room is how
// many bytes the root may have.
func (r *Placer) read(ctx context.Context, p *plan, room int64) error {
	most := min(max(room, 0), r.cfg.Edge().Fill.MaxObjectBytes.Bytes())
	if p.name() != "" {
		most = min(most, site.MaxBytes)
	}
	if err := r.d.Near.Fetch(ctx, p.root, p.hint(sites.Object{Digest: p.root, Size: most})); err != nil {
		return err
	}
	b, err := tables.Find(ctx, r.d.Store, tables.Blobs, p.root)
	if err != nil {
		return err
	}
	p.objects = []sites.Object{{Digest: p.root, Size: b.Size}}
	m, err := r.d.Sites.Manifest(ctx, sites.Named{Manifest: p.root, Owner: p.owner}, netip.Addr{})
	if bad, unsound := errors.AsType[*asset.SiteError](err); unsound {
		if p.name() != "" {
			return bad
		}
		return nil // a single object
	}
	if err != nil {
		p.objects = nil
		return err
	}
	hint := p.hint(sites.Object{})
	hint.Most, hint.Placed = 0, false
	r.d.Sites.Opened(hint, m)
	p.objects = append(p.objects, sites.ObjectsOf(m)...)
	return nil
}

// sumOf returns the bytes of the objects that are not in taken, and adds them to it.
func sumOf(objects []sites.Object, taken map[b3.Digest]int64) (sum int64) {
	for _, o := range objects {
		if _, known := taken[o.Digest]; !known {
			taken[o.Digest] = o.Size
			sum += o.Size
		}
	}
	return sum
}

// edition returns the objects of the edition of a site that is served, which stay until the next
// one is complete. ok is false if it cannot be read now.
func (r *Placer) edition(ctx context.Context, root b3.Digest) (objects []sites.Object, ok bool) {
	b, err := tables.Find(ctx, r.d.Store, tables.Blobs, root)
	if err != nil {
		return nil, false
	}
	if has, err := r.d.Content.Has(ctx, root); !has || err != nil {
		return nil, false
	}
	m, err := r.d.Sites.Manifest(ctx, sites.Named{Manifest: root}, netip.Addr{})
	if err != nil {
		return nil, false
	}
	return append(sites.ObjectsOf(m), sites.Object{Digest: root, Size: b.Size}), true
}

// takeServed adds to taken what a placement keeps here although its content is not known now or is
// refused: the edition of its site that is served.
func (r *Placer) takeServed(ctx context.Context, p *plan, rows map[string]placedRow, taken map[b3.Digest]int64) {
	served := rows[Prefix+p.Content].digest
	if p.name() == "" || served.IsZero() || p.state.State == Refused && served == p.root {
		return
	}
	old, _ := r.edition(ctx, served)
	sumOf(old, taken)
}

// settled reports whether a look would find what the last one left: everything complete, under the
// same names. It notes that the names were looked up.
func (r *Placer) settled(ctx context.Context, v *fleet.View) bool {
	if r.seen != v || r.epoch != r.d.Content.Epoch() {
		return false
	}
	for _, p := range r.plans {
		root := p.root
		if p.state.State != Complete || r.resolve(ctx, p) != nil || p.root != root {
			r.seen = nil
			return false
		}
	}
	r.d.Sites.Keep(r.kept)
	return true
}

// serveSites tells requests which sites are here in full.
func (r *Placer) serveSites(plans []*plan, rows map[string]placedRow) {
	r.kept = map[string]sites.Named{}
	for _, p := range plans {
		root := rows[Prefix+p.Content].digest
		if p.name() != "" && !root.IsZero() {
			r.kept[p.name()] = sites.Named{Manifest: root, Owner: p.owner}
		}
	}
	r.d.Sites.Keep(r.kept)
}

// cloneStates returns the states of plans for readers.
func cloneStates(plans []*plan) *[]Placement {
	out := make([]Placement, len(plans))
	for i, p := range plans {
		out[i] = p.state
	}
	slices.SortFunc(out, func(a, b Placement) int { return strings.Compare(a.ID, b.ID) })
	return &out
}
