package seal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

const (
	// witnessCallers is the number of witnesses asked at the same time.
	witnessCallers = 4
	// maxWitnessAnswer bounds the answer of a witness, in bytes. A cosignature has about 150.
	maxWitnessAnswer = 64 << 10
	// MaxWitnessTimeout bounds witness.timeout.
	MaxWitnessTimeout = 30 * time.Second
)

// Results of asking a witness, the values of registry_witness_total.
const (
	witnessCosigned    = "cosigned"
	witnessRefused     = "refused"  // it refused, or its answer is invalid
	witnessObjected    = "objected" // it has seen another log under this name
	witnessUnreachable = "unreachable"
)

// newWitnessClient returns the client of all witnesses. The signers name the witnesses; plain http
// is allowed to this host only.
func newWitnessClient(c *flow.Catalog, m *obs.Metrics) *upstream.Client {
	return upstream.New(c, m, upstream.Spec{
		Service: tables.Service,
		Svc:     "witness",
		Op:      "add_checkpoint",
		Timeout: MaxWitnessTimeout,
		Tries:   1,
		Guard: upstream.Guard{
			Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		},
		Delay: func(int) time.Duration { return 0 },
	})
}

// runWitness shows checkpoints to the witnesses until ctx ends: an archived one at once, and the
// latest one within witness.interval. While the fork guard is tripped it shows none. It is a task
// of its own, so that a slow witness delays no checkpoint and no drain.
func (sl *Sealer) runWitness(ctx context.Context) error {
	var shown uint64  // size of the last checkpoint shown
	var complete bool // every witness has answered it
	for ctx.Err() == nil {
		signed, newer := sl.archived.Load()
		if last := sl.deps.Published.Latest.Load(); signed == nil || last != nil && last.Size > signed.Size {
			signed = last
		}
		if signed != nil && !sl.cfg.Copy && sl.deps.Keeper.Rule().Witness &&
			sl.guard.Load() == nil && !sl.deps.Store.Info().Restored &&
			(signed.Size != shown || !complete) {
			var err error
			if complete, err = sl.cosign(ctx, signed, min(shown, signed.Size)); err != nil && ctx.Err() == nil {
				sl.deps.Log.Warn("checkpoint.refused", "version", signed.Size, "reason", err.Error())
			}
			shown = signed.Size
		}
		pause := time.NewTimer(sl.deps.Keeper.Rule().WitnessInterval)
		select {
		case <-ctx.Done():
		case <-newer:
		case <-pause.C:
		}
		pause.Stop()
	}
	return context.Cause(ctx)
}

// cosign asks the witnesses of the signer set in force, to which a log of shown versions was shown
// before, and stores their cosignatures. It reports whether every witness has answered.
func (sl *Sealer) cosign(ctx context.Context, s *checkpoint.Signed, shown uint64) (complete bool, err error) {
	text := sl.head().Signers.WitnessPolicy
	all, err := checkpoint.ParsePolicy(text)
	if err != nil {
		return true, err
	}
	sl.dropStrangers(ctx, all)
	lines, faults := make([]string, len(all)), make([]error, len(all))
	err = flow.Fan(ctx, min(witnessCallers, len(all)), func(ctx context.Context, leg int) error {
		for i := leg; i < len(all) && ctx.Err() == nil; i += witnessCallers {
			if all[i].URL != "" {
				lines[i], faults[i] = sl.tryWitness(ctx, all[i], s, shown)
			}
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return false, err
	}
	for i, w := range all { // before the objections: a witness that agrees again may save the quorum
		if lines[i] != "" {
			sl.agree(ctx, w.ID())
		}
	}
	complete = true
	for i := range all {
		if o, objected := errors.AsType[*tables.Objection](faults[i]); objected {
			sl.object(ctx, text, *o)
		}
		complete = complete && (faults[i] == nil || witnessSaidNo(faults[i]))
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	if len(lines) == 0 {
		return complete, nil
	}
	add := tables.AddCosignatures{Size: s.Size, Text: s.Text(), Lines: lines, Note: s.Note}
	if _, err = store.Commit(ctx, sl.deps.Store, store.Work, add, sl.publishCosigned); err != nil {
		return false, fmt.Errorf("keep cosignatures: %w", err)
	}
	return complete, nil
}

// publishCosigned publishes the latest checkpoint with new lines. It runs in the committer, after
// the checkpoint was published.
func (sl *Sealer) publishCosigned(note []byte) {
	if last := sl.deps.Published.Latest.Load(); note != nil && last != nil {
		next := *last
		next.Note = note
		sl.deps.Published.Latest.Store(&next)
	}
}

// tryWitness asks one witness, and counts and logs the result. line is "" without a cosignature.
func (sl *Sealer) tryWitness(ctx context.Context, w checkpoint.PolicyWitness, s *checkpoint.Signed,
	shown uint64) (line string, err error) {
	line, err = sl.Ask(ctx, w, s, shown)
	result := witnessUnreachable
	_, objected := errors.AsType[*tables.Objection](err)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil:
		sl.m.witnessed[witnessCosigned](1)
		sl.deps.Log.Info("checkpoint.cosigned", "version", s.Size, "witness", w.Name())
		return line, nil
	case errors.Is(err, ErrBehind):
		return "", err
	case objected:
		result = witnessObjected
	case witnessSaidNo(err):
		result = witnessRefused
	}
	sl.m.witnessed[result](1)
	sl.deps.Log.Warn("checkpoint.refused", "version", s.Size, "witness", w.Name(), "result", result, "reason",
		err.Error())
	return "", err
}

// witnessSaidNo reports whether err is a refusal or an invalid answer, rather than a witness that
// cannot be reached or fails.
func witnessSaidNo(err error) bool {
	status, answered := errors.AsType[*upstream.StatusError](err)
	_, objected := errors.AsType[*tables.Objection](err)
	if objected || answered && status.Status < http.StatusInternalServerError {
		return true
	}
	return errors.Is(err, checkpoint.ErrWitness) || errors.Is(err, upstream.ErrTooLarge) ||
		errors.Is(err, upstream.ErrURL) || errors.Is(err, upstream.ErrRedirect) || errors.Is(err, upstream.ErrAddress)
}

// ErrBehind is returned when a witness has a newer checkpoint of this log than the one it was
// shown.
var ErrBehind = errors.New("the witness has a newer checkpoint of this log")

// Ask sends a checkpoint to a witness with a proof from the size that the witness has, and once
// more if it reports another size. It returns ErrBehind, or a *tables.Objection if the witness has
// seen another log: one that is longer than the current tree, one with another root at the size of
// s, or one that the consistency proof does not extend.
func (sl *Sealer) Ask(ctx context.Context, w checkpoint.PolicyWitness, s *checkpoint.Signed,
	has uint64) (line string, err error) {
	told := false // the witness has reported has
	for range 2 {
		ask, err := sl.addCheckpoint(ctx, s, has)
		if err != nil {
			return "", err
		}
		conflict, was := false, has
		err = sl.witness.Get(ctx, upstream.Request{
			URL: strings.TrimSuffix(w.URL, "/") + "/add-checkpoint", Post: ask,
			Also: http.StatusConflict, Max: maxWitnessAnswer, Timeout: sl.deps.Keeper.Rule().WitnessTimeout,
		}, func(a *upstream.Answer) error {
			raw, err := io.ReadAll(a.Body)
			if err != nil {
				return err
			}
			if a.Status != http.StatusConflict {
				line, err = w.Cosignature(s.Tree, raw, sl.deps.Keeper.Wall())
				return err
			}
			conflict = true
			has, err = strconv.ParseUint(strings.TrimSuffix(string(raw), "\n"), 10, 53)
			if err != nil || a.MediaType() != "text/x.tlog.size" {
				return fmt.Errorf("%w: it has a log of %.20q versions", checkpoint.ErrWitness, raw)
			}
			return nil
		})
		if status, answered := errors.AsType[*upstream.StatusError](err); answered &&
			status.Status == http.StatusUnprocessableEntity {
			return "", sl.objects(w, s, told, has)
		}
		if line != "" || err != nil {
			return line, err
		}
		if head := sl.head().Head.Version; has > head {
			return "", sl.objects(w, s, true, has)
		}
		switch told = conflict; {
		case has > s.Size:
			return "", ErrBehind
		case has == was && has == s.Size:
			return "", sl.objects(w, s, true, has) // another root for the same size
		}
	}
	return "", fmt.Errorf("%w: it has another size each time", checkpoint.ErrWitness)
}

// objects returns the objection of a witness that has a log of size versions, if it has reported
// the size.
func (sl *Sealer) objects(w checkpoint.PolicyWitness, s *checkpoint.Signed, told bool, size uint64) error {
	o := &tables.Objection{Witness: w.ID(), Tree: s.Size, AtMS: sl.deps.Keeper.Now().UnixMilli()}
	if told {
		o.Size, o.Tree = size, max(s.Size, min(size, sl.head().Head.Version))
	}
	return o
}

// addCheckpoint returns the body of a request for a cosignature.
func (sl *Sealer) addCheckpoint(ctx context.Context, s *checkpoint.Signed, from uint64) ([]byte, error) {
	body := fmt.Appendf(nil, "old %d\n", from)
	err := sl.deps.Reader.WithTree(ctx, func(t logtree.Reader) error {
		proof, err := t.Consistency(from, s.Size)
		for _, h := range proof {
			body = append(body, h.String()+"\n"...)
		}
		return err
	})
	return append(append(body, '\n'), s.Note...), err
}
