package rewarder

import (
	"context"
	"slices"
	"sort"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// Epoch reads the run of an epoch. It returns ErrNotFound if it does not exist.
func (e *Engine) Epoch(ctx context.Context, tenant, epoch string) (run Run, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		run, err = find(r, slots, scoped(tenant, epoch), "epoch")
		if err != nil {
			return err
		}
		run.Manifest = sealedOf(r, &run).Header
		if slices.Contains(final, run.State) {
			t := tallyOf(r, &run)
			t.enter(&run)
		}
		run.Mark = markOf(&run)
		return nil
	})
	return run, err
}

const (
	followWithin = 3 * time.Second // below the deadline of a read; bounds the wait of a shutdown
	maxFollowers = 256             // a quarter of rewarder.limits.inflight, so that other reads go on
)

// Follow returns the run of an epoch as soon as its mark differs from seen, or after 3 s. It waits
// for events of the tasks. While 256 other calls wait, it returns at once. It returns ErrNotFound
// if there is no run.
func (e *Engine) Follow(ctx context.Context, tenant, epoch, seen string) (Run, error) {
	defer e.followers.Add(-1)
	if e.followers.Add(1) > maxFollowers {
		return e.Epoch(ctx, tenant, epoch)
	}
	sub := e.events.Subscribe("followers")
	defer sub.Close()
	within, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	for {
		run, err := e.Epoch(ctx, tenant, epoch)
		if err != nil || run.Mark != seen {
			return run, err
		}
		for heard := false; !heard; {
			event, lagged, err := sub.Recv(within)
			if err != nil { // timeout or shutdown
				return run, nil
			}
			heard = lagged > 0 || event.Tenant == tenant && event.Epoch == epoch
		}
	}
}

// sealedOf reads the sealed row of a run with final allocations. For other runs it returns a zero
// row.
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

// Epochs reads a page of at most limit epochs after the id after, in byte order of ids. Epochs with
// a damaged row are left out.
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

// final reads the run of an epoch. It returns a *ConflictError if the allocations are not final,
// and ErrNotFound if the run does not exist.
func (e *Engine) final(ctx context.Context, tenant, epoch string) (Run, error) {
	run, err := e.Epoch(ctx, tenant, epoch)
	if err == nil && !slices.Contains(final, run.State) {
		err = &ConflictError{"state", string(run.State), string(Sealed)}
	}
	return run, err
}

// Allocations reads a page of allocations in the order of actors. Errors: ErrNotFound,
// *ConflictError.
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

// MaxLargest is the largest limit of Largest.
const MaxLargest = 100

// largestScan is the number of chunks that one view of Largest reads, some 10 ms.
const largestScan = 64

// Largest returns the limit largest allocations of a run, the largest first, and those of one
// amount in the order of actors. It reads all allocations. Errors: ErrNotFound, *ConflictError.
func (e *Engine) Largest(ctx context.Context, tenant, epoch string, limit int) (AllocationPage, error) {
	page := AllocationPage{Allocations: []record.Allocation{}}
	run, err := e.final(ctx, tenant, epoch)
	top := page.Allocations
	for c := uint32(0); err == nil && c < chunksOf(run.Actors); c += largestScan {
		err = e.view(ctx, func(r store.Reader) error {
			roots := must(r, sealed, run.RunKey).Roots
			for i := c; i < min(c+largestScan, chunksOf(run.Actors)); i++ {
				all, _ := readChunk(r, run.RunKey, roots, i)
				top = addLargest(top, all, limit)
			}
			return nil
		})
	}
	page.Allocations = top
	return page, err
}

// addLargest merges allocations of later actors into the limit largest ones.
func addLargest(top, all []record.Allocation, limit int) []record.Allocation {
	for _, a := range all {
		if len(top) == limit && !top[limit-1].Amount.Less(a.Amount) {
			continue
		}
		at := sort.Search(len(top), func(i int) bool { return top[i].Amount.Less(a.Amount) })
		top = slices.Insert(top, at, a)
		top = top[:min(len(top), limit)]
	}
	return top
}

// cutChunk decodes chunk c of a run. ok is false if the bytes are not allocations.
func cutChunk(key b3.Digest, c uint32, b []byte) (all []record.Allocation, leaves []b3.Digest, ok bool) {
	for len(b) > 0 {
		a, raw, rest := record.CutAllocation(b)
		if raw == nil {
			return nil, nil, false
		}
		leaves = append(
			leaves,
			merkle.Leaf(record.AppendLeaf(nil, key, uint64(c)*record.ChunkRows+uint64(len(all)), raw)),
		)
		all, b = append(all, a), rest
	}
	return all, leaves, true
}

// findChunk returns the last chunk that begins at or before actor, or 0 if every chunk begins after
// it.
func findChunk(r store.Reader, run Run, actor string) uint32 {
	n := sort.Search(int(chunksOf(run.Actors)), func(c int) bool {
		b, _ := allocs.Get(r, piece{run.RunKey, uint32(c)})
		first, _, _ := record.CutAllocation(b)
		return first.Actor > actor
	})
	return uint32(max(n, 1) - 1)
}

// Proof proves the allocation of an actor, or that the actor has none. It reads and hashes one or
// two chunks, since no tree is stored. Errors: *FieldError, ErrNotFound, *ConflictError.
func (e *Engine) Proof(ctx context.Context, tenant, epoch, actor string) (p RewardProof, err error) {
	if err := record.CheckActor("actor", actor); err != nil {
		return p, err
	}
	run, err := e.final(ctx, tenant, epoch)
	if err != nil {
		return p, err
	}
	p = RewardProof{
		Commitment: run.Commitment,
		Header:     run.Manifest,
		Actor:      actor,
		Absent:     true,
		Leaves:     []ProofLeaf{},
		Schema:     "ronbox.rw.proof/1",
	}
	err = e.view(ctx, func(r store.Reader) error {
		roots, c := must(r, sealed, run.RunKey).Roots, findChunk(r, run, actor)
		at := uint64(c) * record.ChunkRows // index of the first leaf at or after the actor
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

// leafOf returns leaf i with its path through its chunk and through the roots of the chunks.
func leafOf(r store.Reader, key b3.Digest, roots []b3.Digest, i uint64) ProofLeaf {
	c, in := i/record.ChunkRows, i%record.ChunkRows
	all, leaves := readChunk(r, key, roots, uint32(c))
	a := all[in]
	return ProofLeaf{
		Actor:  a.Actor,
		Amount: a.Amount,
		Index:  i,
		Path:   append(merkle.Path(leaves, in), merkle.Path(roots, c)...),
		Score:  a.Score,
	}
}
