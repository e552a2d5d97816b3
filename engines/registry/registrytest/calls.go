package registrytest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// ID returns the n-th id of a proposal.
func ID(n int) ulid.ULID { return ulid.ULID{15: byte(n)} }

// Digest returns the digest of a text.
func Digest(s string) b3.Digest { return b3.Sum([]byte(s)) }

// IsCause reports whether err is a *document.NotReadyError with a cause.
func IsCause(err error, cause string) bool {
	var e *document.NotReadyError
	return errors.As(err, &e) && e.Cause == cause
}

// Plant is a command that stores outcomes of proposals.
type Plant struct{ Rows map[ulid.ULID]tables.DoneRow }

// Kind returns the stable name of the command.
func (Plant) Kind() string { return "registry.plant/1" }

// Apply stores the outcomes.
func (c Plant) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for _, id := range slices.SortedFunc(maps.Keys(c.Rows), ulid.ULID.Compare) {
		tables.DoneOutcome.Put(w, id, c.Rows[id])
	}
	return struct{}{}, nil
}

// Stack proposes versions 2..n+1, each on the one before.
func (r *Rig) Stack(n int) []document.Proposed {
	r.T.Helper()
	out := []document.Proposed{r.Propose(2, "s2")}
	for v := uint64(3); len(out) < n; v++ {
		p, err := r.Engine.Propose(r.Ctx(), Alice, DeltaOn(v, fmt.Sprintf("s%d", v), out[len(out)-1].PayloadB3), "", "")
		if err != nil {
			r.T.Fatalf("stack version %d: %v", v, err)
		}
		out = append(out, p)
	}
	return out
}

// StateOf returns the state of a proposal.
func (r *Rig) StateOf(p document.Proposed) string {
	r.T.Helper()
	got, err := r.Engine.Proposal(r.Ctx(), p.ID)
	if err != nil {
		r.T.Fatalf("proposal %s: %v", p.ID, err)
	}
	return got.State
}

// MustID parses the id of a proposal.
func MustID(s string) (id ulid.ULID) {
	id, err := tables.ParseID(s)
	if err != nil {
		panic(err)
	}
	return id
}

// VerifyFile verifies the log in the file.
func (r *Rig) VerifyFile() rverify.Report {
	return r.VerifyWith(func(rd store.Reader) store.Reader { return rd })
}

// VerifyWith verifies the log as a changed reader has it.
func (r *Rig) VerifyWith(wrap func(store.Reader) store.Reader) rverify.Report {
	r.T.Helper()
	var rep rverify.Report
	err := r.Store.View(r.Ctx(), func(rd store.Reader) (err error) {
		log := tables.Log{R: wrap(rd), Codec: r.Engine.Codec}
		rep, err = rverify.Verify(r.Ctx(), log, rverify.Options{Genesis: r.Engine.Head().GenesisB3})
		return err
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return rep
}
