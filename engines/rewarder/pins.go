package rewarder

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// Pins holds the policies of a tenant that a version of the registry pins.
type Pins struct {
	Version uint64
	Pins    []Pin // empty: every policy of the tenant may run
}

// Pin is one pinned policy.
type Pin struct {
	ID     string // of its item in the registry
	Policy string // id in lower case
	Hash   b3.Digest

	// Fault is the reason why the item cannot be read. Such a pin permits no policy, but it binds
	// the tenant: a policy was to be pinned. "": it can be read.
	Fault string
}

// PinsOf returns the pins of a tenant as the transaction of r has them. An error means that they
// are not known, so that nothing is accepted. It must not block.
type PinsOf func(r store.Reader, tenant string) (Pins, error)

// ErrNoPins is returned when the registry does not show which policies are pinned: it has no
// version, its source is not to be believed, or its newest checkpoint is too old. Nothing was
// accepted, and the same call may succeed later.
var ErrNoPins = errors.New("rewarder: the pinned policies are not known")

// checkPins returns an error unless the policy of run may run, and records the version and the pin
// that permit it. Without a fleet every policy may run.
func (e *Engine) checkPins(r store.Reader, run *Run) error {
	if e.pins == nil {
		return nil
	}
	p, err := e.pins(r, run.Tenant)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoPins, err)
	}
	run.PinVersion = p.Version
	if len(p.Pins) == 0 {
		return nil
	}
	for _, pin := range p.Pins {
		if pin.Fault == "" && pin.Hash == run.PolicyHash && pin.Policy == strings.ToLower(run.PolicyID) {
			run.Pin = pin.ID
			return nil
		}
	}
	first := p.Pins[0]
	has := first.ID + " " + first.Hash.String()
	if i := slices.IndexFunc(p.Pins, func(pin Pin) bool { return pin.Fault != "" }); i >= 0 {
		has = fmt.Sprintf("not known until a version of the registry corrects or removes what `ronbox registry lint` "+
			"finds: %s has a fault (%s)", p.Pins[i].ID, p.Pins[i].Fault)
	} else if n := len(p.Pins) - 1; n > 0 {
		has += fmt.Sprintf(" and %d others", n)
	}
	return &ConflictError{WhatPin, has, run.PolicyID + " " + run.PolicyHash.String()}
}

// WhatPin is the What of the ConflictError for a policy that is not pinned.
const WhatPin = "pinned policy"
