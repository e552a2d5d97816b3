package registry_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// model is the reference model of the registry.
type model struct {
	version uint64
	head    b3.Digest
	live    map[string]*modelProposal
	order   []string // every id ever given
	ended   map[string]string
}

type modelProposal struct {
	version uint64
	payload b3.Digest
	prev    b3.Digest
	signers map[string]bool
}

// settle drops proposals that lost their base.
func (m *model) settle() {
	for again := true; again; {
		again = false
		for id, p := range m.live {
			if m.stands(p) {
				continue
			}
			delete(m.live, id)
			m.ended[id] = document.StateStale
			again = true
		}
	}
}

func (m *model) stands(p *modelProposal) bool {
	if p.version == m.version+1 {
		return p.prev == m.head
	}
	for _, q := range m.live {
		if q.payload == p.prev && q.version == p.version-1 {
			return true
		}
	}
	return false
}

// For any calls in any order the version rises by one exactly when a proposal for it has its
// quorum, and no other call changes anything. The file verifies at the end.
func TestAgainstTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := registrytest.New(t).Start()
		defer r.Stop()
		n := rapid.IntRange(1, 4).Draw(rt, "signers")
		s := newSigners(n, rapid.IntRange(1, n).Draw(rt, "threshold"))
		g := r.Genesis(s)
		m := &model{version: 1, head: g.PayloadB3, live: map[string]*modelProposal{}, ended: map[string]string{}}
		d := driver{rt: rt, r: r, s: s, m: m}
		for i := range rapid.IntRange(1, 30).Draw(rt, "ops") {
			switch rapid.SampledFrom([]string{"propose", "stack", "approve", "approve", "commit", "commit",
				"withdraw"}).
				Draw(rt, "op") {
			case "propose":
				d.propose(i, m.version+1, m.head)
			case "stack":
				if p := d.pickLive(); p != nil {
					d.propose(i, p.version+1, p.payload)
				}
			case "approve":
				d.approve()
			case "commit":
				d.commit()
			case "withdraw":
				d.withdraw()
			}
			d.compare()
		}
		if rep := r.VerifyFile(); !rep.OK || rep.Versions != m.version {
			rt.Fatalf("the log does not verify: %+v", rep)
		}
	})
}

type driver struct {
	rt *rapid.T
	r  *registrytest.Rig
	s  registrytest.Signers
	m  *model
}

func (d *driver) pick() string {
	if len(d.m.order) == 0 {
		return ""
	}
	return rapid.SampledFrom(d.m.order).Draw(d.rt, "id")
}

func (d *driver) pickLive() *modelProposal { return d.m.live[d.pick()] }

func (d *driver) propose(i int, version uint64, prev b3.Digest) {
	got, err := d.r.Engine.Propose(d.r.Ctx(), alice, deltaOn(version, fmt.Sprintf("item%d", i), prev), "", "")
	if version > d.m.version+8 {
		if !errors.Is(err, record.ErrVersionSkew) {
			d.rt.Fatalf("propose version %d on %d: %v", version, d.m.version, err)
		}
		return
	}
	if err != nil {
		d.rt.Fatalf("propose version %d on %d: %v", version, d.m.version, err)
	}
	d.m.live[got.ID] = &modelProposal{version: version, payload: got.PayloadB3, prev: prev, signers: map[string]bool{}}
	d.m.order = append(d.m.order, got.ID)
}

func (d *driver) approve() {
	id := d.pick()
	if id == "" {
		return
	}
	key := rapid.SampledFrom(d.s.Keys).Draw(d.rt, "key")
	p := d.m.live[id]
	payload := b3.Digest{}
	if p != nil {
		payload = p.payload
	}
	_, err := d.r.Engine.Approve(d.r.Ctx(), alice, id, key.Sign(payload, d.r.Now()), "")
	var dup *document.DuplicateApprovalError
	switch {
	case p == nil && !errors.Is(err, document.ErrConflict), p != nil && p.signers[key.SignerID] && !errors.As(err, &dup),
		p != nil && !p.signers[key.SignerID] && err != nil:
		d.rt.Fatalf("approve: %v", err)
	case p != nil:
		p.signers[key.SignerID] = true
	}
}

func (d *driver) commit() {
	id := d.pick()
	if id == "" {
		return
	}
	got, err := d.r.Engine.Commit(d.r.Ctx(), alice, id, "")
	p := d.m.live[id]
	switch {
	case p == nil && d.m.ended[id] == document.StateCommitted:
		if err != nil || !got.Replayed {
			d.rt.Fatalf("repeat of a commit: %+v, %v", got, err)
		}
	case p == nil:
		if !errors.Is(err, document.ErrConflict) {
			d.rt.Fatalf("commit of an ended one: %v", err)
		}
	case p.version != d.m.version+1:
		if !errors.Is(err, record.ErrVersionSkew) {
			d.rt.Fatalf("commit out of order: %v", err)
		}
	case len(p.signers) < d.s.Threshold:
		if !errors.Is(err, record.ErrQuorum) {
			d.rt.Fatalf("commit with %d of %d: %v", len(p.signers), d.s.Threshold, err)
		}
	default:
		if err != nil || got.Version != d.m.version+1 || got.PayloadB3 != p.payload {
			d.rt.Fatalf("commit with a quorum: %+v, %v", got, err)
		}
		delete(d.m.live, id)
		d.m.ended[id] = document.StateCommitted
		d.m.version, d.m.head = p.version, p.payload
		d.m.settle()
	}
}

func (d *driver) withdraw() {
	id := d.pick()
	if id == "" {
		return
	}
	err := d.r.Engine.Withdraw(d.r.Ctx(), alice, id, "")
	if (err == nil) != (d.m.live[id] != nil) {
		d.rt.Fatalf("withdraw: %v", err)
	}
	if err == nil {
		delete(d.m.live, id)
		d.m.ended[id] = document.StateWithdrawn
		d.m.settle()
	}
}

func (d *driver) compare() {
	head := d.r.Engine.Head().Head
	if head.Version != d.m.version || head.PayloadB3 != d.m.head {
		d.rt.Fatalf("HEAD is %+v, the model says version %d, %s", head, d.m.version, d.m.head)
	}
	st := d.r.Engine.Pub().State.Load()
	if len(st.Live) != len(d.m.live) || st.Sums.Count != len(d.m.live) {
		d.rt.Fatalf("%d live, %d counted, the model says %d", len(st.Live), st.Sums.Count, len(d.m.live))
	}
	for id, p := range d.m.live {
		if got := st.Live[mustID(id)]; got == nil || len(got.Approvals) != len(p.signers) {
			d.rt.Fatalf("%s: %+v, the model says %+v", id, got, p)
		}
	}
}

// headOp is an operation of the linearizability check: a read of HEAD, or a commit that returned a
// version.
type headOp struct {
	read    bool
	version uint64 // seen or given
}

var headModel = porcupine.Model{
	Init: func() any { return uint64(1) },
	Step: func(state, _, output any) (bool, any) {
		head, op := state.(uint64), output.(headOp)
		if op.read {
			return op.version == head, head
		}
		return op.version == head+1, op.version
	},
	Equal: func(a, b any) bool { return a == b },
}

// Concurrent clients that propose, approve, commit and read see one history: a commit takes effect
// once, between its call and its answer, and no read is older than an answer before it.
func TestHeadIsLinearizable(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	var mu sync.Mutex
	var history []porcupine.Operation
	begun := time.Now()
	log := func(client int, call time.Duration, op headOp) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{
			ClientId: client, Call: int64(call), Output: op, Return: int64(time.Since(begun)),
		})
	}
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			who := engines.Actor{CapID: fmt.Sprint(client)}
			rng := rand.New(rand.NewPCG(1, uint64(client)))
			for i := range 60 {
				call := time.Since(begun)
				if rng.IntN(2) == 0 {
					log(client, call, headOp{read: true, version: r.Engine.Head().Head.Version})
					continue
				}
				head := r.Engine.Head().Head
				p, err := r.Engine.Propose(r.Ctx(), who,
					deltaOn(head.Version+1, fmt.Sprintf("c%di%d", client, i), head.PayloadB3), "", "")
				if err != nil {
					continue // HEAD moved
				}
				_, _ = r.Engine.Approve(r.Ctx(), who, p.ID, s.Keys[0].Sign(p.PayloadB3, r.Now()), "")
				call = time.Since(begun)
				if c, err := r.Engine.Commit(r.Ctx(), who, p.ID, ""); err == nil && !c.Replayed {
					log(client, call, headOp{version: c.Version})
				}
			}
		})
	}
	wg.Wait()
	if r.Engine.Head().Head.Version < 10 {
		t.Fatalf("only %d versions: nothing was tried", r.Engine.Head().Head.Version)
	}
	if !porcupine.CheckOperations(headModel, history) {
		t.Error("the history is not linearizable")
	}
	if rep := r.VerifyFile(); !rep.OK {
		t.Errorf("the log does not verify: %+v", rep)
	}
}

// The stored HEAD changes only with a batch that has a commit.
func TestOnlyCommitsMoveHead(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	head := func() (h record.Head) {
		if err := r.Store.View(r.Ctx(),
			func(rd store.Reader) error { h, _ = tables.MetaHead.Get(rd, tables.KeyHead); return nil }); err != nil {
			t.Fatal(err)
		}
		return h
	}
	before := head()
	stack := r.Stack(3)
	r.Approve(stack[0], s.Keys...)
	_, _ = r.Engine.Commit(r.Ctx(), alice, stack[1].ID, "")
	_ = r.Engine.Withdraw(r.Ctx(), alice, stack[2].ID, "")
	if after := head(); after != before {
		t.Errorf("head moved from %+v to %+v without a commit", before, after)
	}
	c := r.Commit(stack[0])
	if after := head(); after.Version != before.Version+1 || after.Hash != c.Hash {
		t.Errorf("head = %+v after %+v", after, c)
	}
}
