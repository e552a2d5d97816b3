package appliance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"ronbox/appliance/host"
	"ronbox/store"
)

// noSwap is what host says of a control group that allows none.
const noSwap = -1

// errSwap says that memory could reach a disk.
var errSwap = errors.New("memory may be swapped out to a disk")

// The caches, as the label kind.
const (
	kindVersions = "versions" // of the registry
	kindBalances = "balances" // and receipts, of the wallet
)

// describeAmnesia makes the series that tell whether the node forgets.
func (n *Node) describeAmnesia() {
	on := map[bool]float64{true: 1}
	n.metrics.Set("amnesia_mode", ownService, "status", "on")(on[n.boot.Amnesia.Enabled])
	n.metrics.Set("amnesia_mode", ownService, "status", "off")(on[!n.boot.Amnesia.Enabled])
	for _, kind := range []string{kindVersions, kindBalances} {
		n.metrics.Counter("amnesia_purge_total", ownService, "kind", kind)
	}
}

// forgetful makes sure that nothing this process holds can reach a disk, before it holds anything.
func (n *Node) forgetful() error {
	if !n.boot.Amnesia.Enabled {
		return nil
	}
	if err := host.NoDump(); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	return unswappable(n.boot.Amnesia.AllowSwap, host.ReadSwap, host.ReadLimits, host.LockMemory)
}

// unswappable holds if there is no swap, or the control group forbids it, or memory can be locked, or none of that matters.
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
		return fmt.Errorf("%w: %w", errSwap, errors.Join(err, locked))
	}
	return nil
}

// purgeEvery is the pause between two purges of the caches; none is needed where there is a disk.
func (n *Node) purgeEvery() time.Duration {
	if !n.boot.Amnesia.Enabled {
		return 0
	}
	return time.Duration(n.conf().Amnesia.PurgeIntervalMS) * time.Millisecond
}

// purgeCaches forgets what was only kept to be quick, and that something was to be written to a disk.
func (n *Node) purgeCaches(context.Context) error {
	if n.registry != nil {
		n.registry.Purge()
		n.metrics.Counter("amnesia_purge_total", ownService, "kind", kindVersions)(1)
	}
	if n.wallet != nil {
		n.wallet.Purge()
		n.metrics.Counter("amnesia_purge_total", ownService, "kind", kindBalances)(1)
	}
	n.board.Set(ownService, keyAmnesia, nil)
	return nil
}

// onDisk refuses what would write to a disk, and shows that someone asked for it.
func (n *Node) onDisk(what string) error {
	if !n.boot.Amnesia.Enabled {
		return nil
	}
	err := fmt.Errorf("%s: %w", what, store.ErrAmnesia)
	n.board.Set(ownService, keyAmnesia, err)
	return err
}

// ramSecret draws the node secret of a node without a disk: its tokens end with it.
func ramSecret() ([]byte, error) {
	secret := make([]byte, secretLen)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("node secret: %w", err)
	}
	return secret, nil
}
