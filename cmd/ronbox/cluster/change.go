package cluster

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi/client"
	clusterapi "ronbox/httpapi/wire/cluster"
)

func (a app) initCmd() *cobra.Command {
	var advertise string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the node the first member of a new cluster",
		Long: `Make a running or stopped node the first member of a new cluster. Its data stay where
they are, nothing is copied. A running node starts again within seconds; its connections
wait meanwhile. ` + "`ronbox cluster leave --last`" + ` makes it a node alone again.

A cluster of one survives nothing; let two nodes join it with ` + "`ronbox cluster token`" + ` and
` + "`ronbox cluster join`" + `. With three voters one may fail, with five two. Two voters are worse
than one: both must be there for any write, so either failure stops the service. If you
have two machines, let the second join with a token of --standby.

The other nodes reach this one at cluster.advertise, by default cluster.bind. A change of
these keys takes effect at a restart: the leader then tells the others the new address.`,
		Example: `  ronbox --data-dir data cluster init
  ronbox --data-dir data cluster init --advertise node1.example.org:7946 --json`,
	}
	cmd.Flags().StringVar(&advertise, "advertise", "",
		"`host:port` at which other nodes reach the peer port (default cluster.advertise)")
	cmd.RunE = a.either(
		func(ctx context.Context, c clusterapi.Client) error { return a.initRunning(ctx, c, advertise) },
		func(ctx context.Context, dir *member.Dir) error { return a.initStopped(ctx, dir, advertise) },
	)
	return cmd
}

// either returns the RunE of a verb that calls a running node, or changes the files of a stopped
// one.
func (a app) either(
	running func(ctx context.Context, c clusterapi.Client) error,
	stopped func(ctx context.Context, dir *member.Dir) error,
) cli.RunE {
	return a.online(func(ctx context.Context, c clusterapi.Client, _ []string) error {
		err := running(ctx, c)
		if _, here := a.FileInstead(err); !here || a.Flags.PrintCurl {
			return err
		}
		dir, err := a.dir()
		if err != nil {
			return err
		}
		return stopped(ctx, dir)
	})
}

// dir returns the data directory of the node, unless it keeps its state in memory.
func (a app) dir() (*member.Dir, error) {
	cfg, err := a.Config()
	if err != nil {
		return nil, err
	}
	if cfg.Amnesia.Enabled {
		return nil, member.ErrEphemeral
	}
	return member.At(cfg.Node.DataDir), nil
}

func (a app) initRunning(ctx context.Context, c clusterapi.Client, advertise string) error {
	made, err := c.InitCluster(ctx, clusterapi.InitRequest{Advertise: advertise})
	if err != nil {
		return err
	}
	a.await(ctx, c, func(s clusterapi.ClusterStatus, err error) bool {
		r, unready := c.Ready(ctx, "", "write")
		return err == nil && s.Self == made.ID && unready == nil && r.Ready
	})
	return a.showInit(membership{made.Cluster, made.ID})
}

func (a app) initStopped(_ context.Context, dir *member.Dir, advertise string) error {
	if advertise == "" {
		cfg, err := a.Config()
		if err != nil {
			return err
		}
		advertise = cfg.Cluster.Address()
	}
	id, err := dir.Init(advertise)
	if err != nil {
		return err
	}
	return a.showInit(membershipOf(id))
}

func (a app) showInit(m membership) error {
	return a.Show(m, func(t cli.Table) {
		m.rows(t)
		t.Row("voters", "1: let two more nodes join, because two voters are worse than one")
		t.Row("next", "`ronbox cluster token` prints what a node needs to join")
	})
}

func (a app) transferCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "transfer [ID]",
		Short: "Make another voter the leader",
		Long: `Make another voter the leader: the member named, or the one that lacks the fewest
entries of the log. Writes wait for some milliseconds; the few that are refused meanwhile
succeed when they are repeated. The member must answer, be fit, and be up to date. The
old leader stays a voter, and starts again within seconds.

A leader that is told to stop, as by systemctl restart, does this by itself, and so does
one that has no room, a slow disk or a wrong clock.

Exit codes, beside those of every verb: 1 no other voter can lead now, 6 the member did
not take over, and the leader stays.`,
		Example: `  ronbox --data-dir data cluster transfer
  ronbox --data-dir data cluster transfer 01JD8Q3T5YV2R9W7K4M6N8P0AB --json`,
		Args: cli.AtMost(1, "the id of one member"),
		RunE: a.online(func(ctx context.Context, c clusterapi.Client, args []string) error {
			done, err := c.TransferLeadership(ctx, strings.Join(args, ""))
			if err != nil {
				return err
			}
			return a.Show(done, func(t cli.Table) {
				t.Row("leads", done.To)
				t.Row("was", done.From)
				t.Row("took_ms", done.TookMS)
			})
		}),
	}
}

func (a app) rotateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Renew the node's key and certificate as a member",
		Long: `Renew the key and the certificate with which the node shows the other members that it is
one. They take effect at once: connections that are open go on, new ones use them.

A certificate lives for 90 days, and each member renews its own by itself after 60, or
when its clock was wrong and is right again. Use this verb if ` + "`ronbox doctor`" + ` reports
cluster_certificate, or if the key may have been copied. It does not lock out a node whose
disk was stolen: the disk of a member also holds the authority of the cluster.`,
		Example: `  ronbox --data-dir data cluster rotate
  ronbox --data-dir data cluster rotate --json | jq -r .certificate_ends`,
		RunE: a.online(func(ctx context.Context, c clusterapi.Client, _ []string) error {
			done, err := c.RotateCertificate(ctx)
			if err != nil {
				return err
			}
			return a.Show(done, func(t cli.Table) {
				t.Row("certificate_ends", cli.FormatTime(done.CertificateEnds.Time))
			})
		}),
	}
}

// backWithin bounds the wait for a node that starts again. A large file takes longer; the verb then
// says so, and has succeeded.
const backWithin = 30 * time.Second

// await waits until a node that starts again has the wanted state.
func (a app) await(ctx context.Context, c clusterapi.Client, as func(clusterapi.ClusterStatus, error) bool) {
	const poll = 50 * time.Millisecond
	within, stop := context.WithTimeout(ctx, backWithin)
	defer stop()
	for !as(c.ClusterStatus(within)) {
		if client.Sleep(within, poll) != nil {
			a.Say("the node has not started again within %s; `ronbox status` shows when it has", backWithin)
			return
		}
	}
}

func (a app) leaveCmd() *cobra.Command {
	var last bool
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Take the node out of its cluster",
		Long: `Take the running node out of its cluster. The others go on without it; the node stops,
and keeps its files until cluster rejoin or a new cluster join.

With --last the only member of a cluster, running or stopped, becomes a node alone. It
keeps its data, and the commands that work on a stopped node's file work again. The last
member of a cluster that has lost the others for good needs ` + "`ronbox cluster recover`" + `.`,
		Example: `  ronbox --data-dir data cluster leave
  ronbox --data-dir data cluster leave --last --json`,
	}
	cmd.Flags().BoolVar(&last, "last", false, "the node is the only member, and becomes a node alone")
	cmd.RunE = a.either(
		func(ctx context.Context, c clusterapi.Client) error { return a.leaveRunning(ctx, c, last) },
		func(_ context.Context, dir *member.Dir) error { return a.leaveStopped(dir, last) },
	)
	return cmd
}

func (a app) leaveRunning(ctx context.Context, c clusterapi.Client, last bool) error {
	left, err := c.LeaveCluster(ctx, clusterapi.LeaveRequest{Last: last})
	if err != nil {
		return err
	}
	if last {
		a.await(ctx, c, func(_ clusterapi.ClusterStatus, err error) bool {
			return err != nil && !client.Retryable(err)
		})
	}
	return a.showLeft(left, last)
}

func (a app) leaveStopped(dir *member.Dir, last bool) error {
	if !last {
		return cli.Fail(cli.ExitUnreachable, "not_reachable",
			"start it and repeat, or run `ronbox cluster remove` at another member", "the node does not run")
	}
	id, err := dir.Identity()
	switch {
	case dir.Leaves():
		err = nil // a leave that was killed may have removed the identity
	case errors.Is(err, fs.ErrNotExist):
		return member.ErrAlone
	}
	if err == nil {
		err = dir.LeaveLast()
	}
	if err != nil {
		return err
	}
	var left clusterapi.Removed
	if id != nil {
		left.ID = id.ServerID()
	}
	return a.showLeft(left, last)
}

func (a app) showLeft(left clusterapi.Removed, last bool) error {
	return a.Show(left, func(t cli.Table) {
		if left.ID != "" { // it is lost with the identity
			t.Row("left", left.ID)
		}
		if last {
			t.Row("now", "a node alone, with all its data")
		}
	})
}
