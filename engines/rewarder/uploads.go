package rewarder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// ScopeAdmin is the scope of callers that administer the uploads of all principals of their tenant,
// or of all tenants if their token names none.
const ScopeAdmin = service + ".admin"

const (
	walkRows   = 1024 // rows per view, which decode in a few milliseconds
	dropChunks = 128  // chunks deleted by one command: 4 MB of rows, which fit into one group
)

// owner returns the name under which the uploads of the caller are kept. It does not name the node
// whose socket the caller uses: in a cluster a repetition may come by another node, or by the same
// one, which then no longer leads.
func (c Call) owner() string {
	if c.By.UID != nil {
		return "uid:" + strconv.FormatUint(uint64(*c.By.UID), 10)
	}
	return c.By.Principal
}

// administers reports whether the caller may list and drop an upload.
func (c Call) administers(up *Upload, head *record.Snapshot) bool {
	g := c.By.Grant
	if g.Tenant(head.Tenant) != nil || g.Epoch(head.EpochID) != nil || g.Account(up.Account) != nil {
		return false
	}
	if c.By.May(ScopeAdmin) {
		return c.By.Tenant == "" || c.By.Tenant == head.Tenant
	}
	return head.Tenant == c.Tenant && up.Owner != "" && up.Owner == c.owner()
}

// runOf returns the run that uses up. At most one run does: the run of its epoch, unless it failed.
func runOf(up *Upload, r store.Reader) (run Run, used bool) {
	head, err := record.ParseSnapshot(up.Header)
	if err != nil {
		panic(&store.RowError{Bucket: uploads.Bucket().Name, Key: keyOf(up.ID), Cause: err})
	}
	run, taken := get(r, slots, scoped(head.Tenant, head.EpochID))
	if !taken || run.State == Failed {
		return Run{}, false
	}
	in, ok := get(r, inputs, run.InputsCID)
	return run, ok && in.Upload == up.ID
}

// Uploads lists at most limit uploads that the caller may administer, after the id after. A damaged
// row is listed for holders of ScopeAdmin.
func (e *Engine) Uploads(ctx context.Context, by Call, after b3.Digest, limit int) (UploadPage, error) {
	page := UploadPage{Uploads: []UploadInfo{}}
	keep := e.live().Inputs.Keep.D()
	err := e.view(ctx, func(r store.Reader) error {
		walked, last := 0, after
		for raw := range r.Range(uploads.Bucket(), after[:], nil) {
			id, err := digestKey(raw)
			if err == nil && id == after && !after.IsZero() {
				continue
			}
			if walked++; walked > walkRows || len(page.Uploads) == limit {
				page.Next = last.String()
				return nil
			}
			last = id
			info, ok := UploadInfo{ID: id, State: UploadCorrupt}, by.By.May(ScopeAdmin) && by.By.Tenant == ""
			if bad := attempt(func() {
				up, _ := get(r, uploads, id)
				info, ok = infoOf(&up, r, by, keep)
			}); bad != nil {
				_ = e.note(bad)
			}
			if ok {
				page.Uploads = append(page.Uploads, info)
			}
		}
		return nil
	})
	return page, err
}

// infoOf describes up. ok is false if the caller may not administer it.
func infoOf(up *Upload, r store.Reader, by Call, keep time.Duration) (info UploadInfo, ok bool) {
	head, err := record.ParseSnapshot(up.Header)
	if err != nil || !by.administers(up, &head) {
		return info, false
	}
	info = UploadInfo{
		ID:            up.ID,
		State:         UploadOpen,
		Tenant:        head.Tenant,
		EpochID:       head.EpochID,
		Owner:         up.Owner,
		Parts:         up.Parts,
		Rows:          up.Rows,
		Bytes:         uploadCost + up.Bytes,
		AccountingCID: up.Sealed,
	}
	if up.Created != 0 {
		info.CreatedAt = stamp(up.Created)
	}
	_, used := runOf(up, r)
	switch {
	case up.Dropped:
		info.State = UploadDropping
	case used:
		info.State, info.Bytes = UploadUsed, 0
	case !up.Sealed.IsZero():
		info.State = UploadSealed
	case up.Changed != 0:
		info.ExpiresAt = stamp(up.Changed + keep.Milliseconds())
	}
	return info, true
}

// DropUpload deletes an upload with its rows and the inputs sealed from it. Afterwards its
// declaration can be opened again. Rows are deleted in batches: if a call ends early, the same call
// or a sweep finishes the deletion. Errors: ErrNotFound, *ConflictError if a run uses the upload.
func (e *Engine) DropUpload(ctx context.Context, by Call, id b3.Digest) error {
	err := e.beginDrop(ctx, by, id, "", func(_ store.Reader, up *Upload, head *record.Snapshot) error {
		if !by.administers(up, head) {
			return fmt.Errorf("upload: %w", ErrNotFound)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.finishDrop(ctx, id)
}

// beginDrop marks an upload as dropped. A dropped upload takes no part, no seal and no run.
func (e *Engine) beginDrop(
	ctx context.Context, by Call, id b3.Digest, why string, may func(store.Reader, *Upload, *record.Snapshot) error,
) error {
	c := command[Upload]{"drop_upload", 1 << 10, func(r store.Reader, w *store.Writes) (up Upload, err error) {
		up, ok := get(r, uploads, id)
		if !ok {
			return up, fmt.Errorf("upload: %w", ErrNotFound)
		}
		head, err := record.ParseSnapshot(up.Header)
		if err == nil {
			err = may(r, &up, &head)
		}
		if err != nil || up.Dropped {
			return up, err
		}
		if run, used := runOf(&up, r); used {
			return up, &ConflictError{"upload", "used by the run of epoch " + run.Epoch, "unused"}
		}
		up.Dropped = true
		uploads.Put(w, id, up)
		w.Audit(by.event("inputs.dropped", why, map[string]string{
			"upload": id.String(), "tenant": head.Tenant, "epoch_id": head.EpochID, "owner": up.Owner,
		}))
		return up, nil
	}}
	_, err := commit(ctx, e, store.Bulk, c)
	return err
}

// finishDrop deletes the rows of a dropped upload, then its inputs and its own row.
func (e *Engine) finishDrop(ctx context.Context, id b3.Digest) error {
	for more := true; more; {
		var err error
		more, err = e.dropSome(ctx, id)
		if err != nil {
			return err
		}
	}
	var old []b3.Digest // inputs of an upload of schema 1, which does not list them
	up, err := e.marked(ctx, id)
	if err == nil && up.Created == 0 && !up.Sealed.IsZero() {
		old, err = e.inputsOf(ctx, id)
	}
	if err != nil || !up.Dropped {
		return err
	}
	c := command[bool]{"end_drop", 1 << 10, func(r store.Reader, w *store.Writes) (ended bool, err error) {
		up, _ := get(r, uploads, id)
		if !up.Dropped {
			return false, nil // another call has finished the drop; the upload may exist again
		}
		for _, cid := range slices.Concat(up.Inputs, old) {
			if in, ok := get(r, inputs, cid); ok && in.Upload == id {
				inputs.Delete(w, cid)
			}
		}
		uploads.Delete(w, id)
		return true, nil
	}}
	_, err = commit(ctx, e, store.Bulk, c, func(ended bool) {
		if ended {
			e.quota.set(id, charge{})
		}
	})
	return err
}

// dropSome deletes a batch of rows of a dropped upload, including damaged ones. It reports whether
// there may be more.
func (e *Engine) dropSome(ctx context.Context, id b3.Digest) (more bool, err error) {
	c := command[bool]{"drop_rows", 1 << 10, func(r store.Reader, w *store.Writes) (more bool, err error) {
		up, _ := get(r, uploads, id)
		if !up.Dropped {
			return false, nil
		}
		n := 0
		for raw := range r.Range(chunks.Bucket(), keyOf(piece{id, 0}), keyOf(piece{id, math.MaxUint32})) {
			w.Delete(chunks.Bucket(), slices.Clone(raw))
			if n++; n == dropChunks {
				return true, nil
			}
		}
		return false, nil
	}}
	return commit(ctx, e, store.Bulk, c)
}

// marked reads an upload. It returns a zero Upload if it does not exist.
func (e *Engine) marked(ctx context.Context, id b3.Digest) (up Upload, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		up, _ = get(r, uploads, id)
		return nil
	})
	return up, err
}

// inputsOf returns the inputs that were sealed from an upload.
func (e *Engine) inputsOf(ctx context.Context, id b3.Digest) (all []b3.Digest, err error) {
	err = walk(ctx, e, inputs, digestKey, func(_ store.Reader, cid b3.Digest, in Input) {
		if in.Upload == id {
			all = append(all, cid)
		}
	})
	return all, err
}

// walk calls fn for every row of t that reads well. Each view covers walkRows rows.
func walk[K, V any](
	ctx context.Context, e *Engine, t store.Table[K, V], decode func([]byte) (K, error),
	fn func(r store.Reader, key K, v V),
) error {
	var from []byte
	for {
		n, next := 0, []byte(nil)
		if err := e.view(ctx, func(r store.Reader) error {
			for raw := range r.Range(t.Bucket(), from, nil) {
				if n++; n > walkRows {
					next = slices.Clone(raw)
					break
				}
			}
			for key, v := range readable(e, r, t, decode, from, next) {
				fn(r, key, v)
			}
			return nil
		}); err != nil || next == nil {
			return err
		}
		from = next
	}
}

// Sweep repairs damaged rows of rw/todo, recounts the uploads that no run uses, drops expired
// uploads, and finishes interrupted drops. Other damaged rows are recorded and skipped. Only one
// sweep may run at a time.
func (e *Engine) Sweep(ctx context.Context) error {
	return errors.Join(e.repairTodos(ctx), e.sweepUploads(ctx))
}

func (e *Engine) sweepUploads(ctx context.Context) error {
	expired := e.now().Add(-e.live().Inputs.Keep.D()).UnixMilli()
	counted := map[b3.Digest]charge{}
	var due, cut []b3.Digest
	e.quota.begin()
	err := walk(ctx, e, uploads, digestKey, func(r store.Reader, id b3.Digest, up Upload) {
		_ = e.noted(attempt(func() {
			head, err := record.ParseSnapshot(up.Header)
			_, used := runOf(&up, r)
			switch {
			case err != nil || used:
				return
			case up.Dropped:
				cut = append(cut, id)
			case up.Sealed.IsZero() && up.Changed != 0 && up.Changed <= expired:
				due = append(due, id)
			}
			counted[id] = chargeOf(&up, head.Tenant)
		}))
	})
	if err != nil {
		return err
	}
	e.quota.end(counted)
	for _, id := range due {
		err := e.beginDrop(ctx, Call{}, id, "expired", func(_ store.Reader, up *Upload, _ *record.Snapshot) error {
			if !up.Sealed.IsZero() || up.Changed > expired {
				return errGone // the upload was continued in the meantime
			}
			return nil
		})
		if err == nil {
			cut = append(cut, id)
		}
	}
	for _, id := range cut {
		if err := e.finishDrop(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// noted calls note for a row that may be nil.
func (e *Engine) noted(bad *store.RowError) error {
	if bad == nil {
		return nil
	}
	return e.note(bad)
}

// stamp returns a time in ms since 1970 with three decimals.
func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
