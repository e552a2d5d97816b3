package index

import (
	"context"

	"ronbox/engines/index/tables"
	"ronbox/store"
)

// repairProviders walks all provider records and their rows of expiry, and has the store repair
// damaged ones. It waits for room in the lane. It does not touch names, which cannot be rebuilt.
func (e *Engine) repairProviders(ctx context.Context) error {
	var total tables.Repaired
	type walker func(r store.Reader, from []byte) (next []byte, found tables.Repair)
	for _, walk := range []walker{tables.SuspectRecords, tables.SuspectEnds} {
		var from []byte
		for more := true; more; more = from != nil {
			var found tables.Repair
			err := e.store.View(ctx, func(r store.Reader) error {
				from, found = walk(r, from)
				return nil
			})
			if err == nil && len(found.Records)+len(found.Ends) > 0 {
				var done tables.Repaired
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

func (e *Engine) repaired(d tables.Repaired) {
	touched := make([]string, len(d.CIDs))
	for i, cid := range d.CIDs {
		touched[i] = cidText(cid)
	}
	e.committed(d.Commit, eventExpired, "", touched...)
}
