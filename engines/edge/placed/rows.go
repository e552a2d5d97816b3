package placed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// Prefix begins the URLs of placements. A placement pins objects by URLs of its own, beside the URL
// of a put or a fill: placed:b3:<hex> leads to each object, and placed:name:<name> to the manifest
// of a site that is complete. So the end of a placement takes away no pin that a caller has made,
// and the reverse.
const Prefix = "placed:"

// urlOf returns the URL by which placements pin an object.
func urlOf(d b3.Digest) string { return Prefix + d.String() }

// placedRow is a URL of a placement.
type placedRow struct {
	digest b3.Digest // zero if the object was lost by damage
	size   int64
}

// errScanned ends a scan that has seen enough.
var errScanned = errors.New("scanned")

// rows returns the URLs of placements.
func (r *Placer) rows(ctx context.Context) (map[string]placedRow, error) {
	all := map[string]placedRow{}
	from := tables.URLKey{Head: Prefix}
	err := tables.ScanFrom(ctx, r.d.Store, tables.Keys, from, func(k tables.URLKey, row tables.KeyRow) error {
		if !strings.HasPrefix(k.Head, Prefix) {
			return errScanned
		}
		all[row.URL(k)] = placedRow{size: row.Size}
		return nil
	})
	if err = asset.Ignore(err, errScanned); err != nil {
		return nil, err
	}
	for url, row := range all {
		stored, err := tables.Find(ctx, r.d.Store, tables.Paths, tables.PathKey(url))
		if asset.Ignore(err, asset.ErrNotFound) != nil {
			return nil, err
		}
		row.digest = stored.Digest
		all[url] = row
	}
	return all, nil
}

// pinBurst pins objects that are stored. If they do not fit, or have other sizes than their
// manifest says, the placement is refused.
func (r *Placer) pinBurst(ctx context.Context, p *plan, pins []tables.Stored, rows map[string]placedRow) error {
	if len(pins) == 0 {
		return nil
	}
	missing, err := r.d.Content.Place(ctx, pins, b3.Digest{})
	if full, over := errors.AsType[*asset.PinsError](err); over {
		p.set(Refused, "%v", full)
		return nil
	}
	if err != nil {
		return err
	}
	for _, row := range pins {
		if slices.Contains(missing, row.URL) {
			if b, err := tables.Find(ctx, r.d.Store, tables.Blobs, row.Digest); err == nil && b.Size != row.Size {
				p.unsound = fmt.Sprintf("%s has %d bytes, the manifest says %d", row.Digest, b.Size, row.Size)
				p.set(Refused, "%s", p.unsound)
			}
			continue
		}
		rows[row.URL] = placedRow{row.Digest, row.Size}
		p.state.Missing--
		p.state.Bytes += row.Size
	}
	return nil
}

// complete switches the name of a placed site to its new manifest, and announces the content. If
// the row of the name does not fit, the placement is refused.
func (r *Placer) complete(ctx context.Context, p *plan, rows map[string]placedRow) error {
	row := tables.RowOf(p.root, -1, "")
	row.URL = Prefix + p.Content
	var pins []tables.Stored
	if rows[row.URL].digest != p.root {
		pins = []tables.Stored{row}
	}
	if _, err := tables.Find(ctx, r.d.Store, tables.Announced, p.root); err == nil && pins == nil {
		return nil
	}
	missing, err := r.d.Content.Place(ctx, pins, p.root)
	if full, over := errors.AsType[*asset.PinsError](err); over {
		p.set(Refused, "%v", full)
		return nil
	}
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%s is gone", p.root)
	}
	if err != nil {
		return err
	}
	rows[row.URL] = placedRow{digest: p.root}
	r.d.Announcer.Announce(ctx, p.root)
	return nil
}

// clean removes the URLs of objects that no placement names any more. It keeps the edition of a
// site that is served until the next one is complete, and removes nothing while the objects of a
// placement that has begun are not known.
func (r *Placer) clean(ctx context.Context, plans []*plan, rows map[string]placedRow) error {
	keep := map[string]bool{}
	for _, p := range plans {
		served := rows[Prefix+p.Content].digest
		if p.state.State != Refused {
			for _, o := range p.objects {
				keep[urlOf(o.Digest)] = true
			}
		}
		if p.objects == nil && p.name() == "" && !served.IsZero() {
			return nil
		}
		if p.name() == "" || served.IsZero() || p.state.State == Refused && served == p.root {
			continue
		}
		keep[Prefix+p.Content] = true
		if served == p.root && p.objects != nil {
			continue
		}
		old, ok := r.edition(ctx, served)
		if !ok {
			return nil
		}
		for _, o := range old {
			keep[urlOf(o.Digest)] = true
		}
	}
	var gone []string
	for url := range rows {
		if !keep[url] && strings.HasPrefix(url, Prefix) {
			gone = append(gone, url)
		}
	}
	return r.unplace(ctx, rows, gone)
}

// unplace removes URLs of placements. An object without another URL is removed, and no longer
// announced.
func (r *Placer) unplace(ctx context.Context, rows map[string]placedRow, urls []string) error {
	for burst := range slices.Chunk(slices.Sorted(slices.Values(urls)), asset.MaxKeep) {
		_, unannounced, err := r.d.Content.Keep(ctx, asset.Remove, burst)
		if err != nil {
			return err
		}
		r.d.Announcer.Withdraw(ctx, unannounced)
		var ended []b3.Digest
		for _, url := range burst {
			d := rows[url].digest
			delete(rows, url)
			if _, err := tables.Find(ctx, r.d.Store, tables.Announced, d); err != nil {
				continue // most objects are announced by their manifest
			}
			if put, err := r.d.Content.Pinned(ctx, d.String()); err == nil && !put {
				ended = append(ended, d)
			}
		}
		if err := r.endAnnouncements(ctx, ended); err != nil {
			return err
		}
	}
	return nil
}

// endAnnouncements no longer announces objects.
func (r *Placer) endAnnouncements(ctx context.Context, ended []b3.Digest) error {
	if len(ended) == 0 {
		return nil
	}
	_, err := store.Commit(ctx, r.d.Store, store.Work, tables.Announce{Objects: ended, Ended: true})
	if err != nil {
		return err
	}
	r.d.Announcer.Withdraw(ctx, ended)
	return nil
}

// placedCap returns how many bytes placements may keep here.
func (r *Placer) most() int64 {
	if most := r.cfg.MaxPlaced; most > 0 {
		return most
	}
	return r.cfg.Edge().CAS.MaxBytes.Bytes() / 2
}

// unfit returns why a placement that needs so many bytes does not fit beside others that have
// taken some, or "".
func (r *Placer) unfit(p *plan, rows map[string]placedRow, need, taken int64) string {
	if most := r.most(); need > most-taken {
		return fmt.Sprintf("it needs %d bytes, and other placements have %d; fleet.max_placed allows %d",
			need, taken, most)
	}
	var bytes, urls int64 // still to pin
	for _, o := range p.objects {
		if _, pinned := rows[urlOf(o.Digest)]; !pinned {
			bytes += o.Size
			urls++
		}
	}
	if was, named := rows[Prefix+p.Content]; p.name() != "" && was.digest != p.root { // it pins the manifest once more
		bytes += p.objects[0].Size - was.size
		if !named {
			urls++
		}
	}
	if err := r.d.Content.PinRoom().Refuse(bytes, urls); err != nil {
		return err.Error()
	}
	return ""
}
