package rverify

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

func verify(t fatal, r LogReader, o Options) Report {
	t.Helper()
	rep, err := Verify(context.Background(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	if rep.OK != (rep.Problem == nil) {
		t.Fatalf("report %+v is of two minds", rep)
	}
	return rep
}

// fan runs all legs at once.
func fan(ctx context.Context, n int, leg func(context.Context, int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = leg(ctx, i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestVerifySoundLog(t *testing.T) {
	l := newLog(t, 2, 3).fill(t, 9, 2)
	genesis := l.genesis(t)
	for _, o := range []Options{{}, {Genesis: genesis}, {Genesis: genesis, Jobs: 3, Fan: fan}} {
		calls := 0
		o.Progress = func(done, total uint64) {
			if calls++; done > total || total != 10 {
				t.Errorf("progress %d of %d", done, total)
			}
		}
		rep := verify(t, l, o)
		if !rep.OK || rep.Versions != 10 || rep.Approvals != 3+9*2 || rep.AuditRecords != l.auditSeq ||
			rep.Head != l.head ||
			calls == 0 {
			t.Errorf("%+v after %d calls: %v", rep, calls, rep.Problem)
		}
	}
	if rep := verify(t, l, Options{From: 9}); !rep.OK || rep.Approvals != 4 || rep.Versions != 10 {
		t.Errorf("from 9: %+v", rep)
	}
	if rep := verify(t, l, Options{Genesis: b3.Sum(nil)}); rep.OK {
		t.Error("a foreign genesis passed")
	}
}

func (l *memLog) genesis(t testing.TB) b3.Digest {
	t.Helper()
	p, err := record.ParsePayload(l.payloads[1])
	if err != nil {
		t.Fatal(err)
	}
	return p.B3()
}

func TestVerifyEmptyLog(t *testing.T) {
	l := &memLog{}
	if rep := verify(t, l, Options{}); !rep.OK || rep.Versions != 0 {
		t.Errorf("%+v", rep)
	}
	if rep := verify(t, l, Options{Genesis: b3.Sum(nil)}); rep.OK || rep.Problem.Kind != KindIncomplete {
		t.Errorf("an empty log passed for one with a genesis: %+v", rep)
	}
	l = newLog(t, 1, 1)
	l.entries, l.payloads, l.epochs, l.head = nil, nil, nil, record.Head{}
	if rep := verify(t, l, Options{}); rep.OK {
		t.Error("a log emptied of all but its audit records passed")
	}
}

// The result does not depend on the slices. A growing log is followed from the place of the
// verifier.
func TestStepFollowsALog(t *testing.T) {
	l := newLog(t, 1, 2)
	v := New(Options{Genesis: l.genesis(t)})
	for round := range 6 {
		l.fill(t, round, 1)
		for range round * 70 {
			l.audit(t, record.Audit{Event: "propose.rejected", Decision: record.DecisionReject, Reason: "malformed"})
		}
		for steps, more := 0, true; more; steps++ {
			var err error
			if more, err = v.Step(t.Context(), l, 1+round%3); err != nil || steps > 100 {
				t.Fatalf("round %d: %v after %d steps", round, err, steps)
			}
		}
		at, whole := v.State()
		if !whole || at.Head != l.head || at.AuditSeq != l.auditSeq || at.Items.Root() != l.base.Items.Root() ||
			!v.Report().OK {
			t.Fatalf("round %d: stands at %+v, the log at %+v", round, at.Head, l.head)
		}
		if round == 3 {
			v = Resume(Options{}, at)
		}
	}
	short := l.clone()
	short.head.Version--
	if _, err := v.Step(t.Context(), short, 1); !errors.As(err, new(*Problem)) {
		t.Errorf("a HEAD that falls back passed: %v", err)
	}
	if more, err := v.Step(t.Context(), l, 1); more || !errors.As(err, new(*Problem)) {
		t.Errorf("a verifier forgot its problem: %v %v", more, err)
	}
}

func TestStepStopsWithContext(t *testing.T) {
	l := newLog(t, 1, 1).fill(t, 5, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := New(Options{})
	if _, err := v.Step(ctx, l, 3); !errors.Is(err, context.Canceled) || v.Problem() != nil {
		t.Fatalf("err = %v, problem %v", err, v.Problem())
	}
	if _, err := Verify(ctx, l, Options{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
	for more := true; more; {
		var err error
		if more, err = v.Step(t.Context(), l, 3); err != nil {
			t.Fatal(err)
		}
	}
}

// A log that breaks a rule is reported with that rule.
func TestVerifyNamesTheRule(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		want Kind
		edit func(l *memLog, p *record.Payload, approvals []record.Approval) []record.Approval
	}{
		{"too few", KindQuorum, func(_ *memLog, _ *record.Payload, a []record.Approval) []record.Approval { return a[:1] }},
		{"one over another payload", KindSignature, func(l *memLog, _ *record.Payload, a []record.Approval) []record.Approval {
			a[0].Sig = l.keys[0].Sign(b3.Sum(nil), l.now).Sig
			return a
		}},
		{"one by a stranger", KindQuorum, func(l *memLog, _ *record.Payload, a []record.Approval) []record.Approval {
			a[1].SignerID = "org:test#stranger"
			return a
		}},
		{"one valid too much is fine", "", func(l *memLog, p *record.Payload, a []record.Approval) []record.Approval {
			extra := l.keys[2].Sign(p.B3(), l.now)
			extra.ReceivedAt = a[0].ReceivedAt
			return append(a, extra)
		}},
	} {
		l := newLog(t, 2, 3)
		p, items, err := record.Complete(record.Draft{Version: 2, Put: []record.Item{item(t, 1, 1)}}.Bytes(), l.base,
			l.now)
		if err != nil {
			t.Fatal(err)
		}
		var approvals []record.Approval
		for _, k := range l.keys[:2] {
			a := k.Sign(p.B3(), l.now)
			a.ReceivedAt = record.FormatTime(l.now)
			approvals = append(approvals, a)
		}
		l.commit(t, p, "p_x", tt.edit(l, p, approvals))
		l.base.Items = items
		rep := verify(t, l, Options{})
		if got := rep.Problem; (tt.want == "") != (got == nil) || got != nil && got.Kind != tt.want {
			t.Errorf("%s: %v, want %q", tt.doc, got, tt.want)
		}
	}
}

// The audit record of version 1 is that of a genesis, the record of any other version that of a
// commit.
func TestVerifyNamesAWrongEvent(t *testing.T) {
	l := newLog(t, 1, 1)
	l.event = record.EventGenesis
	l.fill(t, 1, 1)
	if rep := verify(t, l, Options{}); rep.Problem == nil || rep.Problem.Kind != KindChain || rep.Problem.Version != 2 {
		t.Errorf("a second genesis: %v", rep.Problem)
	}
	l = newLog(t, 1, 1)
	l.event = record.EventCommit
	l.append(
		t,
		record.Draft{
			Put:       []record.Item{item(t, 1, 1)},
			Supersede: &record.Supersede{Of: l.head.Hash, Reason: record.ReasonDataError, Note: "x"},
		},
		1,
	)
	if rep := verify(t, l, Options{}); rep.Problem == nil || rep.Problem.Kind != KindChain || rep.Problem.Version != 2 {
		t.Errorf("a supersede told as a commit: %v", rep.Problem)
	}
}

// A version that supersedes another than the one before it is refused, however many signers
// approved it.
func TestVerifySupersede(t *testing.T) {
	l := newLog(t, 1, 3).fill(t, 2, 1)
	d := record.Draft{
		Put:       []record.Item{item(t, 1, 1)},
		Supersede: &record.Supersede{Of: l.head.Hash, Reason: record.ReasonDataError, Note: "x"},
	}
	sound, forged := l.clone(), l.clone()
	sound.append(t, d, 1)
	if rep := verify(t, sound, Options{}); !rep.OK || rep.Versions != 4 {
		t.Error(rep.Problem)
	}
	d.Version, d.Supersede.Of = 4, b3.Sum(nil)
	forged.base.Hash = d.Supersede.Of // its node believes it
	p, _, err := record.Complete(d.Bytes(), forged.base, l.now)
	if err != nil {
		t.Fatal(err)
	}
	a := l.keys[0].Sign(p.B3(), l.now)
	a.ReceivedAt = record.FormatTime(l.now)
	forged.commit(t, p, "p_x", []record.Approval{a})
	if rep := verify(t, forged, Options{}); rep.Problem == nil || rep.Problem.Kind != KindChain ||
		rep.Problem.Version != 4 {
		t.Errorf("a supersede of nothing: %v", rep.Problem)
	}
}

// fatal is what testing.TB and rapid.T share.
type fatal interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// A payload with a wrong signed root is reported as a fault of the tree. A commit with too few
// approvals stays bad, whatever follows.
func TestVerifyRecomputesRoots(t *testing.T) {
	l := newLog(t, 1, 1).fill(t, 2, 1)
	p, _, err := record.Complete(record.Draft{Version: 4, Put: []record.Item{item(t, 1, 1)}}.Bytes(), l.base, l.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		old, to string
		want    Kind
	}{
		{p.ItemsRoot, l.base.Items.Root(), KindTree},
		{`"items_count":3`, `"items_count":4`, KindTree},
		{`"remove":[]`, `"remove":["nobody"]`, KindTree},
		{p.SignerSetB3.String(), p.PrevHash.String(), KindChain},
		{p.PrevHash.String(), p.SignerSetB3.String(), KindChain},
	} {
		forged, err := record.ParsePayload([]byte(strings.Replace(string(p.Bytes()), tt.old, tt.to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		c := l.clone()
		a := c.keys[0].Sign(forged.B3(), c.now)
		a.ReceivedAt = record.FormatTime(c.now)
		c.commit(t, forged, "p_x", []record.Approval{a})
		rep := verify(t, c, Options{})
		if rep.OK || rep.Problem.Kind != tt.want || rep.Problem.Version != 4 ||
			!strings.Contains(rep.Problem.Error(), "version 4") {
			t.Errorf("%s -> %s: %v, want %s", tt.old, tt.to, rep.Problem, tt.want)
		}
	}
}

// faulty is a log with a file that cannot be read in one place.
type faulty struct {
	*memLog
	place string
}

var errRead = errors.New("input/output error")

func (f faulty) Head() (record.Head, error) {
	if f.place == "head" {
		return record.Head{}, errRead
	}
	return f.memLog.Head()
}

func (f faulty) Entry(v uint64) ([]byte, error) {
	if f.place == "entry" && v == 2 {
		return nil, errRead
	}
	return f.memLog.Entry(v)
}

func (f faulty) Payload(v uint64) ([]byte, error) {
	if f.place == "payload" && v == 2 {
		return nil, errRead
	}
	return f.memLog.Payload(v)
}

func (f faulty) AuditHead() (uint64, b3.Digest, error) {
	if f.place == "audit" {
		return 0, b3.Digest{}, errRead
	}
	return f.memLog.AuditHead()
}

// An unreadable row is a problem.
func TestVerifyUnreadable(t *testing.T) {
	l := newLog(t, 1, 1).fill(t, 2, 1)
	for _, place := range []string{"head", "entry", "payload", "audit"} {
		rep := verify(t, faulty{l, place}, Options{})
		if rep.OK || rep.Problem.Kind != KindIncomplete || !strings.Contains(rep.Problem.Error(), errRead.Error()) {
			t.Errorf("%s: %v", place, rep.Problem)
		}
	}
}

// The versions before the first fault are counted, in one step or in many.
func TestReportUpToTheFault(t *testing.T) {
	for _, n := range []int{1, 1000} {
		l := newLog(t, 1, 1).fill(t, 5, 1)
		l.payloads[3][len(l.payloads[3])/2] ^= 1
		v, more := New(Options{}), true
		for more {
			more, _ = v.Step(t.Context(), l, n)
		}
		rep := v.Report()
		if rep.OK || rep.Problem == nil || rep.Problem.Version != 3 || rep.Versions != 2 || rep.Head.Version != 2 ||
			rep.Approvals != 2 {
			t.Errorf("%d versions a step: %+v, %v", n, rep, rep.Problem)
		}
	}
}
