package registry

import (
	"errors"
	"time"

	"ronbox/appliance/obs"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/views"
)

// Readiness keys.
const (
	keyCommitReady = "commit_ready" // hard: commits are accepted and succeed
	keyBusAttached = "bus_attached" // soft: the publisher follows the log
	keyHasGenesis  = "genesis"      // soft: the log has no genesis yet

	keyChain  = "chain"     // soft: a fault in the stored log stops the writes of the registry only
	keyFollow = "follow_ok" // soft: the hub is not to be believed, or its newest checkpoint is old
)

// Bounds of the probes.
const (
	probeEvery  = 250 * time.Millisecond
	logKeyEvery = 5 * time.Second // between two checks of the file of the log key
)

func (e *Engine) probes() []obs.Probe {
	probes := []obs.Probe{
		{Service: service, Key: keyCommitReady, Hard: true, Plane: obs.WritePlane, Every: probeEvery, Bad: 2, Good: 4,
			Func: e.commitReady},
		{Service: service, Key: keyBusAttached, Plane: obs.WritePlane},
		{Service: service, Key: seal.KeyForkGuard, Own: true, Plane: obs.WritePlane},
		{Service: service, Key: keyChain, Own: true, Plane: obs.WritePlane},
		{Service: service, Key: seal.KeyCheckpointor, Plane: obs.WritePlane},
		{Service: service, Key: views.KeyRows, Plane: obs.WritePlane},
		{Service: service, Key: seal.KeyWitnesses, Plane: obs.WritePlane},
		{
			Service: service, Key: seal.KeyLogKey, Plane: obs.WritePlane, Every: logKeyEvery,
			Bad: 1, Good: 1, Func: e.seal.HasKey,
		},
		{
			Service: service, Key: keyHasGenesis, Plane: obs.WritePlane, Every: probeEvery,
			Bad: 1, Good: 1, Func: e.hasGenesis,
		},
	}
	if e.follow == nil {
		return probes
	}
	return append(probes, obs.Probe{
		Service: service, Key: keyFollow, Plane: obs.WritePlane, Every: probeEvery, Bad: 1, Good: 1, Func: e.follow.OK,
	})
}

// commitReady returns the reason why a commit would fail now.
func (e *Engine) commitReady() error {
	if err := e.sound(); err != nil && e.chainError.Load() == nil {
		return err
	}
	return e.pipeline.OK()
}

// StateNotBegun is the state of a registry without a genesis that nobody asked for: the node
// follows no other, and pins no genesis.
const StateNotBegun = obs.State("not_begun")

// hasGenesis returns nil if the log has begun.
func (e *Engine) hasGenesis() error {
	switch {
	case e.Head().Head.Version > 0:
		return nil
	case e.follow == nil && e.boot.Bootstrap.TrustRootsHash == "":
		return StateNotBegun
	}
	return errors.New(document.CauseNoGenesis)
}

// Age returns the time since the hub signed the newest checkpoint that was read. It is false on a
// node that follows no other, and before the first checkpoint.
func (e *Engine) Age() (age time.Duration, known bool) {
	if e.follow == nil {
		return 0, false
	}
	return e.follow.Age()
}
