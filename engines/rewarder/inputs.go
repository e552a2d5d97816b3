package rewarder

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// OpenInput declares an upload. The same declaration by the same principal returns the same upload.
// Errors: *FieldError, *QuotaError, and *ConflictError while an upload of the same declaration is
// being dropped.
func (e *Engine) OpenInput(ctx context.Context, by Call, in OpenInput) (Upload, error) {
	head := record.Snapshot{
		Asset: in.Asset, EpochID: in.EpochID, Tenant: by.Tenant, Metrics: in.Metrics, Pool: in.PoolMinor,
		ProducedAtMS: in.ProducedAtMS, WindowStartMS: in.WindowStartMS, WindowEndMS: in.WindowEndMS,
	}
	if err := head.Check(); err != nil {
		return Upload{}, err
	}
	if err := record.CheckActor("account", in.Account); err != nil {
		return Upload{}, err
	}
	now := e.now().UnixMilli()
	up := Upload{
		Header:  head.Bytes(),
		Account: in.Account,
		Expect:  in.Expect,
		Owner:   by.owner(),
		Created: now,
		Changed: now,
	}
	up.ID = b3.Sum(bytes.Join([][]byte{up.Header, []byte(up.Account), up.Expect[:], []byte(up.Owner)}, []byte{0}))
	cost, err := e.quota.reserve(ownerOf(by.Tenant, up.Owner), uploadCost, &e.live().Inputs)
	if err != nil && e.has(ctx, up.ID) {
		err = nil // the upload exists and takes no more room
	}
	if err != nil {
		return Upload{}, err
	}
	defer e.quota.release(cost)
	opened := false // owned by the committer
	c := command[Upload]{"open_input", len(up.Header), func(r store.Reader, w *store.Writes) (Upload, error) {
		switch has, ok := get(r, uploads, up.ID); {
		case has.Dropped:
			return has, &ConflictError{"upload", UploadDropping, UploadOpen}
		case ok:
			return has, nil
		}
		uploads.Put(w, up.ID, up)
		opened = true
		return up, nil
	}}
	return commit(ctx, e, store.Work, c, func(up Upload) {
		if opened { // otherwise it is counted already, or a run uses it
			e.quota.set(up.ID, chargeOf(&up, by.Tenant))
		}
	})
}

// has reports whether an upload exists.
func (e *Engine) has(ctx context.Context, id b3.Digest) (yes bool) {
	err := e.view(ctx, func(r store.Reader) error {
		yes = uploads.Has(r, id)
		return nil
	})
	return yes && err == nil
}

// upload reads an upload and checks that the caller may continue it: the caller is its owner or
// administers it. An upload of schema 1 has no owner and belongs to its tenant.
func (e *Engine) upload(ctx context.Context, by Call, id b3.Digest) (up Upload, head record.Snapshot, err error) {
	err = e.view(ctx, func(r store.Reader) (err error) {
		var ok bool
		up, ok = get(r, uploads, id)
		if ok {
			head, err = record.ParseSnapshot(up.Header)
		}
		mine := head.Tenant == by.Tenant && (up.Owner == "" || by.administers(&up, &head))
		if (!mine || up.Dropped) && err == nil {
			return fmt.Errorf("upload: %w", ErrNotFound)
		}
		return err
	})
	return up, head, err
}

// PutPart appends part n of an upload, counted from 0. A part is JSON lines, or CSV with the header
// actor,metric,qty[,content]. Rows ascend by actor, content and metric over all parts, without
// duplicates. Repeating the last part with the same bytes is a no-op. Errors: *FieldError,
// *ConflictError, ErrNotFound, *QuotaError.
func (e *Engine) PutPart(ctx context.Context, by Call, id b3.Digest, n uint32, csv bool, body []byte) (Upload, error) {
	up, head, err := e.upload(ctx, by, id)
	if err != nil {
		return up, err
	}
	digest := b3.Sum(body)
	if done, err := admitPart(&up, n, digest); done || err != nil {
		return up, err
	}
	in := record.Rows{Snapshot: &head, Payer: up.Account}
	if last, _, ok := record.CutRow(up.Last); ok {
		in.After = &last
	}
	rows, err := in.Read(body, csv)
	if err == nil && len(rows) == 0 {
		err = &FieldError{Field: "part", Reason: "has no rows"}
	}
	if err != nil {
		return up, err
	}
	cost, err := e.quota.reserve(ownerOf(by.Tenant, up.Owner), sizeOf(rows), &e.live().Inputs)
	if err != nil {
		return up, err
	}
	defer e.quota.release(cost)
	now := e.now().UnixMilli()
	c := command[Upload]{"put_input_part", len(body), func(r store.Reader, w *store.Writes) (Upload, error) {
		up, ok := get(r, uploads, id)
		if !ok || up.Dropped {
			return up, fmt.Errorf("upload: %w", ErrNotFound)
		}
		if done, err := admitPart(&up, n, digest); done || err != nil {
			return up, err
		}
		for rows := rows; len(rows) > 0; {
			at := piece{id, uint32(up.Rows / record.ChunkRows)}
			var chunk []byte
			if up.Rows%record.ChunkRows != 0 {
				chunk = must(r, chunks, at) // an earlier part began this chunk
			}
			some := min(record.ChunkRows-int(up.Rows%record.ChunkRows), len(rows))
			for _, row := range rows[:some] {
				before := len(chunk)
				chunk = row.Append(chunk)
				up.Bytes += uint64(len(chunk) - before)
			}
			chunks.Put(w, at, chunk)
			up.Rows, rows = up.Rows+uint64(some), rows[some:]
		}
		up.Parts, up.Part, up.Last, up.Changed = n+1, digest, in.After.Append(nil), now
		uploads.Put(w, id, up)
		return up, nil
	}}
	return commit(ctx, e, store.Work, c, e.charge(by.Tenant))
}

// sizeOf returns the size of rows in the file, in bytes.
func sizeOf(rows []record.Row) (n uint64) {
	var one []byte
	for _, row := range rows {
		one = row.Append(one[:0])
		n += uint64(len(one))
	}
	return n
}

// admitPart reports whether a part was stored before. It returns an error if another part is
// expected.
func admitPart(up *Upload, n uint32, digest b3.Digest) (done bool, err error) {
	switch {
	case n+1 == up.Parts && digest == up.Part:
		return true, nil
	case n+1 == up.Parts:
		return false, &ConflictError{"part", up.Part.String(), digest.String()}
	case n != up.Parts || !up.Sealed.IsZero():
		return false, notNext(n, up.Parts)
	}
	return false, nil
}

// notNext returns an error that names the expected part. A sealed upload takes no part.
func notNext(given, next uint32) error {
	return &ConflictError{"next part", strconv.FormatUint(uint64(next), 10), strconv.FormatUint(uint64(given), 10)}
}

// SealInput ends an upload and records the balance that the funding account has now. Sealing again
// records the new balance. Errors: *FieldError, ErrNoLedger, *ConflictError, ErrNotFound.
func (e *Engine) SealInput(ctx context.Context, by Call, id b3.Digest) (Input, error) {
	up, head, err := e.upload(ctx, by, id)
	if err != nil {
		return Input{}, err
	}
	var leaves []b3.Digest
	if err = e.pieces(ctx, chunks, id, chunksOf(up.Rows), func(b []byte) error {
		leaves = append(leaves, merkle.Leaf(b))
		return nil
	}); err != nil {
		if _, _, gone := e.upload(ctx, by, id); gone != nil {
			return Input{}, gone // the upload was dropped in the meantime
		}
		return Input{}, e.note(err)
	}
	head.Rows, head.RowsRoot = up.Rows, record.Root(leaves)
	in := Input{Snapshot: head.Bytes(), Upload: id}
	up.Sealed = b3.Sum(in.Snapshot)
	if !up.Expect.IsZero() && up.Expect != up.Sealed {
		reason := "differs from that of the rows, " + up.Sealed.String()
		return Input{}, &FieldError{Field: "accounting_cid", Reason: reason}
	}
	ref, err := e.ledgerRef(ctx, up.Account, head.Asset)
	if err != nil {
		return Input{}, err
	}
	in.AccountingCID, in.Ledger, in.LedgerCID = up.Sealed, ref.Bytes(), b3.Sum(ref.Bytes())
	in.InputsCID = record.InputsCID(in.AccountingCID, in.LedgerCID)
	c := command[Input]{"seal_input", len(in.Snapshot), func(r store.Reader, w *store.Writes) (Input, error) {
		has, ok := get(r, uploads, id)
		if !ok || has.Dropped {
			return in, fmt.Errorf("upload: %w", ErrNotFound)
		}
		if has.Parts != up.Parts {
			return in, notNext(up.Parts, has.Parts)
		}
		has.Sealed = up.Sealed
		// another principal has sealed the same rows
		if was, sealed := get(r, inputs, in.InputsCID); sealed && was.Upload != id {
			uploads.Put(w, id, has)
			return was, nil
		}
		addInput(&has, r, w, in.InputsCID)
		uploads.Put(w, id, has)
		inputs.Put(w, in.InputsCID, in)
		w.Audit(by.event("inputs.sealed", "",
			map[string]string{"inputs_cid": in.InputsCID.String(), "tenant": by.Tenant}))
		return in, nil
	}}
	return commit(ctx, e, store.Work, c)
}

// maxInputs bounds the inputs of one upload. Each seal after a new ledger record makes another
// input.
const maxInputs = 64

// addInput records an input that was sealed from up. If there are too many, it deletes the oldest
// one that no run uses.
func addInput(up *Upload, r store.Reader, w *store.Writes, cid b3.Digest) {
	if slices.Contains(up.Inputs, cid) {
		return
	}
	if len(up.Inputs) == maxInputs {
		run, _ := runOf(up, r)
		at := 0
		if up.Inputs[at] == run.InputsCID {
			at++
		}
		inputs.Delete(w, up.Inputs[at])
		up.Inputs = slices.Delete(slices.Clone(up.Inputs), at, at+1)
	}
	up.Inputs = append(slices.Clone(up.Inputs), cid)
}

// Input reads a sealed input. It returns ErrNotFound if it does not exist.
func (e *Engine) Input(ctx context.Context, tenant string, id b3.Digest) (in Input, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		_, in, err = readInput(r, tenant, id)
		return err
	})
	return in, err
}

func readInput(r store.Reader, tenant string, id b3.Digest) (head record.Snapshot, in Input, err error) {
	in, ok := get(r, inputs, id)
	if ok {
		head, err = record.ParseSnapshot(in.Snapshot)
	}
	if head.Tenant != tenant && err == nil {
		err = fmt.Errorf("input: %w", ErrNotFound)
	}
	return head, in, err
}

// chunksOf returns the number of chunks of n rows or allocations.
func chunksOf(n uint64) uint32 { return uint32((n + record.ChunkRows - 1) / record.ChunkRows) }

// viewChunks bounds the chunks that one view reads, to keep views short.
const viewChunks = 64

// pieces calls fn for the first n pieces of id, in order. No view is open while fn runs.
func (e *Engine) pieces(
	ctx context.Context, t store.Table[piece, []byte], id b3.Digest, n uint32, fn func(b []byte) error,
) error {
	for from := uint32(0); from < n; from += viewChunks {
		var some [][]byte
		to := min(n, from+viewChunks)
		if err := e.view(ctx, func(r store.Reader) error {
			for _, b := range t.Range(r, piece{id, from}, piece{id, to}) {
				some = append(some, b)
			}
			return nil
		}); err != nil {
			return err
		}
		if len(some) != int(to-from) {
			return &store.RowError{Bucket: t.Bucket().Name, Key: keyOf(piece{id, from}), Cause: errMissing}
		}
		for _, b := range some {
			if err := fn(b); err != nil {
				return err
			}
		}
	}
	return nil
}
