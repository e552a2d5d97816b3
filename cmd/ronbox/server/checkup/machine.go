package checkup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
)

// noSwap is the value of host for a control group that forbids swap.
const noSwap = -1

// Forgetful ensures, in amnesia mode, that no memory of the process can reach a disk. It must run
// before the process holds data.
func Forgetful(cfg *config.Config) error {
	if !cfg.Amnesia.Enabled {
		return nil
	}
	if err := host.NoDump(); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	return unswappable(cfg.Amnesia.AllowSwap, host.ReadSwap, host.ReadLimits, host.LockMemory)
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

// Limits raises the limits of the process, and warns of everything the machine lacks.
func Limits(cfg *config.Config, log hclog.Logger) {
	l, err := host.ReadLimits()
	if err != nil {
		log.Warn("limits are not known", "reason", err.Error())
	}
	files, memory, err := host.Raise(l, cfg.HeapBytes(host.UsableMemory()))
	if err != nil {
		log.Warn("limits were not raised", "reason", err.Error())
	}
	log.Debug("limits", "files", files, "memory_limit", memory, "cores", l.Cores)
	for _, f := range host.BootChecks(needs(cfg)) {
		if f.Level != host.OK {
			log.Warn("host", "check", f.Check, "seen", f.Seen, "next", f.Advice)
		}
	}
}
