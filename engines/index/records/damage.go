package records

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"ronbox/engines/index/tables"
	"ronbox/store"
)

// maxDamaged bounds the damaged rows that are remembered. Further rows are logged each time they
// are met.
const maxDamaged = 1024

// damage is the set of damaged rows met since the start. While it is not empty, the readiness key
// rows fails.
type damage struct {
	repair atomic.Bool // a damaged row of providers was met after the last repair began

	mu   sync.Mutex           // a leaf
	rows map[damagedRow]error // guarded by mu
}

// damagedRow identifies a row.
type damagedRow struct{ bucket, key string }

// add records a damaged row and reports whether it is new.
func (d *damage) add(row *store.RowError) bool {
	k := damagedRow{row.Bucket, string(row.Key)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.rows[k]; known {
		return false
	}
	if row.Bucket != tables.NameBucket.Name {
		d.repair.Store(true)
	}
	if d.rows == nil {
		d.rows = map[damagedRow]error{}
	}
	if len(d.rows) < maxDamaged {
		d.rows[k] = row
	}
	return true
}

// forgetNames removes the rows of names, which were deleted.
func (d *damage) forgetNames(keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		delete(d.rows, damagedRow{tables.NameBucket.Name, key})
	}
}

// forgetProviders removes the rows of provider records, which were repaired.
func (d *damage) forgetProviders() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.rows {
		if k.bucket != tables.NameBucket.Name {
			delete(d.rows, k)
		}
	}
}

// probe returns an error with an example, or nil if no damaged row is known.
func (d *damage) probe() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, example := range d.rows {
		return fmt.Errorf("%d damaged rows, such as %w", len(d.rows), example)
	}
	return nil
}

// Ready returns the cause for the readiness key rows, or nil if no damaged row is known.
func (r *Records) Ready() error { return r.damage.probe() }

// met records the damaged row that err wraps, if any, and returns err.
func (r *Records) met(err error) error {
	if err == nil {
		return nil
	}
	row, ok := errors.AsType[*store.RowError](err)
	if !ok || !r.damage.add(row) {
		return err
	}
	r.damaged(1)
	if row.Bucket == tables.NameBucket.Name {
		r.d.Log.Error("row_corrupt", "bucket", row.Bucket, "key", fmt.Sprintf("%q", row.Key),
			"reason", row.Cause.Error(), "next",
			"`ronbox index remove --forget KEY` drops it; then put the key again, or restore a snapshot")
	} else {
		r.d.Log.Error("row_corrupt", "bucket", row.Bucket, "key", fmt.Sprintf("%x", row.Key),
			"reason", row.Cause.Error(), "next",
			"it is dropped; its provider announces again")
	}
	return err
}
