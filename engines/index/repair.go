package index

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// repairSlice bounds the rows that one view of a repair walks, to keep views short.
const repairSlice = 2000

// Repair repairs suspect rows of provider records and of their expiry. Each row is checked again: a
// damaged row is removed, since its provider announces again; a missing row of expiry is added; a
// row of expiry without its record is removed.
type Repair struct {
	Records, Ends [][]byte // keys of suspect rows, at most MaxPurge each
}

// Repaired is the result of a Repair.
type Repaired struct {
	Removed, Added int         // number of rows
	CIDs           []b3.Digest // ids of the removed records
	commit         uint64
}

// Kind implements store.Command.
func (Repair) Kind() string { return "index.repair/1" }

// Apply depends on the rows alone.
func (c Repair) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Repaired, error) {
	out := Repaired{commit: at.Seq}
	for _, key := range c.Records {
		raw := r.Get(tables.ProviderBucket, key)
		if raw == nil {
			continue
		}
		k, row, err := tables.ParseProvider(key, raw)
		if err != nil {
			w.Delete(tables.ProviderBucket, key)
			out.Removed++
			if k, err := tables.ProviderKeys.Decode(key); err == nil {
				out.CIDs = append(out.CIDs, k.CID)
			}
			continue
		}
		out.Added += addEnd(r, w, k.Expiry(&row))
	}
	for _, key := range c.Ends {
		if raw := r.Get(tables.ExpiryBucket, key); raw != nil && !soundEnd(r, key, raw) {
			w.Delete(tables.ExpiryBucket, key)
			out.Removed++
		}
	}
	return out, nil
}

// addEnd writes a row of expiry if it is missing or damaged. It returns the number of rows written.
func addEnd(r store.Reader, w *store.Writes, end tables.ExpiryKey) int {
	key := tables.ExpiryKeys.Append(nil, end)
	if raw := r.Get(tables.ExpiryBucket, key); raw != nil {
		if _, err := tables.ParseExpiry(key, raw); err == nil {
			return 0
		}
	}
	tables.Expiries.Put(w, end, struct{}{})
	return 1
}

// soundEnd reports whether a raw row of expiry is valid and has its record.
func soundEnd(r store.Reader, key, raw []byte) bool {
	end, err := tables.ParseExpiry(key, raw)
	return err == nil && tables.Expires(r, end)
}

// repairProviders walks all provider records and their rows of expiry, and has the store repair
// damaged ones. It waits for room in the lane. It does not touch names, which cannot be rebuilt.
func (e *Engine) repairProviders(ctx context.Context) error {
	var total Repaired
	for _, walk := range []func(store.Reader, []byte) ([]byte, Repair){suspectRecords, suspectEnds} {
		var from []byte
		for more := true; more; more = from != nil {
			var found Repair
			err := e.store.View(ctx, func(r store.Reader) error {
				from, found = walk(r, from)
				return nil
			})
			if err == nil && len(found.Records)+len(found.Ends) > 0 {
				var done Repaired
				done, err = store.Commit(ctx, e.store, store.Bulk, found, e.repaired)
				total.Removed += done.Removed
				total.Added += done.Added
			}
			if err != nil {
				return err
			}
		}
	}
	e.log.Warn("providers_repaired", "removed", total.Removed, "added", total.Added)
	e.damage.forgetProviders()
	return nil
}

func (e *Engine) repaired(d Repaired) {
	touched := make([]string, len(d.CIDs))
	for i, cid := range d.CIDs {
		touched[i] = cidText(cid)
	}
	e.committed(d.commit, eventExpired, "", touched...)
}

// suspectRecords walks records from a key on. It returns suspect rows and the key at which to
// continue, nil at the end.
func suspectRecords(r store.Reader, from []byte) (next []byte, found Repair) {
	rows := 0
	for key, raw := range r.Range(tables.ProviderBucket, from, nil) {
		if rows == repairSlice || len(found.Records) == tables.MaxPurge {
			return append([]byte{}, key...), found
		}
		rows++
		k, row, err := tables.ParseProvider(key, raw)
		if err == nil {
			end := tables.ExpiryKeys.Append(nil, k.Expiry(&row))
			if raw := r.Get(tables.ExpiryBucket, end); raw != nil {
				_, err = tables.ParseExpiry(end, raw)
			} else {
				err = tables.ErrLength
			}
		}
		if err != nil {
			found.Records = append(found.Records, append([]byte{}, key...))
		}
	}
	return nil, found
}

// suspectEnds is like suspectRecords for rows of expiry.
func suspectEnds(r store.Reader, from []byte) (next []byte, found Repair) {
	rows := 0
	for key, raw := range r.Range(tables.ExpiryBucket, from, nil) {
		if rows == repairSlice || len(found.Ends) == tables.MaxPurge {
			return append([]byte{}, key...), found
		}
		rows++
		if !soundEnd(r, key, raw) {
			found.Ends = append(found.Ends, append([]byte{}, key...))
		}
	}
	return nil, found
}
