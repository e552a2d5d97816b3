package rverify

import (
	"testing"

	"ronbox/appliance/b3"
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

// partialLog is a copy that has its horizon and no checkpoint yet.
type partialLog struct{ *memLog }

func (l partialLog) Horizon() (*Horizon, error) {
	return &Horizon{Min: 2, Items: func() (record.Items, error) { return l.base.Items, nil }}, nil
}

// A damaged signer set of such a copy is a problem of it.
func TestHorizonOfADamagedCopy(t *testing.T) {
	log := newLog(t, 1, 1).fill(t, 1, 1)
	log.followed, log.audits = true, nil
	log.auditSeq, log.auditHead = 0, b3.Digest{}
	for set, sound := range map[string]bool{string(log.epochs[1]): true, "cut": false, "": false} {
		log.epochs[1] = []byte(set)
		_, err := New(Options{}).Step(t.Context(), partialLog{log}, 9)
		if sound != (err == nil) {
			t.Errorf("%.3q: %v", set, err)
		}
	}
}
