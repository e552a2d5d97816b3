package records

import (
	"context"

	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// Suspect reports whether a damaged row of providers was met after the last repair began.
func (r *Records) Suspect() bool { return r.damage.repair.Load() }

// Repair walks all provider records and their rows of expiry, and has the store repair damaged
// ones. It waits for room in the lane. It does not touch names, which cannot be rebuilt.
func (r *Records) Repair(ctx context.Context) error {
	r.damage.repair.Store(false)
	err := r.repairProviders(ctx)
	if err != nil {
		r.damage.repair.Store(true)
	}
	return err
}

func (r *Records) repairProviders(ctx context.Context) error {
	var total tables.Repaired
	type walker func(v store.Reader, from []byte) (next []byte, found tables.Repair)
	for _, walk := range []walker{tables.SuspectRecords, tables.SuspectEnds} {
		var from []byte
		for more := true; more; more = from != nil {
			var found tables.Repair
			err := r.d.Store.View(ctx, func(v store.Reader) error {
				from, found = walk(v, from)
				return nil
			})
			if err == nil && len(found.Records)+len(found.Ends) > 0 {
				var done tables.Repaired
				done, err = store.Commit(ctx, r.d.Store, store.Bulk, found, r.repaired)
				total.Removed += done.Removed
				total.Added += done.Added
			}
			if err != nil {
				return err
			}
		}
	}
	r.d.Log.Warn("providers_repaired", "removed", total.Removed, "added", total.Added)
	r.damage.forgetProviders()
	return nil
}

func (r *Records) repaired(d tables.Repaired) {
	touched := make([]string, len(d.CIDs))
	for i, cid := range d.CIDs {
		touched[i] = name.ProvidersKey(cid)
	}
	r.committed(d.Commit, name.EventExpired, "", touched...)
}
