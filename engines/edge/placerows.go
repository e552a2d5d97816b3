package edge

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

// A placement pins objects by URLs of its own, beside the URL of a put or a fill: placed:b3:<hex>
// leads to each object, and placed:name:<name> to the manifest of a site that is complete. So the
// end of a placement takes away no pin that a caller has made, and the reverse.
const placedPrefix = "placed:"

// placedURL returns the URL by which placements pin an object.
func placedURL(d b3.Digest) string { return placedPrefix + d.String() }

// placedRow is a URL of a placement.
type placedRow struct {
	digest b3.Digest // zero if the object was lost by damage
	size   int64
}

// errScanned ends a scan that has seen enough.
var errScanned = errors.New("scanned")

// placedRows returns the URLs of placements.
func (e *Engine) placedRows(ctx context.Context) (map[string]placedRow, error) {
	all := map[string]placedRow{}
	from := tables.URLKey{Head: placedPrefix}
	err := tables.ScanFrom(ctx, e.d.Store, tables.Keys, from, func(k tables.URLKey, row tables.KeyRow) error {
		if !strings.HasPrefix(k.Head, placedPrefix) {
			return errScanned
		}
		all[row.URL(k)] = placedRow{size: row.Size}
		return nil
	})
	if err = asset.Ignore(err, errScanned); err != nil {
		return nil, err
	}
	for url, row := range all {
		stored, err := tables.Find(ctx, e.d.Store, tables.Paths, tables.PathKey(url))
		if asset.Ignore(err, asset.ErrNotFound) != nil {
			return nil, err
		}
		row.digest = stored.Digest
		all[url] = row
	}
	return all, nil
}

// unplace removes URLs of placements. An object without another URL is removed, and no longer
// announced.
func (e *Engine) unplace(ctx context.Context, rows map[string]placedRow, urls []string) error {
	for burst := range slices.Chunk(slices.Sorted(slices.Values(urls)), asset.MaxKeep) {
		if _, err := e.keep(ctx, asset.Remove, burst); err != nil {
			return err
		}
		var ended []b3.Digest
		for _, url := range burst {
			d := rows[url].digest
			delete(rows, url)
			if _, err := tables.Find(ctx, e.d.Store, tables.Announced, d); err != nil {
				continue // most objects are announced by their manifest
			}
			if put, err := e.content.Pinned(ctx, d.String()); err == nil && !put {
				ended = append(ended, d)
			}
		}
		if err := e.endAnnouncements(ctx, ended); err != nil {
			return err
		}
	}
	return nil
}

// endAnnouncements no longer announces objects.
func (e *Engine) endAnnouncements(ctx context.Context, ended []b3.Digest) error {
	if len(ended) == 0 {
		return nil
	}
	_, err := store.Commit(ctx, e.d.Store, store.Work, tables.Announce{Objects: ended, Ended: true})
	if err != nil {
		return err
	}
	e.announcer.Withdraw(ctx, ended)
	return nil
}

// placedCap returns how many bytes placements may keep here.
func (e *Engine) placedCap() int64 {
	if most := e.d.Fleet.MaxPlaced; most > 0 {
		return most
	}
	return e.Config().CAS.MaxBytes.Bytes() / 2
}

// unfit returns why a placement that needs so many bytes does not fit beside others that have
// taken some, or "".
func (e *Engine) unfit(p *plan, rows map[string]placedRow, need, taken int64) string {
	if most := e.placedCap(); need > most-taken {
		return fmt.Sprintf("it needs %d bytes, and other placements have %d; fleet.max_placed allows %d",
			need, taken, most)
	}
	var bytes, urls int64 // still to pin
	for _, o := range p.objects {
		if _, pinned := rows[placedURL(o.Digest)]; !pinned {
			bytes += o.Size
			urls++
		}
	}
	if err := e.content.PinRoom().Refuse(bytes, urls); err != nil {
		return err.Error()
	}
	return ""
}
