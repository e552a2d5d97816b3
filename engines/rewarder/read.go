package rewarder

import (
	"context"
	"slices"
	"sort"

	"ronbox/appliance/b3"
	"ronbox/engines/merkle"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// Epoch reads the run of an epoch. ErrNotFound.
func (e *Engine) Epoch(ctx context.Context, tenant, epoch string) (run Run, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		if run, err = find(r, slots, scoped(tenant, epoch), "epoch"); err == nil {
			run.Manifest = sealedOf(r, &run).Header
		}
		return err
	})
	return run, err
}

// sealedOf reads the row of a run whose allocations stand, the zero one of another run.
func sealedOf(r store.Reader, run *Run) (row sealedRow) {
	if !slices.Contains(final, run.State) {
		return row
	}
	row = must(r, sealed, run.RunKey)
	if record.Commitment(row.Header) != run.Commitment || len(row.Roots) != int(run.Transactions) {
		panic(&store.RowError{Bucket: sealed.Bucket().Name, Key: keyOf(run.RunKey), Cause: errRoot})
	}
	return row
}

// Epochs reads a page of up to limit epochs after one, in byte order of their ids. Epochs whose row is damaged are left out.
func (e *Engine) Epochs(ctx context.Context, tenant, after string, limit int) (EpochPage, error) {
	page := EpochPage{Epochs: []Run{}}
	err := e.view(ctx, func(r store.Reader) error {
		for _, run := range readable(e, r, slots, textKey, []byte(scoped(tenant, after)), []byte(tenant+"\x01")) {
			switch n := len(page.Epochs); {
			case run.Epoch == after:
			case n == limit:
				page.Next = page.Epochs[n-1].Epoch
				return nil
			default:
				page.Epochs = append(page.Epochs, run)
			}
		}
		return nil
	})
	return page, err
}

// final reads the run of an epoch whose allocations stand. Errors: ErrNotFound, *ConflictError.
func (e *Engine) final(ctx context.Context, tenant, epoch string) (Run, error) {
	run, err := e.Epoch(ctx, tenant, epoch)
	if err == nil && !slices.Contains(final, run.State) {
		err = &ConflictError{"state", string(run.State), string(Sealed)}
	}
	return run, err
}

// Allocations reads a page of what actors get, in their order. Errors: ErrNotFound, *ConflictError.
func (e *Engine) Allocations(ctx context.Context, tenant, epoch, after string, limit int) (AllocationPage, error) {
	page := AllocationPage{Allocations: []record.Allocation{}}
	run, err := e.final(ctx, tenant, epoch)
	if err != nil {
		return page, err
	}
	err = e.view(ctx, func(r store.Reader) error {
		roots := must(r, sealed, run.RunKey).Roots
		for c := findChunk(r, run, after); c < chunksOf(run.Actors); c++ {
			all, _ := readChunk(r, run.RunKey, roots, c)
			for _, a := range all {
				switch n := len(page.Allocations); {
				case a.Actor <= after:
				case n == limit:
					page.Next = page.Allocations[n-1].Actor
					return nil
				default:
					page.Allocations = append(page.Allocations, a)
				}
			}
		}
		return nil
	})
	return page, err
}

// cutChunk takes apart the bytes of chunk c of a run; ok is false if they are not allocations.
func cutChunk(key b3.Digest, c uint32, b []byte) (all []record.Allocation, leaves []b3.Digest, ok bool) {
	for len(b) > 0 {
		a, raw, rest := record.CutAllocation(b)
		if raw == nil {
			return nil, nil, false
		}
		leaves = append(leaves, merkle.Leaf(record.AppendLeaf(nil, key, uint64(c)*record.ChunkRows+uint64(len(all)), raw)))
		all, b = append(all, a), rest
	}
	return all, leaves, true
}

// findChunk is the last chunk whose first actor is not behind actor; 0 if there is none.
func findChunk(r store.Reader, run Run, actor string) uint32 {
	n := sort.Search(int(chunksOf(run.Actors)), func(c int) bool {
		b, _ := allocs.Get(r, piece{run.RunKey, uint32(c)})
		first, _, _ := record.CutAllocation(b)
		return first.Actor > actor
	})
	return uint32(max(n, 1) - 1)
}

// Proof shows what an actor gets, or that it gets nothing. It reads a chunk or two and hashes them anew: no tree is stored. Errors: *FieldError,
// ErrNotFound, *ConflictError.
func (e *Engine) Proof(ctx context.Context, tenant, epoch, actor string) (p RewardProof, err error) {
	if err := record.CheckActor("actor", actor); err != nil {
		return p, err
	}
	run, err := e.final(ctx, tenant, epoch)
	if err != nil {
		return p, err
	}
	p = RewardProof{Commitment: run.Commitment, Header: run.Manifest, Actor: actor, Absent: true, Leaves: []ProofLeaf{}, Schema: "ronbox.rw.proof/1"}
	err = e.view(ctx, func(r store.Reader) error {
		roots, c := must(r, sealed, run.RunKey).Roots, findChunk(r, run, actor)
		at := uint64(c) * record.ChunkRows // of the first leaf that is not before the actor
		if run.Actors > 0 {
			all, _ := readChunk(r, run.RunKey, roots, c)
			n := sort.Search(len(all), func(i int) bool { return all[i].Actor >= actor })
			at, p.Absent = at+uint64(n), n == len(all) || all[n].Actor != actor
		}
		if p.Absent && at > 0 {
			p.Leaves = append(p.Leaves, leafOf(r, run.RunKey, roots, at-1))
		}
		if at < run.Actors {
			p.Leaves = append(p.Leaves, leafOf(r, run.RunKey, roots, at))
		}
		return nil
	})
	return p, err
}

// leafOf is leaf number i with its path: through its chunk, then over the roots of chunks.
func leafOf(r store.Reader, key b3.Digest, roots []b3.Digest, i uint64) ProofLeaf {
	c, in := i/record.ChunkRows, i%record.ChunkRows
	all, leaves := readChunk(r, key, roots, uint32(c))
	a := all[in]
	return ProofLeaf{a.Actor, a.Amount, i, append(merkle.Path(leaves, in), merkle.Path(roots, c)...), a.Score}
}
