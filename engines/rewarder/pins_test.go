package rewarder_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder"
	"ronbox/store"
)

// pinned returns a pin of the policy of the rigs.
func pinned(hash b3.Digest) rewarder.Pin {
	return rewarder.Pin{ID: "policy/default/rev1", Policy: "rev1", Hash: hash}
}

// Once a tenant has a pin, only pinned policies run. The run records the version and the pin.
func TestPins(t *testing.T) {
	t.Parallel()
	p := policy()
	other := pinned(b3.Sum([]byte("other")))
	renamed := rewarder.Pin{ID: "policy/default/rev2", Policy: "rev2", Hash: p.Hash()}
	broken := rewarder.Pin{ID: "policy/default/x", Fault: "meta.policy must be the hash of a policy"}
	for _, tt := range []struct {
		doc  string
		pins rewarder.PinsOf
		pin  string // of the accepted run
		at   uint64
		want string // in the error
	}{
		{"no fleet", nil, "", 0, ""},
		{"no pin of the tenant", given(rewarder.Pins{Version: 3}, nil), "", 3, ""},
		{"the pinned policy", given(rewarder.Pins{4, []rewarder.Pin{other, pinned(p.Hash())}}, nil), "policy/default/rev1",
			4, ""},
		{"another hash", given(rewarder.Pins{5, []rewarder.Pin{other}}, nil), "", 0, "pinned policy is policy/default/rev1"},
		{"another id", given(rewarder.Pins{5, []rewarder.Pin{renamed, other}}, nil), "", 0, "and 1 others"},
		{"a pin with a fault", given(rewarder.Pins{6, []rewarder.Pin{broken}}, nil), "", 0,
			"policy/default/x has a fault (meta.policy must"},
		{"one beside the pinned policy", given(rewarder.Pins{7, []rewarder.Pin{broken, pinned(p.Hash())}}, nil),
			"policy/default/rev1", 7, ""},
		{"one beside another policy", given(rewarder.Pins{8, []rewarder.Pin{other, broken}}, nil), "", 0,
			"`ronbox registry lint` finds: " +
				"policy/default/x has a fault (meta.policy must be the hash of a policy), not rev1 "},
		{"an unknown registry", given(rewarder.Pins{}, errors.New("stale: the hub is silent")), "", 0, "stale"},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inMemory, func(r *rig) { r.pins = tt.pins }).only(rewarder.TaskScheduler)
			r.put(p)
			in := r.seal(inputOf("e", 10), usage("a requests 1"))
			run, err := r.compute("e", in, p)
			if tt.want == "" {
				if err != nil || run.Pin != tt.pin || run.PinVersion != tt.at {
					t.Fatalf("%+v, %v", run, err)
				}
				return
			}
			conflict, pinned := errors.AsType[*rewarder.ConflictError](err)
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				pinned != (conflict != nil && conflict.What == rewarder.WhatPin) ||
				pinned == errors.Is(err, rewarder.ErrNoPins) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			if _, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "e"); !errors.Is(err, rewarder.ErrNotFound) {
				t.Errorf("something was accepted: %v", err)
			}
		})
	}
}

func given(p rewarder.Pins, err error) rewarder.PinsOf {
	return func(store.Reader, string) (rewarder.Pins, error) { return p, err }
}

// A pin that is committed after a request was queued, and before its turn, is respected: pins are
// read in the transaction that accepts the run.
func TestPinsAreReadInTheTransaction(t *testing.T) {
	t.Parallel()
	p := policy()
	late := pinned(b3.Sum([]byte("other")))
	key := store.NewTable(rewarder.PolicyRows.Bucket(), store.String[string](), store.Raw())
	r := newRig(t, inMemory, func(r *rig) {
		r.pins = func(tx store.Reader, _ string) (rewarder.Pins, error) {
			if key.Has(tx, "pin") {
				return rewarder.Pins{2, []rewarder.Pin{late}}, nil
			}
			return rewarder.Pins{Version: 1}, nil
		}
	}).only(rewarder.TaskScheduler)
	r.put(p)
	in := r.seal(inputOf("e", 10), usage("a requests 1"))
	release := r.stall()
	defer release()
	var wg sync.WaitGroup
	defer wg.Wait()
	pin := rewarder.Command("pin", 1, func(_ store.Reader, w *store.Writes) (none struct{}, err error) {
		key.Put(w, "pin", []byte("x"))
		return none, nil
	})
	if err := store.Hand(r.ctx(), r.store, store.Work, pin, func(struct{}, error) {}); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		if run, err := r.compute("e", in, p); err == nil {
			t.Errorf("accepted at version %d", run.PinVersion)
		}
	})
	r.eventually("the request is at the committer", func() bool { return r.e.Admitting() == 1 })
	release()
}
