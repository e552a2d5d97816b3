package rewarder_test

import (
	"errors"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
)

// Parts come in order, each once. The sealed input does not depend on how the rows were cut into
// parts.
func TestParts(t *testing.T) {
	r := newRig(t)
	body := many(1300)
	whole := r.seal(inputOf("e", 1000), body)
	in := inputOf("e", 1000)
	in.Expect = whole.AccountingCID
	up, err := r.e.OpenInput(r.ctx(), alice, in)
	if err != nil || up.Parts != 0 {
		t.Fatal(up, err)
	}
	lines := strings.SplitAfter(string(body), "\n")
	part := func(n uint32, from, to int) error {
		_, err := r.e.PutPart(r.ctx(), alice, up.ID, n, false, []byte(strings.Join(lines[from:to], "")))
		return err
	}
	for _, err := range []error{part(0, 0, 1), part(0, 0, 1), part(1, 1, 700), part(2, 700, 1000)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if c, ok := asA[*rewarder.ConflictError](part(2, 700, 1001)); !ok || c.What != "part" {
		t.Errorf("another part 2: %v", c)
	}
	if p, ok := asA[*rewarder.ConflictError](part(4, 1000, 1300)); !ok || p.What != "next part" || p.Has != "3" {
		t.Errorf("part 4 before 3: %v", p)
	}
	if f, ok := asA[*rewarder.FieldError](part(3, 999, 1300)); !ok || f.Field != "line 1.actor" {
		t.Errorf("a part that repeats a row: %v", f)
	}
	if f, ok := asA[*rewarder.FieldError](part(3, 0, 0)); !ok || f.Field != "part" {
		t.Errorf("an empty part: %v", f)
	}
	if f, ok := asA[*rewarder.FieldError](func() error { _, err := r.e.SealInput(r.ctx(), alice, up.ID); return err }()); !ok ||
		f.Field != "accounting_cid" {
		t.Errorf("sealed without its last rows: %v", f)
	}
	if up, err = r.e.OpenInput(r.ctx(), alice, in); err != nil || up.Parts != 3 || up.Rows != 1000 {
		t.Errorf("opened again: %+v, %v", up, err)
	}
	if err := part(3, 1000, 1300); err != nil {
		t.Fatal(err)
	}
	sealed, err := r.e.SealInput(r.ctx(), alice, up.ID)
	if err != nil || string(sealed.Snapshot) != string(whole.Snapshot) || sealed.InputsCID != whole.InputsCID {
		t.Errorf("sealed %s, %v", sealed.Snapshot, err)
	}
	if p, ok := asA[*rewarder.ConflictError](part(4, 0, 1)); !ok || p.What != "next part" {
		t.Errorf("a part of a sealed upload: %v", p)
	}
	other := rewarder.Call{Tenant: "other"}
	if _, err := r.e.PutPart(r.ctx(), other, up.ID, 4, false, body); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("a part by another tenant: %v", err)
	}
	if _, err := r.e.SealInput(r.ctx(), alice, b3.Sum(nil)); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("an upload that nobody opened: %v", err)
	}
	for _, bad := range []func(*rewarder.OpenInput){
		func(in *rewarder.OpenInput) { in.EpochID = "a/b" },
		func(in *rewarder.OpenInput) { in.Asset = "Ron" },
		func(in *rewarder.OpenInput) { in.Metrics = []string{"views"} },
		func(in *rewarder.OpenInput) { in.Account = "sys:x" }, func(in *rewarder.OpenInput) { in.WindowStartMS = 1 },
		func(in *rewarder.OpenInput) { in.Metrics = []string{"requests", "requests"} },
	} {
		in := inputOf("e", 1)
		bad(&in)
		if _, err := r.e.OpenInput(r.ctx(), alice, in); err == nil {
			t.Errorf("%+v is opened", in)
		}
	}
}

// A policy id is bound to one hash for ever. The configuration of the node decides which keys may
// sign.
func TestPolicyIDs(t *testing.T) {
	r := newRig(t)
	p, q := policy(), policy(func(p *record.Policy) { p.Dust = n64(1) })
	put := func(by rewarder.Call, id string, p record.Policy, sigs ...record.Signature) (rewarder.Policy, error) {
		return r.e.PutPolicy(r.ctx(), by, id, p.Bytes(), sigs)
	}
	if doc, err := put(alice, p.ID, p, r.key.Sign(p.Hash())); err != nil || !doc.Created {
		t.Fatal(doc, err)
	}
	if doc, err := put(alice, p.ID, p, r.key.Sign(p.Hash())); err != nil || doc.Created ||
		string(doc.Body) != string(p.Bytes()) {
		t.Errorf("the same again: %+v, %v", doc, err)
	}
	if _, err := put(
		alice, p.ID, q, r.key.Sign(q.Hash()),
	); func() bool { c, ok := asA[*rewarder.ConflictError](err); return !ok || c.Has != p.Hash().String() }() {
		t.Errorf("other bytes: %v", err)
	}
	for field, err := range map[string]error{
		"id":             func() error { _, err := put(alice, "rev9", p, r.key.Sign(p.Hash())); return err }(),
		"tenant":         func() error { _, err := put(rewarder.Call{Tenant: "other"}, p.ID, p, r.key.Sign(p.Hash())); return err }(),
		"signatures":     func() error { _, err := put(alice, p.ID, p); return err }(),
		"signatures.sig": func() error { _, err := put(alice, p.ID, p, r.key.Sign(q.Hash())); return err }(),
	} {
		if f, ok := asA[*rewarder.FieldError](err); !ok || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if doc, err := r.e.Policy(r.ctx(), rewarder.DefaultTenant, p.ID); err != nil || doc.Hash != p.Hash() ||
		len(doc.Signatures) != 1 {
		t.Errorf("%+v, %v", doc, err)
	}
	if _, err := r.e.Policy(r.ctx(), "other", p.ID); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("of another tenant: %v", err)
	}
}

func TestConfigFaults(t *testing.T) {
	if err := rewarder.DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*rewarder.Config){
		"epoch_duration":              func(c *rewarder.Config) { c.EpochDuration = 0 },
		"concurrency.compute_workers": func(c *rewarder.Config) { c.Concurrency.ComputeWorkers = 0 },
		"concurrency.io_inflight":     func(c *rewarder.Config) { c.Concurrency.IOInflight = 0 },
		"shard.shards":                func(c *rewarder.Config) { c.Shard.Shards = 2 },
		"read_timeout":                func(c *rewarder.Config) { c.ReadTimeout = 0 },
		"drain_deadline":              func(c *rewarder.Config) { c.DrainDeadline *= 2 },
		"limits.inflight":             func(c *rewarder.Config) { c.Limits.Inflight = rewarder.QueueCap },
		"policy_trust_keys":           func(c *rewarder.Config) { c.TrustKeys = []string{"aa"} },
		"policy_quorum":               func(c *rewarder.Config) { c.Quorum = 2 },
	} {
		c := rewarder.DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
