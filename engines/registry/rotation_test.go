package registry_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// chart is the reference model of governance: HEAD of the log, the signers in force, and the
// drafts.
type chart struct {
	version uint64
	head    b3.Digest
	hash    b3.Digest // of HEAD's entry
	set     *electorate
	live    map[string]*ballot
	order   []string
}

type member struct {
	status       string
	since, grace uint64
}

type electorate struct {
	members map[string]member
	m, gov  int
}

type ballot struct {
	version       uint64
	payload, prev b3.Digest
	kind          string
	brings        *electorate // nil for no change
	after         *electorate // in force after it
	signed        map[string]bool
}

func (e *electorate) clone() *electorate {
	return &electorate{members: maps.Clone(e.members), m: e.m, gov: e.gov}
}

func (e *electorate) active() (n int) {
	for _, m := range e.members {
		if m.status == record.StatusActive {
			n++
		}
	}
	return n
}

// follows reports whether version may put e in the place of old.
func (e *electorate) follows(old *electorate, version uint64) bool {
	for id, was := range old.members {
		is, there := e.members[id]
		rank := map[string]int{record.StatusActive: 0, record.StatusRetired: 1, record.StatusRevoked: 2}
		if !there || is.since != was.since || rank[is.status] < rank[was.status] ||
			was.status == record.StatusRetired && is.grace > was.grace {
			return false
		}
		if was.status == record.StatusActive && is.grace > version+8 {
			return false
		}
	}
	return 1 <= e.m && e.m <= e.gov && e.gov <= e.active()
}

// counts reports whether a signature of id on b helps it, under the signers in force or those that
// it brings.
func (c *chart) counts(b *ballot, id string) (old, fresh bool) {
	is, known := c.set.members[id]
	old = known && (is.status == record.StatusActive || is.status == record.StatusRetired && b.version <= is.grace)
	if b.brings != nil {
		then := b.brings.members[id].status
		old = old && then != record.StatusRevoked
		fresh = then == record.StatusActive
	}
	return old, fresh
}

// carries reports whether b has the votes.
func (c *chart) carries(b *ballot) bool {
	inForce, fresh := 0, 0
	for id := range b.signed {
		old, next := c.counts(b, id)
		if old {
			inForce++
		}
		if next {
			fresh++
		}
	}
	need := c.set.m
	if b.kind != record.KindUpdate {
		need = c.set.gov
	}
	if inForce < need || b.brings != nil && fresh < b.brings.gov {
		return false
	}
	if b.brings != nil {
		for id := range b.brings.members {
			if _, known := c.set.members[id]; !known && !b.signed[id] {
				return false
			}
		}
	}
	return true
}

// takes returns the answer to a signature on b.
func (c *chart) takes(b *ballot, id string) error {
	is, known := c.set.members[id]
	admitted := false
	if b.brings != nil {
		then, named := b.brings.members[id]
		admitted = named
		if named && (then.status == record.StatusRevoked || !known && then.status == record.StatusRetired) {
			return record.ErrRevokedKey
		}
	}
	switch {
	case !known && !admitted:
		return record.ErrInvalidSig
	case known && is.status != record.StatusActive:
		return record.ErrRevokedKey
	case b.signed[id]:
		return &document.DuplicateApprovalError{}
	}
	return nil
}

// passed makes b the newest version. Drafts without a base are void.
func (c *chart) passed(id string, hash b3.Digest) {
	b := c.live[id]
	c.version, c.head, c.hash, c.set = b.version, b.payload, hash, b.after
	delete(c.live, id)
	for again := true; again; {
		again = false
		for id, b := range c.live {
			stands := b.version == c.version+1 && b.prev == c.head
			for _, below := range c.live {
				stands = stands || below.payload == b.prev && below.version == b.version-1
			}
			if !stands {
				delete(c.live, id)
				again = true
			}
		}
	}
}

// council drives a registry, its model and a verifier in parallel.
type council struct {
	rt   *rapid.T
	r    *registrytest.Rig
	pool map[string]*record.Key
	ids  []string // that may turn up, sorted
	c    *chart
	at   rverify.State
	n    int // drafts so far
}

func newCouncil(t *testing.T, rt *rapid.T, most, spare int) *council {
	r := registrytest.New(t)
	r.Stop()
	r.Memory = &store.AmnesiaConfig{MaxBytes: 64 << 20, PurgeIntervalMS: 30_000}
	r.Config.Proposals.MaxPerCap = r.Config.Proposals.MaxPending // more than any draw proposes
	r.Open()
	r.Start()
	n := rapid.IntRange(1, most).Draw(rt, "signers")
	all := newSigners(n+spare, 1)
	g := &council{rt: rt, r: r, pool: map[string]*record.Key{}}
	set := &electorate{members: map[string]member{}}
	for i, k := range all.Keys {
		if g.pool[k.SignerID], g.ids = k, append(g.ids, k.SignerID); i < n {
			set.members[k.SignerID] = member{status: record.StatusActive, since: 1}
		}
	}
	slices.Sort(g.ids)
	set.gov = rapid.IntRange(1, n).Draw(rt, "gov")
	set.m = rapid.IntRange(1, set.gov).Draw(rt, "m")
	p, _, err := record.Complete(record.Draft{Version: 1, Full: true, SignerSet: g.signers(set, 1)}.Bytes(),
		record.Base{Origin: registrytest.Origin}, r.Now())
	if err != nil {
		rt.Fatal(err)
	}
	done, err := r.Engine.Genesis(r.Ctx(), alice, p.Bytes(), registrytest.Signers{Keys: all.Keys[:n]}.Sign(p.B3(), r.Now()), "")
	if err != nil {
		rt.Fatal(err)
	}
	g.c = &chart{version: 1, head: done.PayloadB3, hash: done.Hash, set: set, live: map[string]*ballot{}}
	g.follow()
	return g
}

// signers is an electorate as the log has it.
func (g *council) signers(e *electorate, epoch uint64) *record.SignerSet {
	out := &record.SignerSet{Epoch: epoch, Threshold: e.m, ThresholdGov: e.gov}
	for _, id := range slices.Sorted(maps.Keys(e.members)) {
		s := g.pool[id].Signer(e.members[id].since)
		s.Status, s.GraceUntilVersion = e.members[id].status, e.members[id].grace
		out.Signers = append(out.Signers, s)
	}
	return out
}

// propose proposes a version of a kind on HEAD or on a draft.
func (g *council) propose(kind string) {
	base := &ballot{version: g.c.version, payload: g.c.head, after: g.c.set}
	if below := g.pick(); below != nil && rapid.IntRange(0, 3).Draw(g.rt, "stacked") > 0 {
		base = below
	}
	g.n++
	b := &ballot{
		version: base.version + 1, prev: base.payload, kind: kind, after: base.after,
		signed: map[string]bool{},
	}
	d, sound := record.Draft{Version: b.version}, b.version <= g.c.version+8
	switch kind {
	case record.KindSigners:
		b.brings = g.reshuffle(base.after, b.version)
		b.after = b.brings
		d.SignerSet = g.signers(b.brings, g.epoch(base)+1)
		sound = sound && b.brings.follows(base.after, b.version)
	case record.KindSupersede:
		d.Supersede = &record.Supersede{Of: g.c.hash, Reason: record.ReasonDataError, Note: fmt.Sprint("try ", g.n)}
		sound = sound && b.version == g.c.version+1
		fallthrough
	default:
		it, err := record.ParseItem([]byte(registrytest.Item(fmt.Sprint("item", g.n))))
		if err != nil {
			g.rt.Fatal(err)
		}
		d.Put = []record.Item{it}
	}
	draft := fmt.Appendf(nil, `{"prev_hash":%q,%s`, b.prev, d.Bytes()[1:])
	got, err := g.r.Engine.Propose(g.r.Ctx(), alice, draft, "", "")
	if (err == nil) != sound {
		g.rt.Fatalf("propose %s: %v, the model says %v", draft, err, sound)
	}
	if err == nil && !got.Replayed {
		b.payload = got.PayloadB3
		g.c.live[got.ID], g.c.order = b, append(g.c.order, got.ID)
	}
}

// epoch is that of the signers in force after b.
func (g *council) epoch(b *ballot) (n uint64) {
	for ; b != nil; b = g.below(b) {
		if b.brings != nil {
			n++
		}
	}
	return n + g.r.Engine.Head().Head.Epoch
}

func (g *council) below(b *ballot) *ballot {
	for _, other := range g.c.live {
		if other.payload == b.prev {
			return other
		}
	}
	return nil
}

// reshuffle draws a change of signers, sound or not.
func (g *council) reshuffle(old *electorate, version uint64) *electorate {
	next := old.clone()
	for range rapid.IntRange(0, 2).Draw(g.rt, "changes") {
		id := rapid.SampledFrom(g.ids).Draw(g.rt, "who")
		m, known := next.members[id]
		switch what := rapid.IntRange(0, 19).Draw(g.rt, "what"); {
		case !known:
			m = member{status: record.StatusActive, since: version}
		case what == 0: // never allowed, but for one who came in this very change
			delete(next.members, id)
			continue
		case what == 1:
			m.status, m.grace = record.StatusActive, 0
		case what < 12:
			m.status, m.grace = record.StatusRetired,
				rapid.SampledFrom([]uint64{0, version, version + 1, version + 8, version + 8, version + 9}).
					Draw(g.rt, "grace")
		default:
			m.status, m.grace = record.StatusRevoked, 0
		}
		next.members[id] = m
	}
	for id, m := range next.members {
		if _, known := old.members[id]; !known && m.status != record.StatusActive {
			delete(next.members, id) // is another rule, with a test of its own
		}
	}
	if rapid.IntRange(0, 4).Draw(g.rt, "thresholds") == 0 {
		next.gov = rapid.IntRange(0, next.active()+1).Draw(g.rt, "gov")
		next.m = rapid.IntRange(0, next.gov+1).Draw(g.rt, "m")
	} else {
		next.gov = min(next.gov, next.active())
		next.m = min(next.m, next.gov)
	}
	return next
}

// id draws a draft, "" for none.
func (g *council) id() string {
	var live []string
	for _, id := range g.c.order {
		if g.c.live[id] != nil {
			live = append(live, id)
		}
	}
	if len(live) == 0 {
		return ""
	}
	return rapid.SampledFrom(live).Draw(g.rt, "id")
}

func (g *council) pick() *ballot { return g.c.live[g.id()] }

// vote lets some signers sign a draft; one in ten signs something else.
func (g *council) vote() {
	id := g.id()
	b := g.c.live[id]
	if b == nil {
		return
	}
	will := rapid.SampledFrom([]int{3, 6, 9, 9}).Draw(g.rt, "will")
	for _, who := range g.ids {
		switch draw := rapid.IntRange(0, 9).Draw(g.rt, who); {
		case draw == 0:
			if _, err := g.r.Engine.Approve(g.r.Ctx(), alice, id, g.pool[who].Sign(digest("another"), g.r.Now()),
				""); !errors.Is(err, record.ErrInvalidSig) {
				g.rt.Fatalf("a signature of another payload: %v", err)
			}
		case draw <= will:
			_, err := g.r.Engine.Approve(g.r.Ctx(), alice, id, g.pool[who].Sign(b.payload, g.r.Now()), "")
			want := g.c.takes(b, who)
			var twice *document.DuplicateApprovalError
			if want == nil != (err == nil) || errors.As(want, &twice) != errors.As(err, &twice) ||
				want != nil && twice == nil && !errors.Is(err, want) {
				g.rt.Fatalf("%s approves %+v: %v, the model says %v", who, b, err, want)
			}
			if err == nil {
				b.signed[who] = true
			}
		}
	}
}

// commit commits each draft on HEAD. It becomes a version iff the model says so, and the verifier
// agrees.
func (g *council) commit() {
	for _, id := range g.c.order {
		if b := g.c.live[id]; b != nil && b.prev == g.c.head {
			g.commitOne(id, b)
		}
	}
}

func (g *council) commitOne(id string, b *ballot) {
	signed := g.r.Engine.Pub().State.Load().Live[mustID(id)]
	var counted []record.Approval
	for _, a := range signed.Approvals {
		if old, fresh := g.c.counts(b, a.SignerID); old || fresh {
			counted = append(counted, a)
		}
	}
	carries := g.c.carries(b)
	if !carries && len(counted) > 0 {
		g.refused(signed, counted)
	} else if len(counted) < len(signed.Approvals) {
		g.refused(signed, signed.Approvals)
	}
	done, err := g.r.Engine.Commit(g.r.Ctx(), alice, id, "")
	switch {
	case !carries && !errors.Is(err, record.ErrQuorum) && !errors.Is(err, record.ErrRevokedKey), carries && err != nil:
		g.rt.Fatalf("commit of %+v: %v, the model says %v", b, err, carries)
	case carries:
		if g.c.passed(id, done.Hash); done.Version != g.c.version {
			g.rt.Fatalf("%+v, the model is at version %d", done, g.c.version)
		}
		g.follow()
		if n := len(g.r.Engine.Pub().State.Load().Live); n != len(g.c.live) {
			g.rt.Fatalf("%d live, the model says %d", n, len(g.c.live))
		}
	}
}

// follow lets the verifier continue to HEAD.
func (g *council) follow() {
	v := rverify.Resume(rverify.Options{}, g.at)
	err := g.r.Store.View(g.r.Ctx(), func(rd store.Reader) error {
		for more := true; more; {
			var err error
			if more, err = v.Step(g.r.Ctx(), tables.Log{R: rd, Codec: g.r.Engine.Codec}, 8); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		g.rt.Fatal(err)
	}
	g.at, _ = v.State()
}

// forged is a log with one additional version that has unchecked approvals.
type forged struct {
	rverify.LogReader
	head           record.Head
	entry, payload []byte
}

func (f forged) Head() (record.Head, error)           { return f.head, nil }
func (f forged) Followed() bool                       { return false }
func (f forged) Horizon() (*rverify.Horizon, error)   { return nil, nil }
func (f forged) Entry(uint64) ([]byte, error)         { return f.entry, nil }
func (f forged) Payload(v uint64) (b []byte, e error) { return f.payload, nil }

// refused demands that the verifier refuses a version with those approvals.
func (g *council) refused(p *tables.Proposal, approvals []record.Approval) {
	approvals = slices.Clone(approvals)
	slices.SortFunc(approvals, func(a, b record.Approval) int { return strings.Compare(a.SignerID, b.SignerID) })
	audit := g.r.Engine.Pub().State.Load().Audit
	entry, err := record.NewArtifact(record.Artifact{
		Origin:       registrytest.Origin,
		Version:      p.Row.Version,
		Kind:         p.Payload.Kind,
		PayloadB3:    p.Row.PayloadB3,
		PayloadBytes: p.Row.Bytes,
		PrevHash:     g.at.Head.Hash,
		Approvals:    approvals,
		AuthorizedBy: g.at.Signers.B3(),
		AuditSeq:     audit.Seq,
		AuditHead:    audit.B3,
		ProposalID:   tables.IDText(p.ID),
		CommittedAt:  record.FormatTime(g.r.Now()),
	})
	if err != nil {
		g.rt.Fatal(err)
	}
	v := rverify.Resume(rverify.Options{}, g.at)
	_, err = v.Step(g.r.Ctx(),
		forged{head: record.Head{Version: p.Row.Version}, entry: entry.Bytes(), payload: p.Payload.Bytes()}, 1)
	if problem := v.Problem(); problem == nil || problem.Kind != rverify.KindQuorum {
		g.rt.Fatalf("the verifier takes a version that nobody authorized: %v", err)
	}
}

// For any sequence of proposals, signatures, rotations, revocations and supersedes the registry
// commits exactly the versions that the model allows, and the verifier accepts exactly these.
// -rapid.checks 1000 is the measure.
func TestRotationHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		g := newCouncil(t, rt, 6, 6)
		defer g.r.Stop()
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				g.propose(record.KindUpdate)
			case 1, 2:
				g.propose(record.KindSigners)
			case 3:
				g.propose(record.KindSupersede)
			case 4:
				g.commit()
			default:
				g.vote()
			}
		}
		if rep := g.r.VerifyFile(); !rep.OK || rep.Versions != g.c.version {
			rt.Fatalf("the log does not verify: %+v", rep)
		}
	})
}

// Of up to 32 signers, M make a version, whatever else is sent. -rapid.checks 10000 is the measure.
func TestQuorumHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		g := newCouncil(t, rt, 32, 2)
		defer g.r.Stop()
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			g.propose(rapid.SampledFrom([]string{record.KindUpdate, record.KindSupersede}).Draw(rt, "kind"))
			g.vote()
			g.commit()
		}
	})
}
