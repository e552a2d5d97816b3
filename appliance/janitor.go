package appliance

import (
	"context"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/store"
)

// How often the janitor looks at what has no period of its own.
const (
	sweepEvery  = time.Minute
	rotateEvery = time.Minute
)

// chore is something that the janitor does now and then.
type chore struct {
	name  string
	every func() time.Duration // 0: not now
	do    func(ctx context.Context) error
	last  time.Time // when it was begun; owned by the janitor
}

// due says whether it is time again.
func (c *chore) due(now time.Time) bool {
	every := c.every()
	return every > 0 && now.Sub(c.last) >= every
}

// chores are all there is to do, in the order of their haste.
func (n *Node) chores(now time.Time) []*chore {
	fixed := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	return []*chore{
		{name: "purge", every: n.purgeEvery, do: n.purgeCaches, last: now},
		{name: "assets", every: fixed(sweepEvery), do: n.declareAssets, last: now},
		{name: "auth_sweep", every: fixed(sweepEvery), do: n.sweepAuth},
		{name: "key_rotation", every: fixed(rotateEvery), do: n.rotateDue},
		{name: "snapshot", every: func() time.Duration { return n.conf().Store.SnapshotEvery.D() }, do: n.scheduledSnapshot,
			last: n.lastSnapshot(now)},
	}
}

// runJanitor does what is due, one chore after the other. One that fails is logged and done again when it is due again.
func (n *Node) runJanitor(ctx context.Context) error {
	defer n.chime.Stop()
	all := n.chores(n.now())
	for {
		n.chime.Set(n.pace())
		for _, c := range all {
			if now := n.now(); ctx.Err() == nil && c.due(now) {
				c.last = now
				n.doChore(ctx, c)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.chime.C():
		}
	}
}

// pace is how often the janitor looks: as often as what has to be purged wants it.
func (n *Node) pace() time.Duration {
	if every := n.purgeEvery(); every > 0 {
		return min(every, chimeEach)
	}
	return chimeEach
}

func (n *Node) doChore(ctx context.Context, c *chore) {
	err := c.do(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	n.log.Warn("chore_failed", "chore", c.name, "reason", err.Error(), "next", "it is done again when it is due again")
}

// sweepAuth removes tokens and revocations that have expired, a thousand at a time, and ends overlaps of keys.
func (n *Node) sweepAuth(ctx context.Context) error {
	sweep, due := sweepAuth{Skew: int64(auth.MaxSkew)}, false
	if err := n.store.View(ctx, func(r store.Reader) error {
		due = sweep.due(r, n.now())
		return nil
	}); err != nil || !due {
		return err
	}
	for {
		out, err := store.Commit(ctx, n.store, store.Bulk, sweep, func(s swept) { n.keys.apply(s.authChange) })
		if err != nil {
			return err
		}
		n.log.Debug("auth_swept", "tokens", out.tokens, "revocations", out.revocations, "keys", out.retired)
		if !out.more {
			return nil
		}
	}
}

// rotateDue puts a new token key in the place of one that is as old as the configuration allows.
func (n *Node) rotateDue(ctx context.Context) error {
	limit, all, err := n.conf().Auth.Rotate.D(), []keyed(nil), error(nil)
	if err = n.store.View(ctx, func(r store.Reader) error { all = readKids(r); return nil }); err != nil {
		return err
	}
	i := active(all)
	if i >= 0 && n.now().Sub(time.Unix(0, all[i].CreatedAt)) < limit {
		return nil
	}
	_, err = n.rotate(ctx, self("janitor"), "", limit)
	return err
}
