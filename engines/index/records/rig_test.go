package records

import (
	"context"
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/engines/index/name"
	"ronbox/engines/index/name/nametest"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// rig has records on a store in memory. It is their hub and names one owner for all names.
type rig struct {
	t     testing.TB
	store *store.Store
	held  *Held
	owner ed25519.PrivateKey // nil: no other node owns a name
	asked []string           // renewals
}

// newRig returns a rig in a synctest bubble. No renewer runs.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, owner: nametest.Key(2)}
	catalog := flow.NewCatalog(nil, nil)
	r.store = store.New(store.DefaultConfig(), store.Options{
		Catalog:   catalog,
		Producers: map[store.Lane][]string{store.Work: {flow.HTTP}, store.Bulk: {service + "." + Renewer}},
		Memory: &store.AmnesiaConfig{
			Enabled:         true,
			PurgeIntervalMS: 30_000,
			MaxBytes:        256 << 20,
			AllowSwap:       true,
		},
	})
	records := New(Deps{
		Catalog: catalog,
		Store:   r.store,
		Log:     hclog.NewNullLogger(),
		Now:     time.Now,
		Wall:    time.Now,
		Hub:     r,
		Owners:  r,
	})
	r.held = NewHeld(records, func(_ context.Context, k name.Key) error {
		r.asked = append(r.asked, k.String())
		return nil
	})
	sup := flow.NewSupervisor(r.ctx(), catalog, flow.Hooks{})
	if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
		t.Fatal(err)
	}
	sup.Start(r.store.Tasks()...)
	records.Open(nametest.Key(1))
	t.Cleanup(func() {
		r.held.tick.Stop()
		r.store.CloseLanes()
		sup.Drain("store", 5*time.Second, time.Second)
		sup.Close()
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) ctx() context.Context { return context.Background() }

func (r *rig) Outdate(string)       {}
func (r *rig) Publish(name.Event)   {}
func (r *rig) Check(name.Key) error { return nil }

func (r *rig) Of(name.Key) (owner ed25519.PublicKey, asked bool) {
	if r.owner == nil {
		return nil, false
	}
	return nametest.Public(r.owner), true
}

// kept returns the keys of the kept records.
func (r *rig) kept() (keys []string) {
	r.t.Helper()
	err := r.store.View(r.ctx(), func(v store.Reader) error {
		for key := range v.Range(tables.HeldBucket, nil, nil) {
			keys = append(keys, string(key))
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return keys
}
