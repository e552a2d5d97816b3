package registry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/registry"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// objector is a witness that can refuse each checkpoint: with 422, or with 409 and the size of
// another log.
type objector struct {
	*witness
	refusal atomic.Pointer[http.HandlerFunc] // nil: it answers as a sound one
}

func newObjector(t *testing.T, name string) *objector {
	o := &objector{witness: newWitness(t, name)}
	o.Config.Handler = http.HandlerFunc(func(out http.ResponseWriter, q *http.Request) {
		if refuse := o.refusal.Load(); refuse != nil {
			(*refuse)(out, q)
			return
		}
		o.answer(out, q)
	})
	return o
}

func (o *objector) refuse(answer http.HandlerFunc) { o.refusal.Store(&answer) }

func unprocessable(out http.ResponseWriter, _ *http.Request) {
	out.WriteHeader(http.StatusUnprocessableEntity)
}

func conflictOf(size int) http.HandlerFunc {
	return func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/x.tlog.size")
		out.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(out, fmt.Sprintf("%d\n", size))
	}
}

// forkOf refuses as a sound witness that has seen another log of that size.
func forkOf(size int) http.HandlerFunc {
	return func(out http.ResponseWriter, q *http.Request) {
		if _, old, _, _ := readAdd(q); old != int64(size) {
			conflictOf(size)(out, q)
			return
		}
		unprocessable(out, q)
	}
}

// policyOf returns a policy of both witnesses, of which threshold must cosign.
func policyOf(threshold string, a, b *objector) string {
	line := func(w *objector) string { return strings.Split(w.policy(), "\n")[1][len("witness w "):] }
	return "witness a " + line(a) + "\nwitness b " + line(b) + "\ngroup g " + threshold + " a b\nquorum g\n"
}

// Witnesses that have seen another log trip the fork guard if the signed policy needs them. It
// stays tripped over a restart until an operator adopts the log. Then the same refusal does not
// trip it again, and one of a longer log does.
func TestWitnessesTripTheGuard(t *testing.T) {
	t.Parallel()
	for doc, refuse := range map[string]http.HandlerFunc{
		"422": unprocessable, "409 with a larger size": conflictOf(1000),
		"a fork, whose size it tells later": forkOf(1),
	} {
		t.Run(doc, func(t *testing.T) {
			a, b := newObjector(t, "a.example"), newObjector(t, "b.example")
			r, s := witnessedRig(t, policyOf("any", a, b))
			cover(r)
			cosigned(r, a.witness)
			a.refuse(refuse)
			b.refuse(refuse)
			commitDeltas(r, s, 1)
			cover(r)
			r.WaitFor("the guard", func() bool { return r.Engine.Seal().Tripped() != nil })
			wantGuard(r, seal.RollbackWitness)
			r.Stop()
			r.Open()
			r.Start()
			wantGuard(r, seal.RollbackWitness)
			seen, err := r.Engine.HighWater(r.Ctx())
			if err != nil || !seen.Rollback || seen.Reason != seal.RollbackWitness || len(seen.Objections) != 2 ||
				seen.Objections[0].Settled {
				t.Errorf("shown: %+v, %v", seen, err)
			}
			if rep := r.Board.Report(tables.Service, "write"); rep.Ready || rep.WriteReady {
				t.Errorf("the write plane: %+v", rep)
			}
			if rep := r.Board.Report(tables.Service, "read"); !rep.Ready || !rep.ReadReady ||
				!rep.Services[tables.Service].Ready {
				t.Errorf("the read plane: %+v", rep)
			}
			r.WaitFor("the other services to be ready", func() bool { return r.Board.Report("", "").Ready })
			if rep := r.Board.Report("", ""); !rep.Ready || !rep.WriteReady {
				t.Errorf("the other services: %+v", rep)
			}
			if err := r.Engine.Adopt(r.Ctx(), alice, ""); err != nil {
				t.Fatal(err)
			}
			commitNext(r, s, 3)
			cover(r)
			refusals := func() float64 { return r.Metric("registry_witness_total", "result", "objected") }
			r.WaitFor("another refusal", func() bool { return refusals() >= 2 })
			commitNext(r, s, 4)
			if err := r.Engine.Seal().Tripped().Err(); err != nil || r.Metric("registry_witness_objections") != 0 {
				t.Errorf("after the adoption: %v", err)
			}
			a.refuse(conflictOf(2000))
			b.refuse(conflictOf(2000))
			_, _ = r.Engine.CheckpointNow(r.Ctx()) // a round under way may trip the guard before it
			r.WaitFor("the guard of a longer log", func() bool { return r.Engine.Seal().Tripped() != nil })
		})
	}
}

// One objector of two is an alert and a soft key, and writes go on. It ends when the witness
// cosigns, or when the log is adopted.
func TestOneWitnessObjects(t *testing.T) {
	t.Parallel()
	a, b := newObjector(t, "a.example"), newObjector(t, "b.example")
	a.refuse(unprocessable)
	r, s := witnessedRig(t, policyOf("any", a, b))
	missing := func() bool { return r.Board.Report(tables.Service, "").Causes["registry.witnesses"] != "" }
	cover(r)
	r.WaitFor("the objection", missing)
	cosigned(r, b.witness)
	r.WaitFor("the pipeline to be ready",
		func() bool { return r.Board.Report(tables.Service, "").Causes["registry.commit_ready"] == "" })
	rep := r.Board.Report("", "")
	if !slices.Contains(rep.Missing, "registry.witnesses") {
		t.Errorf("one objector is no soft key: %v", rep.Missing)
	}
	if !rep.Ready || !rep.WriteReady || !rep.Services[tables.Service].WriteReady {
		t.Errorf("one objector stops writes: %+v", rep)
	}
	if why := r.Engine.Seal().Tripped(); why != nil {
		t.Errorf("one objector trips the guard: %v", why.Err())
	}
	if n := r.Metric("registry_witness_objections"); n != 1 {
		t.Errorf("registry_witness_objections = %v", n)
	}
	commitDeltas(r, s, 1)
	if err := r.Engine.Adopt(r.Ctx(), alice, ""); err != nil || missing() {
		t.Errorf("adopt: %v, %v", err, missing())
	}
	if err := r.Engine.Adopt(r.Ctx(), alice, ""); !errors.Is(err, document.ErrConflict) {
		t.Errorf("adopt again: %v", err)
	}
	a.refusal.Store(nil)
	commitNext(r, s, 3)
	cover(r)
	r.WaitFor("the end of the objection", func() bool { return len(r.Engine.Seal().Objections().Rows) == 0 })
	r.Stop()
	if rep := verifiedFile(t, r.Path, r.Engine.Head().GenesisB3); !rep.OK {
		t.Error(rep.Problem)
	}
}

// Settling an objection while the guard is not tripped does not touch checkpoint and mark, so that
// a concurrent checkpointor does not find the mark missing.
func TestSettleKeepsTheMark(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 2)
	latest := cover(r)
	add := tables.NoteObjection{
		Add: &tables.Objection{Witness: "a.example+01020304", Tree: 3}, Policy: "quorum none\n",
	}
	if _, err := store.Commit(r.Ctx(), r.Store, store.Work, add); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Open()
	r.Start()
	if len(r.Engine.Seal().Objections().Open()) != 1 || r.Engine.Seal().Tripped() != nil {
		t.Fatalf("the objection: %+v, %v", r.Engine.Seal().Objections(), r.Engine.Seal().Tripped().Err())
	}
	if err := r.Engine.Adopt(r.Ctx(), alice, ""); err != nil {
		t.Fatal(err)
	}
	kept, _, err := views.RowOf(r.Ctx(), r.Engine.Reader, tables.MetaRaw, tables.KeyCheckpoint)
	if err != nil || kept == nil || r.Engine.Pub().Latest.Load().Size != latest.Size {
		t.Errorf("the latest checkpoint after it: %q, %v", kept, err)
	}
	if adopted, known, err := views.RowOf(r.Ctx(), r.Engine.Reader, tables.MetaAdopted, tables.KeyAdopted); known ||
		err != nil {
		t.Errorf("adopted in %q, %v", adopted, err)
	}
	if open := r.Engine.Seal().Objections().Open(); len(open) != 0 {
		t.Errorf("open objections: %+v", open)
	}
	r.Stop()
	if rep := verifiedFile(t, r.Path, r.Engine.Head().GenesisB3); !rep.OK {
		t.Error(rep.Problem)
	}
}

// A witness that has a newer checkpoint of this very log does not object to an older one.
func TestWitnessAheadOfTheCheckpoint(t *testing.T) {
	t.Parallel()
	w := newObjector(t, "w.example")
	r, s := newLogRig(t, func(c *registry.Config) { c.Witness.Timeout = unit.Duration(30 * time.Second) })
	s.Policy = w.policy()
	r.Genesis(s)
	old := cover(r)
	commitDeltas(r, s, 4)
	all, err := checkpoint.ParsePolicy(s.Policy)
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]error{3: seal.ErrBehind, 5: seal.ErrBehind, 6: &tables.Objection{}} {
		w.refuse(conflictOf(size))
		_, err := r.Engine.Seal().Ask(r.Ctx(), all[0], old, 0)
		_, objected := errors.AsType[*tables.Objection](err)
		if _, object := want.(*tables.Objection); objected != object || !object && !errors.Is(err, want) {
			t.Errorf("a log of %d versions: %v, want %v", size, err, want)
		}
	}
}

// The latest checkpoint is shown to the witnesses within witness.interval, though it is not
// archived, and is archived with their lines.
func TestLatestCheckpointIsShown(t *testing.T) {
	t.Parallel()
	w := newWitness(t, "w.example")
	r, s := witnessedRig(t, w.policy(), func(c *registry.Config) { c.Witness.Interval = unit.Duration(1e9) })
	cover(r)
	cosigned(r, w)
	commitDeltas(r, s, 2)
	r.WaitFor("the latest checkpoint to be cosigned", func() bool { return strings.Contains(w.asked(), " of 3") })
	r.WaitFor("its archival", func() bool {
		notes, err := r.Engine.ArchivedCheckpoints(r.Ctx(), 0, 1)
		return err == nil && len(notes) == 1 && strings.Contains(string(notes[0]), "\n3\n") &&
			strings.Contains(string(notes[0]), "— w.example ")
	})
	r.Stop()
	if rep := verifiedFile(t, r.Path, r.Engine.Head().GenesisB3); !rep.OK {
		t.Error(rep.Problem)
	}
}

// A catch-up from a copy without newer versions does not change the guard.
func TestCatchUpWithNothingNewer(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 3)
	same := snapshot(r)
	r.Stop()
	c := restored(r, false)
	accept(c)
	_, err := c.Engine.CatchUpFrom(c.Ctx(), alice, same.Path, "")
	if !errors.Is(err, document.ErrSource) || !strings.Contains(err.Error(), "nothing newer there") ||
		c.Engine.Seal().Tripped() == nil {
		t.Errorf("catch-up from the same log: %v", err)
	}
}

// A witness policy without a readable quorum is not proposed. In a log that has one, all witnesses
// are needed.
func TestPolicyWithoutQuorum(t *testing.T) {
	t.Parallel()
	a, b := newObjector(t, "a.example"), newObjector(t, "b.example")
	whole := policyOf("any", a, b)
	cut, _, _ := strings.Cut(whole, "quorum")
	r, s := newLogRig(t)
	s.Policy = cut
	raw, approvals := r.GenesisPayload(s)
	var field *record.FieldError
	if _, err := r.Engine.Genesis(r.Ctx(), alice, raw, approvals, ""); !errors.As(err, &field) ||
		field.Field != "signer_set.witness_policy" {
		t.Errorf("genesis: %v", err)
	}
	s.Policy = ""
	r.Genesis(s)
	set := s.Set()
	set.Epoch, set.WitnessPolicy = 2, cut
	draft := record.Draft{Version: 2, SignerSet: set}.Bytes()
	if _, err := r.Engine.Propose(r.Ctx(), alice, draft, "", ""); !errors.As(err, &field) ||
		!strings.Contains(field.Reason, "no quorum line") {
		t.Errorf("propose: %v", err)
	}
	set.WitnessPolicy = whole
	if _, err := r.Engine.Propose(r.Ctx(), alice, record.Draft{Version: 2, SignerSet: set}.Bytes(), "", ""); err != nil {
		t.Errorf("propose a whole policy: %v", err)
	}
	one := &tables.Objections{Rows: []tables.Objection{{Witness: "a.example+01020304", Size: 9, Tree: 5}}}
	for doc, want := range map[string]bool{cut: false, whole: true, whole + "quorum g\n": false} {
		if got := tables.Reachable(doc, one); got != want {
			t.Errorf("one objects under %q: reachable %t", doc, got)
		}
	}
	if !tables.Reachable(cut, one.Settled(9)) {
		t.Error("no objection is open, and the policy cannot be met")
	}
}
