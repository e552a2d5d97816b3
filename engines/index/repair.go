package index

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// repairSlice is how many rows one view of a repair walks, so that it stays below the time that a view should take.
const repairSlice = 2000

// Repair puts suspect rows of provider records and of their expiry right. Each is looked at again: a damaged row is
// removed, since its provider announces again; a record without its row of expiry gets it; a row of expiry without
// its record is removed.
type Repair struct {
	Records, Ends [][]byte // keys of suspects, at most maxPurge of each
}

// Repaired is what a Repair did.
type Repaired struct {
	Removed, Added int         // rows
	CIDs           []b3.Digest // whose records were removed
	commit         uint64
}

// Kind is the command's name.
func (Repair) Kind() string { return "index.repair/1" }

// Apply decides by the rows alone.
func (c Repair) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Repaired, error) {
	out := Repaired{commit: at.Seq}
	for _, key := range c.Records {
		raw := r.Get(bProv, key)
		if raw == nil {
			continue
		}
		k, row, err := parseProv(key, raw)
		if err != nil {
			w.Delete(bProv, key)
			out.Removed++
			if k, err := provKeyCodec.Decode(key); err == nil {
				out.CIDs = append(out.CIDs, k.cid)
			}
			continue
		}
		out.Added += addEnd(r, w, k.end(&row))
	}
	for _, key := range c.Ends {
		if raw := r.Get(bProvExp, key); raw != nil && !soundEnd(r, key, raw) {
			w.Delete(bProvExp, key)
			out.Removed++
		}
	}
	return out, nil
}

// addEnd writes a row of expiry that is missing or damaged, and returns 1 if it did.
func addEnd(r store.Reader, w *store.Writes, end endKey) int {
	key := endKeyCodec.Append(nil, end)
	if raw := r.Get(bProvExp, key); raw != nil {
		if _, err := parseEnd(key, raw); err == nil {
			return 0
		}
	}
	provEnds.Put(w, end, struct{}{})
	return 1
}

// soundEnd reports whether a raw row of expiry checks and has its record.
func soundEnd(r store.Reader, key, raw []byte) bool {
	end, err := parseEnd(key, raw)
	return err == nil && ends(r, end)
}

// repairProviders walks all provider records and their order of expiry, and has the store put right what is damaged.
// It waits for room in the lane. A name is never touched: it is the truth.
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

// suspectRecords walks records from a key, and returns the key to go on from, nil at the end.
func suspectRecords(r store.Reader, from []byte) (next []byte, found Repair) {
	rows := 0
	for key, raw := range r.Range(bProv, from, nil) {
		if rows == repairSlice || len(found.Records) == maxPurge {
			return append([]byte{}, key...), found
		}
		rows++
		k, row, err := parseProv(key, raw)
		if err == nil {
			end := endKeyCodec.Append(nil, k.end(&row))
			if raw := r.Get(bProvExp, end); raw != nil {
				_, err = parseEnd(end, raw)
			} else {
				err = errRow
			}
		}
		if err != nil {
			found.Records = append(found.Records, append([]byte{}, key...))
		}
	}
	return nil, found
}

// suspectEnds is suspectRecords for rows of expiry.
func suspectEnds(r store.Reader, from []byte) (next []byte, found Repair) {
	rows := 0
	for key, raw := range r.Range(bProvExp, from, nil) {
		if rows == repairSlice || len(found.Ends) == maxPurge {
			return append([]byte{}, key...), found
		}
		rows++
		if !soundEnd(r, key, raw) {
			found.Ends = append(found.Ends, append([]byte{}, key...))
		}
	}
	return nil, found
}
