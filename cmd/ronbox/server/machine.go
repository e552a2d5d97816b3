package server

import (
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/store"
)

// noSwap is the value of host for a control group that forbids swap.
const noSwap = -1

// describeAmnesia registers the metrics of amnesia mode.
func (n *Node) describeAmnesia() {
	on := map[bool]float64{true: 1}
	n.metrics.Set("amnesia_mode", ownService, "status", "on")(on[n.boot.Amnesia.Enabled])
	n.metrics.Set("amnesia_mode", ownService, "status", "off")(on[!n.boot.Amnesia.Enabled])
	for _, s := range wiring.All() {
		if s.Cache != "" {
			n.metrics.Counter("amnesia_purge_total", ownService, "kind", s.Cache)
		}
	}
}

// forgetful ensures, in amnesia mode, that no memory of the process can reach a disk. It must run
// before the process holds data.
func (n *Node) forgetful() error {
	if !n.boot.Amnesia.Enabled {
		return nil
	}
	if err := host.NoDump(); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	return unswappable(n.boot.Amnesia.AllowSwap, host.ReadSwap, host.ReadLimits, host.LockMemory)
}

// unswappable returns nil if there is no swap, the control group forbids it, memory can be locked,
// or swapping is allowed.
func unswappable(
	allowed bool, areas func() ([]host.SwapArea, error), limits func() (host.Limits, error), lock func() error,
) error {
	if allowed {
		return nil
	}
	swaps, err := areas()
	if err == nil && !slices.ContainsFunc(swaps, func(a host.SwapArea) bool { return !a.Compressed() }) {
		return nil
	}
	if l, err := limits(); err == nil && l.Group.Swap == noSwap {
		return nil
	}
	if locked := lock(); locked != nil {
		return fmt.Errorf("%w: %w", process.ErrSwap, errors.Join(err, locked))
	}
	return nil
}

// onDisk returns ErrAmnesia in amnesia mode for an action that would write to a disk, and shows the
// attempt in the probe table.
func (n *Node) onDisk(what string) error {
	if !n.boot.Amnesia.Enabled {
		return nil
	}
	err := fmt.Errorf("%s: %w", what, store.ErrAmnesia)
	n.board.Set(ownService, keyAmnesia, err)
	return err
}

// limits raises the limits of the process, and warns of everything the machine lacks.
func (n *Node) limits() {
	l, err := host.ReadLimits()
	if err != nil {
		n.log.Warn("limits are not known", "reason", err.Error())
	}
	files, memory, err := host.Raise(l)
	if err != nil {
		n.log.Warn("limits were not raised", "reason", err.Error())
	}
	n.log.Debug("limits", "files", files, "memory_limit", memory, "cores", l.Cores)
	for _, f := range host.BootChecks(needs(n.boot)) {
		if f.Level != host.OK {
			n.log.Warn("host", "check", f.Check, "seen", f.Seen, "next", f.Advice)
		}
	}
}
