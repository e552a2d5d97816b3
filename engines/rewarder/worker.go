package rewarder

import (
	"bytes"
	"context"
	"errors"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/merkle"
	"ronbox/engines/rewarder/calculus"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

const (
	maxTries   = 3                                   // of computing a run
	briefly    = 5 * time.Second                     // for a command that must be tried even as ctx ends
	stageBytes = 1 << 20                             // of one command: bbolt rewrites the last few rows at each append, which little ones would pay for dearly
	rootSize   = b3.Size + 2                         // in a row of the file
	maxChunks  = (store.MaxValue - 8<<10) / rootSize // of a run: its header and their roots are one row of the file
)

// errDeadline is the cause of the end of a run's context.
var errDeadline = errors.New("rewarder: the deadline of the run has passed")

// runWorker computes runs, one at a time. What is queued when the node drains stays in the file.
func (e *Engine) runWorker(ctx context.Context) error { return e.consume(ctx, toCompute, e.lead) }

// lead computes a run, and lets it fail at its deadline, or if it has panicked too often.
func (e *Engine) lead(ctx context.Context, j job) {
	if e.draining.Load() {
		return
	}
	why := "panic"
	defer func() {
		if why == "panic" && !e.runs.fail(j.key) {
			return // the scheduler offers it again
		}
		if why != "" {
			e.fail(ctx, j, why)
		}
	}()
	run, deadline, err := e.compute(ctx, j)
	why = ""
	switch {
	case err == nil:
		e.finished(ctx, j, run, deadline)
	case errors.Is(err, errDeadline):
		e.m.late(1)
		why = "timeout"
	case ctx.Err() != nil:
		e.m.canceled(1)
	default:
		e.waits(ctx, j, err)
	}
}

// brief is a context for a last command, whatever has become of ctx.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), briefly)
}

// fail ends a run without a result and leaves its epoch free.
func (e *Engine) fail(ctx context.Context, j job, why string) {
	ctx, cancel := brief(ctx)
	defer cancel()
	c := change{kind: "fail_run", from: []State{Accepted}, what: "run.failed", why: why}
	run, err := e.change(ctx, store.Work, j, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		run.State, run.Reason = Failed, why
		todos.Delete(w, j.todo(toCompute))
		return nil
	})
	if err == nil {
		e.publish(run)
	}
}

// finished hands a sealed run to those who pay and write it, and waits for room until its deadline, or as long as a call of the ledger. What a
// shutdown cuts off is found by the next start.
func (e *Engine) finished(ctx context.Context, j job, run Run, deadline time.Time) {
	e.step("sealed")
	e.publish(run)
	if run.State == Quarantined {
		e.m.quarantined.Add(run.Epoch)
	}
	if least := time.Now().Add(e.live().ReadTimeout.D()); deadline.Before(least) {
		deadline = least
	}
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if run.State == Sealed && e.offer(within, toPay, j, true) != nil && ctx.Err() == nil {
		e.hold(ctx, j, "intents: no room")
	}
	if run.Artifact == ArtifactPending && e.offer(within, toWrite, j, true) != nil {
		e.m.lost(1)
	}
}

// material is what a run is made of.
type material struct {
	key    b3.Digest
	policy record.Policy
	head   record.Snapshot
	in     Input
	ref    record.LedgerRef
	roots  []b3.Digest // of its chunks, once it is sealed
}

func readMaterial(r store.Reader, tenant string, input b3.Digest, policy string) (m material, err error) {
	if m.head, m.in, err = readInput(r, tenant, input); err != nil {
		return m, err
	}
	if m.ref, err = record.ParseLedgerRef(m.in.Ledger); err != nil {
		return m, err
	}
	m.policy, err = record.ParsePolicy(must(r, policies, scoped(tenant, policy)).Body)
	return m, err
}

// load reads a run and what it is made of.
func (e *Engine) load(ctx context.Context, j job) (m material, run Run, err error) {
	err = e.view(ctx, func(r store.Reader) (err error) {
		if run, _ = get(r, slots, j.slot); run.RunKey != j.key {
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

// roomFor is how many actors there is room for at once: of more the list grows, which takes twice as much meanwhile.
const roomFor = 1 << 20

// scores adds up what each actor did, and weighs it. It gives those with a score, one a line and in their order, and their scores.
func (e *Engine) scores(ctx context.Context, m *material) (actors []byte, scores []engines.Amount, err error) {
	weights, _ := m.policy.Weights(m.head.Metrics)
	sums := make([]engines.Amount, len(weights))
	scores = make([]engines.Amount, 0, min(m.head.Rows, roomFor))
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
		if !score.IsZero() {
			actors, scores = append(append(actors, actor...), '\n'), append(scores, score)
		}
		return nil
	}
	if err = e.pieces(ctx, chunks, m.in.Upload, chunksOf(m.head.Rows), func(b []byte) error {
		for len(b) > 0 {
			row, rest, ok := record.CutRow(b)
			if !ok || int(row.Metric) >= len(weights) {
				return &store.RowError{Bucket: chunks.Bucket().Name, Key: m.in.Upload[:], Cause: errLength}
			}
			if b = rest; row.Actor != actor {
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
	}); err == nil {
		err = end()
	}
	return actors, scores, err
}

// sealing is a run on its way to its seal.
type sealing struct {
	*Engine
	material
	job    job
	header record.Manifest
}

// compute makes a run and seals it until its deadline. What the rules forbid is sealed as quarantined.
func (e *Engine) compute(ctx context.Context, j job) (run Run, deadline time.Time, err error) {
	s := &sealing{Engine: e, job: j}
	if s.material, run, err = e.load(ctx, j); err != nil {
		return run, deadline, err
	}
	deadline, _ = time.Parse(time.RFC3339Nano, run.DeadlineAt) // written by this package
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errDeadline)
	defer cancel()
	pool := s.head.Pool
	if s.policy.PoolMax.Less(pool) {
		pool = s.policy.PoolMax
	}
	s.header = record.Manifest{
		Policy: &s.policy, EpochID: run.Epoch, Accounting: s.in.AccountingCID, Ledger: s.in.LedgerCID, Inputs: s.in.InputsCID, RunKey: j.key,
		Root: record.Root(nil), Pool: pool, Residual: pool,
	}
	err = s.share(ctx)
	breach, broken := errors.AsType[*calculus.Breach](err)
	if err == nil || broken {
		e.step("seal_before")
		run, err = s.seal(ctx, breach)
	}
	if err != nil && context.Cause(ctx) == errDeadline {
		err = errDeadline
	}
	return run, deadline, err
}

// share computes what everybody gets, stages it and reads it back.
func (s *sealing) share(ctx context.Context) error {
	h := &s.header
	switch {
	case s.ref.Available.Less(h.Pool):
		return &calculus.Breach{Reason: "unfunded", Has: s.ref.Available.String(), Need: h.Pool.String()}
	case s.head.Saturated != 0:
		return calculus.Overflow()
	}
	actors, scores, err := s.scores(ctx, &s.material)
	if err != nil {
		return err
	}
	out, amounts, err := calculus.Share(ctx, h.Pool, scores, calculus.Rule{
		ActorMax: s.policy.ActorMax, Guarantee: s.policy.Guarantee, Dust: s.policy.Dust,
		Redistribute: s.policy.Excess == record.Redistribute, Remainder: s.policy.Rounding == record.LargestRemainder,
	})
	if h.Score = out.Score; !out.Score.IsZero() {
		h.Eligible = uint64(len(scores))
	}
	if err != nil {
		return err
	}
	h.Count, h.Payout, h.Residual = out.Paid, out.Payout, out.Residual
	if err := s.stage(ctx, actors, scores, amounts); err != nil {
		return err
	}
	h.Root = record.Root(s.roots)
	return s.readBack(ctx)
}

// stage writes the allocations of a run, in the order of actors, and keeps the roots of their chunks.
func (s *sealing) stage(ctx context.Context, actors []byte, scores, amounts []engines.Amount) error {
	if chunksOf(s.header.Count) > maxChunks {
		return calculus.Overflow()
	}
	var tree merkle.Tree
	var leaf, chunk []byte
	var staged [][]byte
	size, paid := 0, uint64(0)
	for i, amount := range amounts {
		actor, rest, _ := bytes.Cut(actors, []byte{'\n'})
		if actors = rest; amount.IsZero() {
			continue
		}
		begin := len(chunk)
		chunk = record.AppendAllocation(chunk, actor, amount, scores[i])
		leaf = record.AppendLeaf(leaf[:0], s.key, paid, chunk[begin:])
		tree.Add(leaf)
		if paid++; paid%record.ChunkRows != 0 && paid != s.header.Count {
			continue
		}
		s.roots = append(s.roots, tree.Root())
		if staged, size, chunk = append(staged, chunk), size+len(chunk), nil; size < stageBytes && paid != s.header.Count {
			continue
		}
		if err := s.put(ctx, staged, size); err != nil {
			return err
		}
		staged, size = nil, 0
	}
	return nil
}

// put writes the newest chunks of a run.
func (s *sealing) put(ctx context.Context, staged [][]byte, size int) error {
	s.step("staging")
	first := uint32(len(s.roots) - len(staged))
	c := change{kind: "stage_chunks", from: []State{Accepted}, size: size}
	_, err := s.change(ctx, store.Bulk, s.job, c, func(_ store.Reader, _ *Run, w *store.Writes) error {
		for i, b := range staged {
			allocs.Put(w, piece{s.key, first + uint32(i)}, b)
		}
		return nil
	})
	return err
}

// readBack reads what was staged and holds it against the header: order, count, sum and root, by other code than that which made them.
func (s *sealing) readBack(ctx context.Context) error {
	var last string
	var sum engines.Amount
	var all []b3.Digest
	n, good := uint64(0), true
	err := s.pieces(ctx, allocs, s.key, uint32(len(s.roots)), func(b []byte) error {
		some, leaves, ok := cutChunk(s.key, uint32(len(all)), b)
		good = good && ok
		for _, a := range some {
			total, fits := sum.Add(a.Amount)
			good = good && fits && last < a.Actor
			last, sum, n = a.Actor, total, n+1
		}
		all = append(all, record.Root(leaves))
		return nil
	})
	if err != nil {
		return err
	}
	switch rest, ok := s.header.Pool.Sub(sum); {
	case !ok || rest != s.header.Residual:
		return &calculus.Breach{Reason: "conservation", Has: sum.String(), Need: s.header.Payout.String()}
	case !good || n != s.header.Count || record.Root(all) != s.header.Root:
		return &calculus.Breach{Reason: "commitment"}
	}
	return nil
}

// seal makes a run final, with a breach as one that pays nothing.
func (s *sealing) seal(ctx context.Context, breach *calculus.Breach) (Run, error) {
	h, to := &s.header, Sealed
	c := change{kind: "seal_run", from: []State{Accepted}, what: "run.completed", size: len(s.roots) * rootSize}
	if breach != nil {
		h.Reason, h.Count, h.Root, h.Payout, h.Residual, s.roots = breach.Reason, 0, record.Root(nil), engines.Amount{}, h.Pool, nil
		c.what, c.why, to = "run.quarantined", breach.Reason, Quarantined
	} else if len(s.roots) == 0 {
		to = Settled
	}
	header := h.Bytes()
	return s.change(ctx, store.Work, s.job, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		run.State, run.Commitment, run.Actors, run.Transactions = to, record.Commitment(header), h.Count, uint32(len(s.roots))
		run.PoolMinor, run.PayoutMinor, run.ResidualMinor = h.Pool.String(), h.Payout.String(), h.Residual.String()
		if run.Artifact = ArtifactOff; s.folder != "" {
			run.Artifact = ArtifactPending
			todos.Put(w, s.job.todo(toWrite), []byte(s.job.slot))
		}
		if to == Sealed {
			todos.Put(w, s.job.todo(toPay), []byte(s.job.slot))
		}
		if breach != nil {
			run.Quarantine = &Quarantine{Kind: KindInvariant, Reason: breach.Reason, Has: breach.Has, Need: breach.Need}
		}
		sealed.Put(w, s.key, sealedRow{header, s.roots})
		todos.Delete(w, s.job.todo(toCompute))
		return nil
	})
}
