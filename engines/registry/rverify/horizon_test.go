package rverify

import (
	"testing"

	"ronbox/engines/registry/record"
)

// A version that follows a kept one names it, whatever the horizon of the log.
func TestHorizonAfterAnotherGenesis(t *testing.T) {
	log := newLog(t, 1, 2)
	log.fill(t, 1, 1)
	other := log.clone() // the same signers and origin, and another genesis
	other.base, other.head = record.Base{Origin: log.base.Origin}, record.Head{}
	other.append(t, record.Draft{Full: true, SignerSet: log.base.Signers, Put: []record.Item{item(t, 1, 1)}}, 2)
	other.append(t, record.Draft{Put: []record.Item{item(t, 2, 1)}}, 1)
	begin := func(l *memLog, items record.Items) *Problem {
		h := Horizon{Min: 2, Items: func() (record.Items, error) { return items, nil }}
		v := New(Options{})
		_ = v.Begin(t.Context(), l, &h, []uint64{1})
		return v.Problem()
	}
	for name, l := range map[string]*memLog{"one log": log, "another": other} {
		if bad := begin(l, l.base.Items); bad != nil {
			t.Errorf("%s: %v", name, bad)
		}
	}
	mixed := other.clone()
	mixed.entries[1], mixed.payloads[1] = log.entries[1], log.payloads[1]
	if bad := begin(mixed, other.base.Items); bad == nil || bad.Kind != KindChain || bad.Version != 2 {
		t.Errorf("two logs in one: %v", bad)
	}
	reseal(t, other, 2, func(a *record.Artifact) { a.PrevHash = log.head.Hash })
	if bad := begin(other, other.base.Items); bad == nil || bad.Kind != KindChain || bad.Version != 2 {
		t.Errorf("an entry after another one: %v", bad)
	}
}
