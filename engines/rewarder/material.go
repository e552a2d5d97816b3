package rewarder

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/rewarder/calculus"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// material is the input of a computation.
type material struct {
	key    b3.Digest
	policy record.Policy
	head   record.Snapshot
	in     Input
	ref    record.LedgerRef
	roots  []b3.Digest // of its chunks, after it is sealed
}

// pool returns the amount that the run shares: the pool of the inputs, at most the maximum of the
// policy.
func (m *material) pool() engines.Amount {
	if m.policy.PoolMax.Less(m.head.Pool) {
		return m.policy.PoolMax
	}
	return m.head.Pool
}

func readMaterial(r store.Reader, tenant string, input b3.Digest, policy string) (m material, err error) {
	m.head, m.in, err = readInput(r, tenant, input)
	if err != nil {
		return m, err
	}
	m.ref, err = record.ParseLedgerRef(m.in.Ledger)
	if err != nil {
		return m, err
	}
	m.policy, err = record.ParsePolicy(must(r, policies, scoped(tenant, policy)).Body)
	return m, err
}

// load reads a run and its material.
func (e *Engine) load(ctx context.Context, j job) (m material, run Run, err error) {
	err = e.view(ctx, func(r store.Reader) (err error) {
		run, _ = get(r, slots, j.slot)
		if run.RunKey != j.key {
			return errGone
		}
		row := sealedOf(r, &run)
		run.Manifest = row.Header
		m, err = readMaterial(r, run.Tenant, run.InputsCID, run.PolicyID)
		m.key, m.roots = j.key, row.Roots
		return err
	})
	return m, run, err
}

// roomFor is the number of scores that are allocated at once. The list grows beyond it, which takes
// twice the memory for a moment.
const roomFor = 1 << 20

// scores returns the actors with a score above 0, one per line and in their order, and the scores.
func (e *Engine) scores(ctx context.Context, m *material) (actors []byte, scores []engines.Amount, err error) {
	scores = make([]engines.Amount, 0, min(m.head.Rows, roomFor))
	err = e.eachScore(ctx, m, func(actor string, score engines.Amount) error {
		actors = append(append(actors, actor...), '\n')
		scores = append(scores, score)
		return nil
	})
	return actors, scores, err
}

// eachScore adds up the usage of each actor, weighs it, and calls fn for each score above 0, in the
// order of the actors. It ends early if fn returns an error. A score that does not fit 128 bits is
// a *calculus.Breach.
func (e *Engine) eachScore(ctx context.Context, m *material, fn func(actor string, score engines.Amount) error) error {
	weights, _ := m.policy.Weights(m.head.Metrics)
	sums := make([]engines.Amount, len(weights))
	var actor string
	end := func() error {
		var score engines.Amount
		for i, q := range sums {
			term, ok := calculus.Term(q, weights[i].Num, weights[i].Den)
			sum, fits := score.Add(term)
			if !ok || !fits {
				return calculus.Overflow()
			}
			score, sums[i] = sum, engines.Amount{}
		}
		if score.IsZero() {
			return nil
		}
		return fn(actor, score)
	}
	err := e.pieces(ctx, chunks, m.in.Upload, chunksOf(m.head.Rows), func(b []byte) error {
		for len(b) > 0 {
			row, rest, ok := record.CutRow(b)
			if !ok || int(row.Metric) >= len(weights) {
				return &store.RowError{Bucket: chunks.Bucket().Name, Key: m.in.Upload[:], Cause: errLength}
			}
			b = rest
			if row.Actor != actor {
				if err := end(); err != nil {
					return err
				}
				actor = row.Actor
			}
			if most := weights[row.Metric].RowMax; most != 0 {
				row.Qty = min(row.Qty, most)
			}
			sums[row.Metric], _ = sums[row.Metric].Add(engines.AmountOf(0, row.Qty)) // 2^64 rows do not fit into a file
		}
		return nil
	})
	if err != nil {
		return err
	}
	return end()
}
