package registry

import (
	"bytes"
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
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/upstream"
	"ronbox/store"
)

const (
	// witnessCallers is how many witnesses are asked at the same time.
	witnessCallers = 4
	// maxWitnessAnswer bounds an answer of a witness, bytes: a cosignature is some 150.
	maxWitnessAnswer = 64 << 10
	// maxWitnessTimeout bounds witness.timeout.
	maxWitnessTimeout = 30 * time.Second
)

// What came of asking a witness, as registry_witness_total has it.
const (
	witnessCosigned    = "cosigned"
	witnessRefused     = "refused" // it said no, or what it said does not hold
	witnessUnreachable = "unreachable"
)

// AddCosignatures adds lines of witnesses to an archived checkpoint.
type AddCosignatures struct {
	Size  uint64   `cbor:"1,keyasint"`
	Text  string   `cbor:"2,keyasint"` // what they have cosigned
	Lines []string `cbor:"3,keyasint"`
}

// Kind names the command in journals.
func (AddCosignatures) Kind() string { return "registry.add_cosignatures/1" }

// Apply answers the note if it is the latest checkpoint too, else nil. It refuses a checkpoint that is not kept, or is another one.
func (c AddCosignatures) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (latest []byte, err error) {
	was, _ := checkpoints.Get(r, c.Size)
	if !bytes.HasPrefix(was, []byte(c.Text+"\n")) {
		return nil, &GuardError{Op: -1, Guard: "checkpoint"}
	}
	note := was
	for _, line := range c.Lines {
		note = checkpoint.AddLine(note, line)
	}
	checkpoints.Put(w, c.Size, note)
	if last, _ := metaRaw.Get(r, keyCheckpoint); !bytes.Equal(last, was) {
		return nil, nil
	}
	metaRaw.Put(w, keyCheckpoint, note)
	return note, nil
}

// newWitnessClient makes the client that asks all witnesses. The signers say which; http leads to this host only.
func newWitnessClient(c *flow.Catalog, m *obs.Metrics) *upstream.Client {
	return upstream.New(c, m, upstream.Spec{
		Service: service, Svc: "witness", Op: "add_checkpoint", Timeout: maxWitnessTimeout, Tries: 1,
		Guard: upstream.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
		Delay: func(int) time.Duration { return 0 },
	})
}

// askWitnesses shows each archived checkpoint to the witnesses, the last one when several came meanwhile, until ctx ends.
func (e *Engine) askWitnesses(ctx context.Context) {
	var shown uint64 // size of the checkpoint that they were shown last
	for ctx.Err() == nil {
		signed, newer := e.archived.Load()
		if signed != nil && e.live().Witness.Enabled {
			if err := e.cosign(ctx, signed, min(shown, signed.Size)); err != nil && ctx.Err() == nil {
				e.log.Warn("checkpoint.refused", "version", signed.Size, "reason", err.Error())
			}
			shown = signed.Size
		}
		select {
		case <-ctx.Done():
		case <-newer:
		}
	}
}

// cosign asks the witnesses of the signer set in force, who should have a log of shown versions, and keeps what they have cosigned.
func (e *Engine) cosign(ctx context.Context, s *checkpoint.Signed, shown uint64) error {
	all, err := checkpoint.ParsePolicy(e.Head().Signers.WitnessPolicy)
	if err != nil {
		return err
	}
	lines := make([]string, len(all))
	err = flow.Fan(ctx, min(witnessCallers, len(all)), func(ctx context.Context, leg int) error {
		for i := leg; i < len(all) && ctx.Err() == nil; i += witnessCallers {
			if all[i].URL != "" {
				lines[i] = e.tryWitness(ctx, all[i], s, shown)
			}
		}
		return context.Cause(ctx)
	})
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	if err != nil || len(lines) == 0 {
		return err
	}
	if _, err = store.Commit(ctx, e.store, store.Work, AddCosignatures{Size: s.Size, Text: s.Text(), Lines: lines}, e.publishCosigned); err != nil {
		return fmt.Errorf("keep cosignatures: %w", err)
	}
	return nil
}

// publishCosigned lets readers see the latest checkpoint with new lines. It runs in the committer, behind the publishing of that checkpoint.
func (e *Engine) publishCosigned(note []byte) {
	if last := e.latest.Load(); note != nil && last != nil {
		next := *last
		next.Note = note
		e.latest.Store(&next)
	}
}

// tryWitness asks one witness, and tells what came of it; line is "" without a cosignature.
func (e *Engine) tryWitness(ctx context.Context, w checkpoint.PolicyWitness, s *checkpoint.Signed, shown uint64) (line string) {
	line, err := e.askWitness(ctx, w, s, shown)
	switch result := witnessUnreachable; {
	case ctx.Err() != nil:
	case err == nil:
		e.m.witnessed[witnessCosigned](1)
		e.log.Info("checkpoint.cosigned", "version", s.Size, "witness", w.Name())
		return line
	default:
		if witnessSaidNo(err) {
			result = witnessRefused
		}
		e.m.witnessed[result](1)
		e.log.Warn("checkpoint.refused", "version", s.Size, "witness", w.Name(), "result", result, "reason", err.Error())
	}
	return ""
}

// witnessSaidNo tells an answer that is no cosignature, or a witness that may not be asked, from one that cannot be reached or is ill.
func witnessSaidNo(err error) bool {
	status, answered := errors.AsType[*upstream.StatusError](err)
	return answered && status.Status < http.StatusInternalServerError || errors.Is(err, checkpoint.ErrWitness) || errors.Is(err, upstream.ErrTooLarge) ||
		errors.Is(err, upstream.ErrURL) || errors.Is(err, upstream.ErrRedirect) || errors.Is(err, upstream.ErrAddress)
}

// askWitness sends the checkpoint with a proof from the size that the witness has, and once more if it has another.
func (e *Engine) askWitness(ctx context.Context, w checkpoint.PolicyWitness, s *checkpoint.Signed, has uint64) (line string, err error) {
	for range 2 {
		ask, err := e.addCheckpoint(ctx, s, has)
		if err != nil {
			return "", err
		}
		err = e.witness.Get(ctx, upstream.Request{
			URL: strings.TrimSuffix(w.URL, "/") + "/add-checkpoint", Post: ask, Also: http.StatusConflict, Max: maxWitnessAnswer, Timeout: e.live().Witness.Timeout.D(),
		}, func(a *upstream.Answer) error {
			raw, err := io.ReadAll(a.Body)
			if err != nil {
				return err
			}
			if a.Status != http.StatusConflict {
				line, err = w.Cosignature(s.Tree, raw, e.now())
				return err
			}
			has, err = strconv.ParseUint(strings.TrimSuffix(string(raw), "\n"), 10, 53)
			if err != nil || a.MediaType() != "text/x.tlog.size" || has > s.Size {
				return fmt.Errorf("%w: it has a log of %.20q versions", checkpoint.ErrWitness, raw)
			}
			return nil
		})
		if line != "" || err != nil {
			return line, err
		}
	}
	return "", fmt.Errorf("%w: it has another size each time", checkpoint.ErrWitness)
}

// addCheckpoint is the body of a request for a cosignature.
func (e *Engine) addCheckpoint(ctx context.Context, s *checkpoint.Signed, from uint64) ([]byte, error) {
	body := fmt.Appendf(nil, "old %d\n", from)
	err := e.withTree(ctx, func(t logtree.Reader) error {
		proof, err := t.Consistency(from, s.Size)
		for _, h := range proof {
			body = append(body, h.String()+"\n"...)
		}
		return err
	})
	return append(append(body, '\n'), s.Note...), err
}
