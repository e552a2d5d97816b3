package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNode is a registry with one signer in memory. fail may return an error for a step, before or
// after it.
type fakeNode struct {
	t     *testing.T
	base  record.Base
	raw   []byte // payload of HEAD
	props map[string]*record.Payload
	done  map[string]registryapi.Committed
	calls map[string]int
	fail  func(step string, n int) (before, after error)
	claim func(c *registryapi.Committed) // changes what Commit answers
	skew  uint64                         // added to the version that Head names
}

func newFakeNode(t *testing.T, k *record.Key) *fakeNode {
	t.Helper()
	set := &record.SignerSet{Epoch: 1, Threshold: 1, ThresholdGov: 1, Signers: []record.Signer{k.Signer(1)}}
	genesis := record.Draft{Version: 1, Full: true, SignerSet: set}
	p, items, err := record.Complete(genesis.Bytes(), record.Base{Origin: "test.example"}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeNode{
		t: t, props: map[string]*record.Payload{}, done: map[string]registryapi.Committed{},
		calls: map[string]int{},
	}
	f.fail = func(string, int) (error, error) { return nil, nil }
	f.claim = func(*registryapi.Committed) {}
	f.become(p, items, set)
	return f
}

func (f *fakeNode) become(p *record.Payload, items record.Items, set *record.SignerSet) {
	f.base = record.Base{Origin: p.Origin, Version: p.Version, PayloadB3: p.B3(), Items: items, Signers: set}
	f.raw = p.Bytes()
}

// step runs one call between its injected faults.
func (f *fakeNode) step(name string, do func() error) error {
	f.calls[name]++
	before, after := f.fail(name, f.calls[name])
	if before != nil {
		return before
	}
	if err := do(); err != nil {
		return err
	}
	return after
}

func (f *fakeNode) Head(context.Context) (h registryapi.Head, err error) {
	err = f.step("head", func() error {
		h = registryapi.Head{Version: f.base.Version + f.skew, PayloadB3: f.base.PayloadB3, Hash: f.base.PayloadB3}
		return nil
	})
	return h, err
}

func (f *fakeNode) Version(_ context.Context, v uint64, items bool) (doc registryapi.Version, err error) {
	err = f.step("version", func() error {
		if v != f.base.Version+f.skew {
			return &wire.Problem{Status: 404, Reason: "not_found"}
		}
		doc = registryapi.Version{Version: v, PayloadB3: f.base.PayloadB3}
		if items {
			for it := range f.base.Items.All() {
				doc.Items = append(doc.Items, jsontext.Value(it.Bytes))
			}
		}
		return nil
	})
	return doc, err
}

func (f *fakeNode) Payload(context.Context, uint64) ([]byte, error) { return f.raw, nil }

func (f *fakeNode) Signers(context.Context, uint64) (registryapi.Signers, error) {
	return registryapi.Signers{SignerSet: f.base.Signers.Bytes()}, nil
}

func (f *fakeNode) Propose(_ context.Context, payload []byte, want string) (out registryapi.Proposed, err error) {
	err = f.step("propose", func() error {
		p, err := record.ParsePayload(payload)
		if err != nil || p.B3().String() != want || !bytes.Equal(p.Bytes(), payload) {
			f.t.Errorf("proposed %q as %s: %v", payload, want, err)
		}
		if _, err := p.Check(f.base); err != nil {
			return &wire.Problem{Status: 409, Reason: "chain_mismatch"}
		}
		out.ID = want
		f.props[want] = p
		return nil
	})
	return out, err
}

func (f *fakeNode) Approve(_ context.Context, id string, a registryapi.Approval) (out registryapi.Approved, err error) {
	return out, f.step("approve", func() error {
		signer, _ := f.base.Signers.Find(a.SignerID)
		return record.VerifyApproval(record.Approval(a), signer, f.props[id].B3())
	})
}

func (f *fakeNode) Commit(_ context.Context, id string) (out registryapi.Committed, replayed bool, err error) {
	err = f.step("commit", func() error {
		if out, replayed = f.done[id]; replayed {
			return nil
		}
		p := f.props[id]
		items, err := p.Check(f.base)
		if err != nil {
			return &wire.Problem{Status: 409, Reason: "conflict", Details: map[string]any{"state": "stale"}}
		}
		f.become(p, items, f.base.Signers)
		out = registryapi.Committed{Version: p.Version, PayloadB3: p.B3()}
		f.claim(&out)
		f.done[id] = out
		return nil
	})
	return out, replayed, err
}

// other commits a version of another client.
func (f *fakeNode) other() {
	change := record.Draft{
		Version: f.base.Version + 1,
		Put:     mustItems(f.t, fmt.Sprintf(`{"id":"other/%d","kind":"node","meta":{}}`, f.base.Version)),
	}
	p, items, err := record.Complete(change.Bytes(), f.base, time.Unix(0, 0))
	if err != nil {
		f.t.Fatal(err)
	}
	f.become(p, items, f.base.Signers)
}

func mustItems(t *testing.T, lines ...string) (out []record.Item) {
	t.Helper()
	for _, l := range lines {
		it, err := record.ParseItem([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, it)
	}
	return out
}

func newTestKey(t *testing.T, seed byte) *record.Key {
	t.Helper()
	k, err := record.NewKey("org:test#k"+string('a'+rune(seed)), bytes.NewReader(bytes.Repeat([]byte{seed}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// impatient repeats at once and prints nothing.
func impatient() cli.Repeater {
	return cli.Repeater{
		Sleep:    func(context.Context, time.Duration) error { return nil },
		Retrying: func(string, ...any) {},
	}
}

func newApplier(f *fakeNode, keys ...*record.Key) *applier {
	var held []signerKey
	for _, k := range keys {
		held = append(held, signerKey{k, filepath.Join(f.t.TempDir(), "a.key")})
	}
	return &applier{
		Repeater: impatient(), node: f, keys: held, now: time.Now, show: func(record.Base, []record.Item, []string) {},
	}
}

func wanted(t *testing.T, lines ...string) record.Items {
	t.Helper()
	all, err := record.NewItems(mustItems(t, lines...))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const itemA, itemB = `{"id":"a","kind":"node","meta":{}}`, `{"id":"b","kind":"node","meta":{}}`

// The applier reaches the state with exactly one version of its own, even if answers are lost or
// HEAD moves.
func TestApplyReachesTheState(t *testing.T) {
	busy := &wire.Problem{Status: 429, Reason: "busy", Retryable: true, RetryAfter: 1}
	lost := fmt.Errorf("x: %w", client.ErrUnknown)
	gone := fmt.Errorf("x: %w", client.ErrNotReachable)
	identical := &wire.Problem{Status: 409, Reason: "duplicate_approval", Details: map[string]any{"identical": true}}
	at := func(f *fakeNode, want string, n int, before, after error) {
		f.fail = func(step string, i int) (error, error) {
			if step == want && i == n {
				return before, after
			}
			return nil, nil
		}
	}
	for _, tt := range []struct {
		doc string
		set func(f *fakeNode)
	}{
		{"nothing goes wrong", func(*fakeNode) {}},
		{"the queue is full", func(f *fakeNode) { at(f, "propose", 1, busy, nil) }},
		{"the answer to the proposal is lost", func(f *fakeNode) { at(f, "propose", 1, nil, lost) }},
		{"the answer to the approval is lost", func(f *fakeNode) { at(f, "approve", 1, nil, lost) }},
		{"the approval was there", func(f *fakeNode) { at(f, "approve", 1, nil, identical) }},
		{"the answer to the commit is lost", func(f *fakeNode) { at(f, "commit", 1, nil, lost) }},
		{"the commit itself is lost", func(f *fakeNode) { at(f, "commit", 1, lost, nil) }},
		{"the node restarts", func(f *fakeNode) { at(f, "commit", 1, gone, nil) }},
		{"the version stands, its answer never comes", func(f *fakeNode) {
			f.fail = func(step string, _ int) (error, error) {
				if step == "commit" {
					return nil, lost
				}
				return nil, nil
			}
		}},
		{"another version comes before the proposal", func(f *fakeNode) {
			f.fail = func(step string, n int) (error, error) {
				if step == "propose" && n == 1 {
					f.other()
				}
				return nil, nil
			}
		}},
		{"another version comes before the commit", func(f *fakeNode) {
			f.fail = func(step string, n int) (error, error) {
				if step == "commit" && n == 1 {
					f.other()
				}
				return nil, nil
			}
		}},
	} {
		k := newTestKey(t, 1)
		f := newFakeNode(t, k)
		tt.set(f)
		want := wanted(t, itemA, itemB)
		done, err := newApplier(f, k).apply(t.Context(), want)
		if err != nil || !done.Changed || done.Version != f.base.Version || f.base.Items.Root() != want.Root() {
			t.Errorf("%s: %+v, %v; HEAD is %d with %d items", tt.doc, done, err, f.base.Version, f.base.Items.Len())
		}
		f.fail = func(string, int) (error, error) { return nil, nil }
		again, err := newApplier(f, k).apply(t.Context(), want)
		if err != nil || again.Changed || again.Version != done.Version {
			t.Errorf("%s: once more gave %+v, %v", tt.doc, again, err)
		}
	}
}

func TestApplyGivesUp(t *testing.T) {
	stranger := newTestKey(t, 2)
	always := func(want string, err error) func(*fakeNode) {
		return func(f *fakeNode) {
			f.fail = func(step string, _ int) (error, error) {
				if step == want {
					return err, nil
				}
				return nil, nil
			}
		}
	}
	for _, tt := range []struct {
		doc   string
		keys  []*record.Key
		set   func(f *fakeNode)
		code  int
		calls map[string]int
	}{
		{"no node", nil, always("head", fmt.Errorf("x: %w", client.ErrNotReachable)), cli.ExitUnreachable, map[string]int{"head": 1}},
		{"always busy", nil, always("propose", &wire.Problem{Status: 429, Retryable: true}), cli.ExitBusy, map[string]int{"propose": cli.MaxTries}},
		{"restored, not accepted", nil, always("propose", &wire.Problem{Status: 503, Retryable: true, Details: map[string]any{"cause": "restored"}}), cli.ExitBusy, map[string]int{"propose": 1}},
		{"refused", nil, always("approve", &wire.Problem{Status: 422, Reason: "clock_skew"}), cli.ExitFailed, map[string]int{"approve": 1, "commit": 0}},
		{"not allowed", nil, always("propose", &wire.Problem{Status: 403}), cli.ExitDenied, map[string]int{"propose": 1}},
		{"HEAD moves for ever", nil, func(f *fakeNode) {
			f.fail = func(step string, _ int) (error, error) {
				if step == "propose" {
					f.other()
				}
				return nil, nil
			}
		}, cli.ExitBusy, map[string]int{"propose": maxMoved}},
		{"a key of nobody", []*record.Key{stranger}, func(*fakeNode) {}, cli.ExitDenied, map[string]int{"propose": 0}},
		{"too few keys", []*record.Key{}, func(*fakeNode) {}, cli.ExitDenied, map[string]int{"propose": 0}},
		{"a node that shows other items than were signed", nil, func(f *fakeNode) {
			f.base.Items = wanted(t, itemB)
		}, cli.ExitBad, map[string]int{"propose": 0}},
		{"a node that names another payload", nil, func(f *fakeNode) { f.base.PayloadB3[0] ^= 1 }, cli.ExitBad, map[string]int{"propose": 0}},
		{"a node that shows other signers", []*record.Key{stranger}, func(f *fakeNode) {
			f.base.Signers = &record.SignerSet{Epoch: 1, Threshold: 1, ThresholdGov: 1, Signers: []record.Signer{stranger.Signer(1)}}
		}, cli.ExitBad, map[string]int{"propose": 0}},
	} {
		k := newTestKey(t, 1)
		f := newFakeNode(t, k)
		tt.set(f)
		keys := tt.keys
		if keys == nil {
			keys = []*record.Key{k}
		}
		_, err := newApplier(f, keys...).apply(t.Context(), wanted(t, itemA))
		if err == nil || cli.Classify(err).Code != tt.code {
			t.Errorf("%s: err = %v, exit %d, want %d", tt.doc, err, cli.Classify(err).Code, tt.code)
		}
		for step, n := range tt.calls {
			if f.calls[step] != n {
				t.Errorf("%s: %d calls of %s, want %d", tt.doc, f.calls[step], step, n)
			}
		}
	}
}

func TestDeltaThatDoesNotFit(t *testing.T) {
	k := newTestKey(t, 1)
	f := newFakeNode(t, k)
	var lines []string
	for i := range 60 {
		lines = append(lines,
			fmt.Sprintf(`{"id":"n/%d","kind":"node","meta":{"t":"%s"}}`, i, strings.Repeat("x", 30_000)))
	}
	_, err := newApplier(f, k).apply(t.Context(), wanted(t, lines...))
	fail, ok := errors.AsType[*cli.Failure](err)
	if !ok || fail.Reason != "delta_too_large" || fail.Details["steps"] != 2 ||
		!strings.Contains(fail.Next, "2 steps") {
		t.Errorf("err = %v (%+v)", err, fail)
	}
	if _, err := newApplier(f, k).apply(t.Context(), wanted(t, lines[:34]...)); err != nil {
		t.Errorf("a delta that just fits: %v", err)
	}
}

// A node that contradicts itself is reported as inconsistent, not as a refusal.
func TestApplyDistrusts(t *testing.T) {
	for _, tt := range []struct {
		doc string
		lie func(f *fakeNode)
	}{
		{"another version was committed", func(f *fakeNode) { f.claim = func(c *registryapi.Committed) { c.Version++ } }},
		{"another payload was committed", func(f *fakeNode) { f.claim = func(c *registryapi.Committed) { c.PayloadB3[0] ^= 1 } }},
		{"HEAD is older than its number", func(f *fakeNode) { f.skew = 3 }},
		{"HEAD falls back", func(f *fakeNode) {
			old, raw := f.base, f.raw
			f.fail = func(step string, n int) (error, error) {
				if step == "head" && n == 2 {
					f.base, f.raw = old, raw
				}
				return nil, nil
			}
		}},
	} {
		k := newTestKey(t, 1)
		f := newFakeNode(t, k)
		tt.lie(f)
		ap := newApplier(f, k)
		_, err := ap.apply(t.Context(), wanted(t, itemA))
		if err == nil {
			_, err = ap.apply(t.Context(), wanted(t, itemB))
		}
		if err == nil || cli.Classify(err).Code != cli.ExitBad || cli.Classify(err).Reason != "node_inconsistent" {
			t.Errorf("%s: err = %v", tt.doc, err)
		}
	}
}

func TestDesiredStates(t *testing.T) {
	const a, b = itemA, `{ "meta":{}, "kind":"node", "id":"b" }`
	for _, tt := range []struct{ doc, in, want string }{
		{"two and an empty line", a + "\n\n" + b + "\n", ""},
		{"no line end", a, ""},
		{"nothing", "", ""},
		{"a line that is no descriptor", a + "\n{", "f:2: "},
		{"an id twice", a + "\n" + b + "\n" + a + "\n", "f:3: a is in line 1 already"},
		{"an endless line", a + "\n\n" + strings.Repeat(" ", maxDesired+1), "f:3: the line is longer"},
	} {
		_, err := parseDesired("f", strings.NewReader(tt.in))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}

// A key that has signed another payload for the version signs this one only if it is forced.
func TestApplySignsOnePayloadOfAVersion(t *testing.T) {
	k := newTestKey(t, 1)
	f := newFakeNode(t, k)
	ap := newApplier(f, k)
	before, _, err := complete(f.base, record.Draft{Version: f.base.Version + 1, Put: mustItems(t, itemB)}, time.Now())
	if err == nil {
		err = ap.keys[0].noteSigning(before, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = ap.apply(t.Context(), wanted(t, itemA))
	if got := cli.Classify(err); err == nil || got.Code != registryapi.ExitDuplicate || got.Reason != "signed_before" {
		t.Errorf("a second payload: %v, %+v", err, got)
	}
	ap.force = true
	if _, err := ap.apply(t.Context(), wanted(t, itemA)); err != nil {
		t.Errorf("forced: %v", err)
	}
}

func TestExpiryTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"": "", "720h": "2026-03-31T12:00:00.000Z", "2027-01-01T00:00:00Z": "2027-01-01T00:00:00.000Z", "2027-01-01T02:00:00+02:00": "2027-01-01T00:00:00.000Z",
	} {
		if got, err := expiryTime(in, now); err != nil || got != want {
			t.Errorf("%q = %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"soon", "-1h", "0s", "2020-01-01T00:00:00Z", "2027-01-01"} {
		if got, err := expiryTime(in, now); err == nil {
			t.Errorf("%q = %q", in, got)
		}
	}
}
