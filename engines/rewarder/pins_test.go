package rewarder

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// pinned returns a pin of the policy of the rigs.
func pinned(hash b3.Digest) Pin { return Pin{ID: "policy/default/rev1", Policy: "rev1", Hash: hash} }

// Once a tenant has a pin, only pinned policies run. The run records the version and the pin.
func TestPins(t *testing.T) {
	t.Parallel()
	p := policy()
	other := pinned(b3.Sum([]byte("other")))
	renamed := Pin{ID: "policy/default/rev2", Policy: "rev2", Hash: p.Hash()}
	broken := Pin{ID: "policy/default/x", Fault: "meta.policy must be the hash of a policy"}
	for _, tt := range []struct {
		doc  string
		pins PinsOf
		pin  string // of the accepted run
		at   uint64
		want string // in the error
	}{
		{"no fleet", nil, "", 0, ""},
		{"no pin of the tenant", given(Pins{Version: 3}, nil), "", 3, ""},
		{"the pinned policy", given(Pins{4, []Pin{other, pinned(p.Hash())}}, nil), "policy/default/rev1", 4, ""},
		{"another hash", given(Pins{5, []Pin{other}}, nil), "", 0, "pinned policy is policy/default/rev1"},
		{"another id", given(Pins{5, []Pin{renamed, other}}, nil), "", 0, "and 1 others"},
		{"a pin with a fault", given(Pins{6, []Pin{broken}}, nil), "", 0, "policy/default/x has a fault (meta.policy must"},
		{"one beside the pinned policy", given(Pins{7, []Pin{broken, pinned(p.Hash())}}, nil), "policy/default/rev1", 7, ""},
		{"one beside another policy", given(Pins{8, []Pin{other, broken}}, nil), "", 0, "`ronbox registry lint` finds: " +
			"policy/default/x has a fault (meta.policy must be the hash of a policy), not rev1 "},
		{"an unknown registry", given(Pins{}, errors.New("stale: the hub is silent")), "", 0, "stale"},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inMemory, func(r *rig) { r.pins = tt.pins }).only(taskScheduler)
			r.put(p)
			in := r.seal(inputOf("e", 10), usage("a requests 1"))
			run, err := r.compute("e", in, p)
			if tt.want == "" {
				if err != nil || run.Pin != tt.pin || run.PinVersion != tt.at {
					t.Fatalf("%+v, %v", run, err)
				}
				return
			}
			conflict, pinned := errors.AsType[*ConflictError](err)
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				pinned != (conflict != nil && conflict.What == WhatPin) ||
				pinned == errors.Is(err, ErrNoPins) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			if _, err := r.e.Epoch(r.ctx(), DefaultTenant, "e"); !errors.Is(err, ErrNotFound) {
				t.Errorf("something was accepted: %v", err)
			}
		})
	}
}

func given(p Pins, err error) PinsOf {
	return func(store.Reader, string) (Pins, error) { return p, err }
}

// A pin that is committed after a request was queued, and before its turn, is respected: pins are
// read in the transaction that accepts the run.
func TestPinsAreReadInTheTransaction(t *testing.T) {
	t.Parallel()
	p := policy()
	late := pinned(b3.Sum([]byte("other")))
	key := store.NewTable(policies.Bucket(), store.String[string](), store.Raw())
	r := newRig(t, inMemory, func(r *rig) {
		r.pins = func(tx store.Reader, _ string) (Pins, error) {
			if key.Has(tx, "pin") {
				return Pins{2, []Pin{late}}, nil
			}
			return Pins{Version: 1}, nil
		}
	}).only(taskScheduler)
	r.put(p)
	in := r.seal(inputOf("e", 10), usage("a requests 1"))
	release := r.stall()
	defer release()
	var wg sync.WaitGroup
	defer wg.Wait()
	pin := command[struct{}]{"pin", 1, func(_ store.Reader, w *store.Writes) (none struct{}, err error) {
		key.Put(w, "pin", []byte("x"))
		return none, nil
	}}
	if err := store.Hand(r.ctx(), r.store, store.Work, pin, func(struct{}, error) {}); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		if run, err := r.compute("e", in, p); err == nil {
			t.Errorf("accepted at version %d", run.PinVersion)
		}
	})
	r.eventually("the request is at the committer", func() bool { return r.e.admitting.Load() == 1 })
	release()
}
