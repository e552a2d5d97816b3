package rewarder

import (
	"bytes"
	"context"
	"errors"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/rewarder/calculus"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

const (
	maxTries = 3               // attempts to compute a run
	briefly  = 5 * time.Second // time limit of a command that is sent even if ctx has ended
	// size of a staging command: bbolt rewrites the last few rows at each append, which makes small
	// commands expensive
	stageBytes = 1 << 20
	rootSize   = b3.Size + 2                         // size of a root in its row
	maxChunks  = (store.MaxValue - 8<<10) / rootSize // of a run: its header and its roots are one row
)

// errDeadline is the cause of a context that ends at the deadline of a run.
var errDeadline = errors.New("rewarder: the deadline of the run has passed")

// runWorker computes runs, one at a time. Runs that are queued at shutdown stay in the file.
func (e *Engine) runWorker(ctx context.Context) error { return e.consume(ctx, toCompute, e.lead) }

// lead computes a run. It fails the run at its deadline or after maxTries panics.
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

// brief returns a context for a final command that does not end with ctx.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), briefly)
}

// fail ends a run without a result and frees its epoch.
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

// finished queues a sealed run for payment and for its files. It waits for room until the deadline
// of the run, and at least for the timeout of a ledger call. A start after a shutdown finds the
// work that was cut off.
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
		e.hold(ctx, j, "intents: no room", "")
	}
	if run.Artifact == ArtifactPending && e.offer(within, toWrite, j, true) != nil {
		e.m.lost(1)
	}
}

// sealing is a computation in progress.
type sealing struct {
	*Engine
	material
	job    job
	header record.Manifest
}

// compute computes a run and seals it before its deadline. A breach of the rules is sealed as
// quarantined.
func (e *Engine) compute(ctx context.Context, j job) (run Run, deadline time.Time, err error) {
	s := &sealing{Engine: e, job: j}
	s.material, run, err = e.load(ctx, j)
	if err != nil {
		return run, deadline, err
	}
	deadline, _ = time.Parse(time.RFC3339Nano, run.DeadlineAt) // written by this package
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errDeadline)
	defer cancel()
	pool := s.pool()
	s.header = record.Manifest{
		Policy:     &s.policy,
		EpochID:    run.Epoch,
		Accounting: s.in.AccountingCID,
		Ledger:     s.in.LedgerCID,
		Inputs:     s.in.InputsCID,
		RunKey:     j.key,
		Root:       record.Root(nil),
		Pool:       pool,
		Residual:   pool,
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

// share computes the allocations, stages them and reads them back.
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
	h.Score = out.Score
	if !out.Score.IsZero() {
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

// stage writes the allocations of a run in the order of actors and collects the roots of their
// chunks.
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
		actors = rest
		if amount.IsZero() {
			continue
		}
		begin := len(chunk)
		chunk = record.AppendAllocation(chunk, actor, amount, scores[i])
		leaf = record.AppendLeaf(leaf[:0], s.key, paid, chunk[begin:])
		tree.Add(leaf)
		paid++
		if paid%record.ChunkRows != 0 && paid != s.header.Count {
			continue
		}
		s.roots = append(s.roots, tree.Root())
		staged = append(staged, chunk)
		size += len(chunk)
		chunk = nil
		if size < stageBytes && paid != s.header.Count {
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

// readBack reads the staged allocations and verifies order, count, sum and root against the header.
// It does not share code with stage.
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

// seal makes a run final. A run with a breach pays nothing.
func (s *sealing) seal(ctx context.Context, breach *calculus.Breach) (Run, error) {
	h, to := &s.header, Sealed
	c := change{kind: "seal_run", from: []State{Accepted}, what: "run.completed", size: len(s.roots) * rootSize}
	if breach != nil {
		s.roots = nil
		h.Reason = breach.Reason
		h.Count, h.Root = 0, record.Root(nil)
		h.Payout, h.Residual = engines.Amount{}, h.Pool
		c.what, c.why, to = "run.quarantined", breach.Reason, Quarantined
	} else if len(s.roots) == 0 {
		to = Settled
	}
	header := h.Bytes()
	return s.change(ctx, store.Work, s.job, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		run.State = to
		run.Commitment = record.Commitment(header)
		run.Actors = h.Count
		run.Transactions = uint32(len(s.roots))
		run.PoolMinor = h.Pool.String()
		run.PayoutMinor = h.Payout.String()
		run.ResidualMinor = h.Residual.String()
		run.Artifact = ArtifactOff
		if s.folder != "" {
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
