package rewarder

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines/merkle"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// PutPolicy stores a policy and binds its id to its hash for ever. The same policy again, in any spelling, is no fault; its signatures stay those
// that it came with first. Errors: *FieldError, *ConflictError.
func (e *Engine) PutPolicy(ctx context.Context, by Call, id string, body []byte, sigs []record.Signature) (Policy, error) {
	p, err := record.ParsePolicy(body)
	switch {
	case err != nil:
		return Policy{}, err
	case p.ID != id:
		return Policy{}, &FieldError{Field: "id", Reason: "is not the id of the path"}
	case p.Tenant != by.Tenant:
		return Policy{}, &FieldError{Field: "tenant", Reason: "is another one"}
	}
	cfg := e.live()
	if err := record.CheckSignatures(p.Hash(), sigs, cfg.TrustKeys, cfg.Quorum); err != nil {
		return Policy{}, err
	}
	doc := Policy{ID: id, Hash: p.Hash(), Body: p.Bytes(), Signatures: sigs}
	return commit(ctx, e, store.Work, command[Policy]{"put_policy", len(body), func(r store.Reader, w *store.Writes) (Policy, error) {
		if has, ok := get(r, policies, scoped(by.Tenant, id)); ok && has.Hash != doc.Hash {
			return doc, &ConflictError{"policy", has.Hash.String(), doc.Hash.String()}
		} else if ok {
			return has, nil
		}
		policies.Put(w, scoped(by.Tenant, id), doc)
		w.Audit(by.event("policy.put", "", map[string]string{"id": id, "policy_hash": doc.Hash.String(), "tenant": by.Tenant}))
		first := doc
		first.Created = true
		return first, nil
	}})
}

// Policy reads a policy. ErrNotFound.
func (e *Engine) Policy(ctx context.Context, tenant, id string) (doc Policy, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		doc, err = find(r, policies, scoped(tenant, id), "policy")
		return err
	})
	return doc, err
}

// find is a row that a caller names, or ErrNotFound.
func find[K, V any](r store.Reader, t store.Table[K, V], key K, what string) (V, error) {
	v, ok := get(r, t, key)
	if !ok {
		return v, fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return v, nil
}

// OpenInput declares an upload, or finds the one that was declared so before. Errors: *FieldError, *QuotaError, and *ConflictError while an upload
// of the same declaration is being dropped.
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
	up := Upload{Header: head.Bytes(), Account: in.Account, Expect: in.Expect, Owner: by.By.Principal, Created: now, Changed: now}
	up.ID = b3.Sum(bytes.Join([][]byte{up.Header, []byte(up.Account), up.Expect[:]}, []byte{0}))
	cost, err := e.quota.reserve(ownerOf(by.Tenant, up.Owner), uploadCost, &e.live().Inputs)
	if err != nil && e.has(ctx, up.ID) {
		err = nil // it is there, and takes nothing more
	}
	if err != nil {
		return Upload{}, err
	}
	defer e.quota.release(cost)
	opened := false // owned by the committer
	return commit(ctx, e, store.Work, command[Upload]{"open_input", len(up.Header), func(r store.Reader, w *store.Writes) (Upload, error) {
		switch has, ok := get(r, uploads, up.ID); {
		case has.Dropped:
			return has, &ConflictError{"upload", UploadDropping, UploadOpen}
		case ok:
			return has, nil
		}
		uploads.Put(w, up.ID, up)
		opened = true
		return up, nil
	}}, func(up Upload) {
		if opened { // else it is counted already, or a run uses it
			e.quota.set(up.ID, up.charge(by.Tenant))
		}
	})
}

// has reports whether there is an upload of that id.
func (e *Engine) has(ctx context.Context, id b3.Digest) (yes bool) {
	err := e.view(ctx, func(r store.Reader) error {
		yes = uploads.Has(r, id)
		return nil
	})
	return yes && err == nil
}

func (e *Engine) upload(ctx context.Context, tenant string, id b3.Digest) (up Upload, head record.Snapshot, err error) {
	err = e.view(ctx, func(r store.Reader) (err error) {
		var ok bool
		if up, ok = get(r, uploads, id); ok {
			head, err = record.ParseSnapshot(up.Header)
		}
		if (head.Tenant != tenant || up.Dropped) && err == nil {
			return fmt.Errorf("upload: %w", ErrNotFound)
		}
		return err
	})
	return up, head, err
}

// PutPart appends part n, from 0 on, of an upload: lines of JSON or, with the header actor,metric,qty[,content] in each part, of CSV. Rows ascend by
// actor, content and metric, without duplicates, over all parts. The last part again, with the same bytes, is no fault. Errors: *FieldError, *ConflictError,
// ErrNotFound, *QuotaError.
func (e *Engine) PutPart(ctx context.Context, by Call, id b3.Digest, n uint32, csv bool, body []byte) (Upload, error) {
	up, head, err := e.upload(ctx, by.Tenant, id)
	if err != nil {
		return up, err
	}
	digest := b3.Sum(body)
	if done, err := up.admit(n, digest); done || err != nil {
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
	return commit(ctx, e, store.Work, command[Upload]{"put_input_part", len(body), func(r store.Reader, w *store.Writes) (Upload, error) {
		up, ok := get(r, uploads, id)
		if !ok || up.Dropped {
			return up, fmt.Errorf("upload: %w", ErrNotFound)
		}
		if done, err := up.admit(n, digest); done || err != nil {
			return up, err
		}
		for rows := rows; len(rows) > 0; {
			at := piece{id, uint32(up.Rows / record.ChunkRows)}
			var chunk []byte
			if up.Rows%record.ChunkRows != 0 {
				chunk = must(r, chunks, at) // an earlier part began it
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
	}}, e.charge(by.Tenant))
}

// sizeOf returns the length of rows in the file, bytes.
func sizeOf(rows []record.Row) (n uint64) {
	var one []byte
	for _, row := range rows {
		one = row.Append(one[:0])
		n += uint64(len(one))
	}
	return n
}

// admit reports whether a part is there already, and an error if it is not its turn.
func (up *Upload) admit(n uint32, digest b3.Digest) (done bool, err error) {
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

// notNext says which part would be taken; an upload that is sealed takes none.
func notNext(given, next uint32) error {
	return &ConflictError{"next part", strconv.FormatUint(uint64(next), 10), strconv.FormatUint(uint64(given), 10)}
}

// SealInput ends an upload and names its rows together with what the funding account has now. Sealing again names them with what it has then.
// Errors: *FieldError, ErrNoLedger, *ConflictError, ErrNotFound.
func (e *Engine) SealInput(ctx context.Context, by Call, id b3.Digest) (Input, error) {
	up, head, err := e.upload(ctx, by.Tenant, id)
	if err != nil {
		return Input{}, err
	}
	var leaves []b3.Digest
	if err = e.pieces(ctx, chunks, id, chunksOf(up.Rows), func(b []byte) error {
		leaves = append(leaves, merkle.Leaf(b))
		return nil
	}); err != nil {
		if _, _, gone := e.upload(ctx, by.Tenant, id); gone != nil {
			return Input{}, gone // it was dropped meanwhile
		}
		return Input{}, e.note(err)
	}
	head.Rows, head.RowsRoot = up.Rows, record.Root(leaves)
	in := Input{Snapshot: head.Bytes(), Upload: id}
	if up.Sealed = b3.Sum(in.Snapshot); !up.Expect.IsZero() && up.Expect != up.Sealed {
		return Input{}, &FieldError{Field: "accounting_cid", Reason: "is not that of the rows, which is " + up.Sealed.String()}
	}
	ref, err := e.ledgerRef(ctx, up.Account, head.Asset)
	if err != nil {
		return Input{}, err
	}
	in.AccountingCID, in.Ledger, in.LedgerCID = up.Sealed, ref.Bytes(), b3.Sum(ref.Bytes())
	in.InputsCID = record.InputsCID(in.AccountingCID, in.LedgerCID)
	return commit(ctx, e, store.Work, command[Input]{"seal_input", len(in.Snapshot), func(r store.Reader, w *store.Writes) (Input, error) {
		has, ok := get(r, uploads, id)
		if !ok || has.Dropped {
			return in, fmt.Errorf("upload: %w", ErrNotFound)
		}
		if has.Parts != up.Parts {
			return in, notNext(up.Parts, has.Parts)
		}
		has.Sealed = up.Sealed
		has.addInput(r, w, in.InputsCID)
		uploads.Put(w, id, has)
		inputs.Put(w, in.InputsCID, in)
		w.Audit(by.event("inputs.sealed", "", map[string]string{"inputs_cid": in.InputsCID.String(), "tenant": by.Tenant}))
		return in, nil
	}})
}

// maxInputs bounds the inputs of one upload: each seal after another record of the ledger makes one.
const maxInputs = 64

// addInput notes an input that is sealed from up. The oldest one that no run uses gives way if there are too many.
func (up *Upload) addInput(r store.Reader, w *store.Writes, cid b3.Digest) {
	if slices.Contains(up.Inputs, cid) {
		return
	}
	if len(up.Inputs) == maxInputs {
		run, _ := up.run(r)
		at := 0
		if up.Inputs[at] == run.InputsCID {
			at++
		}
		inputs.Delete(w, up.Inputs[at])
		up.Inputs = slices.Delete(slices.Clone(up.Inputs), at, at+1)
	}
	up.Inputs = append(slices.Clone(up.Inputs), cid)
}

// Input reads a sealed input. ErrNotFound.
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

// chunksOf is how many chunks so many rows, or allocations, have.
func chunksOf(n uint64) uint32 { return uint32((n + record.ChunkRows - 1) / record.ChunkRows) }

// viewChunks is how many chunks are read in one view, so that none lasts long.
const viewChunks = 64

// pieces gives fn the pieces of id, n of them, in order. No view is open meanwhile.
func (e *Engine) pieces(ctx context.Context, t store.Table[piece, []byte], id b3.Digest, n uint32, fn func(b []byte) error) error {
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
