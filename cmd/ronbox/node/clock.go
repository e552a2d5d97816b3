package node

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger"
	nodeapi "ronbox/httpapi/wire/node"
)

func (a app) clockCmd() *cobra.Command {
	status := &cobra.Command{
		Use:   "status",
		Short: "Show the node's clock beside the clock of the machine",
		Long: `Show the node's clock beside the clock of the machine: by how much they differ, since
when, which of them is probably wrong, and what will happen when.

The state is ok, ahead (the machine's clock is ahead and not believed yet) or behind. No
payment and no other write is refused in any of them. In a cluster each machine has its
own clock, and the command shows that of the node it asks.`,
		Example: `  ronbox --data-dir data clock status
  ronbox clock status --json | jq .offset_s`,
		RunE: cli.Ask(a.App, nodeapi.NewClient, nodeapi.Client.Clock, clockTable),
	}
	accept := &cobra.Command{
		Use:   "accept",
		Short: "Believe a clock of the machine that is ahead, at once",
		Long: `Believe a clock of the machine that is ahead, at once. Use it only if ` + "`date -u`" + ` on the
machine shows the right time. The node's clock cannot go back afterwards: times that are
stored from then on stay ahead if the machine's clock was wrong.

Holds that expire before the new time end within a second. Idempotency keys that end
before it are forgotten one hour later: until then a repeated payment is still noticed.
The audit chain gets a record.`,
		Example: `  ronbox --data-dir data clock accept
  ronbox clock accept --yes --json`,
		RunE: a.online(a.acceptClock),
	}
	group := cli.Group("clock", "Show the node's clock, or make it follow the machine's", status, accept)
	group.Long = `Show the node's clock, or make it follow the machine's.

The node keeps a clock of its own for everything that it stores and that expires: times of
payments, idempotency keys, holds, proposals, limits by day. It follows the clock of the
machine, but does not believe it when it jumps ahead: by more than node.clock_step (10s)
only after it has stayed there for node.clock_settle (10m), or for one minute if the
kernel says that it is synchronised. It never goes back. Tokens, sessions and
certificates go by the clock of the machine.`
	return group
}

func clockTable(t cli.Table, c nodeapi.Clock) {
	t.Row("node", cli.FormatStamp(c.Reading))
	t.Row("machine", cli.FormatStamp(c.Wall), synchronised(c.Synchronised))
	t.Row("offset", offset(c.OffsetS))
	t.Row("state", c.State, "since "+cli.FormatTime(c.Since)+" of the node")
	t.Row("seen", c.Message)
	t.Opt("next", c.Next)
	if c.Expires != nil {
		t.Row("accept", "ends "+expiry(c.Expires))
	}
}

func synchronised(is bool) string {
	if is {
		return "synchronised, the kernel says"
	}
	return "not synchronised, the kernel says"
}

// offset formats the wall clock minus the node's clock.
func offset(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	if d > 0 {
		return "+" + d.String()
	}
	return d.String()
}

// expiry names the numbers of keys and holds that end.
func expiry(e *nodeapi.ClockExpiry) string {
	holds := cli.Decimal(uint64(e.Holds))
	if e.Holds >= ledger.MaxExpiring {
		holds += " or more"
	}
	return fmt.Sprintf("open holds: %s; idempotency keys, one hour later: %d at most", holds, e.Keys)
}

// acceptClock asks first, with the numbers of keys and holds that end. If there is nothing to
// accept, the node says so.
func (a app) acceptClock(ctx context.Context, c nodeapi.Client, _ []string) error {
	if !a.Flags.PrintCurl {
		if err := a.confirmClock(ctx, c); err != nil {
			return err
		}
	}
	done, err := c.AcceptClock(ctx)
	if err != nil {
		return err
	}
	return a.Show(done, func(t cli.Table) {
		t.Row("node", cli.FormatStamp(done.Reading))
		t.Row("went ahead", time.Duration(done.ByS*float64(time.Second)).Round(time.Millisecond))
		if done.Expires != nil {
			t.Row("ended", expiry(done.Expires))
		}
	})
}

// confirmClock asks before a step that cannot be undone.
func (a app) confirmClock(ctx context.Context, c nodeapi.Client) error {
	now, err := c.Clock(ctx)
	if err != nil || now.State != "ahead" {
		return err
	}
	what := fmt.Sprintf("%s\naccept makes the node's clock go ahead to %s for good", now.Message,
		cli.FormatTime(now.Wall))
	if now.Expires != nil {
		what += ", and ends " + expiry(now.Expires)
	}
	return a.Confirm(what, "accept")
}
