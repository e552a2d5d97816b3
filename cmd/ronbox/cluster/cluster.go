package cluster

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"ronbox/appliance/peer"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/cluster/member"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// app is the command's App with the verbs of this package.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node.
func (a app) online(run func(ctx context.Context, c clusterapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, clusterapi.NewClient, run)
}

// Command returns the command group of the cluster.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	a.Outcomes(errorRows())
	return cli.Group("cluster", "Make one service of three nodes, and manage them",
		a.initCmd(), a.tokenCmd(), a.joinCmd(), a.statusCmd(), a.transferCmd(), a.rotateCmd(), a.leaveCmd(),
		a.removeCmd(), a.rejoinCmd(), a.recoverCmd())
}

// errorRows are the outcomes of errors of package member.
func errorRows() []cli.ErrorRow {
	row := func(is error, reason, next string) cli.ErrorRow {
		return cli.ErrorRow{
			Is: cli.Is(is), Outcome: cli.Outcome{Code: cli.ExitFailed, Reason: reason, Next: next},
		}
	}
	remote := func(code member.Code) cli.ErrorRow {
		return cli.ErrorRow{
			Is: func(err error) bool {
				e, ok := errors.AsType[*member.RemoteError](err)
				return ok && e.Code == code
			},
			Outcome: cli.Outcome{
				Code: cli.ExitBusy, Reason: string(code),
				Next: "wait until a majority of the voters agrees on a leader, then run the command again",
			},
		}
	}
	return []cli.ErrorRow{
		remote(member.CodeNotLeader),
		remote(member.CodeBusy),
		row(member.ErrMember, "member", "`ronbox cluster status` shows its cluster"),
		row(member.ErrAlone, "alone",
			"make a cluster with `ronbox cluster init`, or join one with `ronbox cluster join`"),
		row(member.ErrNotEmpty, "not_empty", "name an empty or absent directory with --data-dir"),
		row(member.ErrNotLast, "not_last",
			"take this node out with `ronbox cluster leave`, or remove the others with `ronbox cluster remove`"),
		row(member.ErrOthersRun, "others_run", othersRun),
		row(member.ErrUnfinished, "unfinished", ""),
		row(member.ErrQuorum, "conflict", "start the other voters, then run the command again"),
		row(member.ErrEphemeral, "amnesia", "the node keeps its state in memory: there is no file to share"),
		row(member.ErrTokenForm, "malformed", notAToken),
		row(member.ErrToken, "token", "mint another one with `ronbox cluster token` at a member"),
		row(peer.ErrStranger, "stranger", anotherCluster),
	}
}

// anotherCluster is the advice for a node that shows the certificate of another cluster.
const anotherCluster = "give the URL and a token that `ronbox cluster token` prints at a member; " +
	"a recover makes another cluster"

// othersRun is the advice for a recover while other members answer.
const othersRun = "if they have a majority, start this node as it is; if not, stop them and repeat; " +
	"--others-run makes a second cluster beside them"

// notAToken is the advice for text that is no join token.
const notAToken = "`ronbox cluster token` at a member prints a token"

// membership is the output of init, join, rejoin and recover.
type membership struct {
	Cluster string `json:"cluster"`
	ID      string `json:"id"`
}

func membershipOf(id *peer.Identity) membership { return membership{id.ClusterID(), id.ServerID()} }

func (m membership) rows(t cli.Table) {
	t.Row("cluster", m.Cluster)
	t.Row("id", m.ID)
}

func (a app) tokenCmd() *cobra.Command {
	var r clusterapi.JoinTokenRequest
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Mint a token with which one node joins the cluster",
		Long: `Mint a token with which one node joins the cluster within an hour. The node that joins
gets the secrets of this one: give the token only to the machine that it is for. The
token also names the certificate authority of the cluster, so that a node cannot join a
wrong one. The URL is that of the node's peer port, cluster.advertise.

A node that joins votes as soon as it has the data. With --standby it never votes: it is
a hot copy, which cluster recover can make a node of its own.`,
		Example: `  ronbox --data-dir data cluster token
  ronbox --data-dir data cluster token --json | jq -r '"cluster join \(.url) --token \(.token)"'`,
	}
	cmd.Flags().BoolVar(&r.Standby, "standby", false, "the node that joins gets no vote")
	cmd.RunE = a.online(func(ctx context.Context, c clusterapi.Client, _ []string) error {
		minted, err := c.MintClusterToken(ctx, r)
		if err != nil {
			return err
		}
		doc := struct {
			Token string `json:"token"`
			URL   string `json:"url"`
		}{minted.Token, minted.URL}
		return a.Show(doc, func(t cli.Table) {
			t.Row("token", doc.Token)
			t.Row("url", doc.URL)
			t.Row("valid", "once, until "+cli.FormatTime(minted.ExpiresAt.Time))
			if isLoopback(doc.URL) {
				t.Row("note", "only nodes on this machine reach that URL: for others, `ronbox cluster leave --last`,")
				t.Row("", "set cluster.bind, and `ronbox cluster init --advertise HOST:PORT`")
			}
			t.Row("next", "on the other machine: ronbox --data-dir DIR cluster join "+doc.URL+" --token TOKEN")
		})
	})
	return cmd
}

// isLoopback reports whether only this machine reaches the host of a URL.
func isLoopback(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	at := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || at.IsLoopback()
}

// Exit codes of cluster status --check.
const (
	exitUnhealthy = 20
	exitNoLeader  = 21
)

func (a app) statusCmd() *cobra.Command {
	check := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the members of the cluster, as the node sees them",
		Long: `Show the members of the cluster, as the node sees them: the leader, the role of each
member, the URL of its clients, how many entries of the log it lacks, and whether the
leader hears from it. failure_tolerance is the number of voters that may still fail
before the cluster stops answering. A member that has failed is not removed by itself. A
member is healthy if it answers and may lead: it has room, its disk is fast enough, and
its clock agrees with those of most members. If no leader answers, the node asks every
member, within a second, and the last line says what to do.

What you see, and what you do:

    a member answers NO       start it; disk lost: rejoin --wipe; machine lost: remove,
                              then join another
    no leader, exit 21        start the voters that do not answer; lost for ever: recover
                              --only-me where "applied" is highest
    unfit: no room, slow      another leads; make room on that member, or mend its disk
    unfit: its clock          payments go on; correct the clock of that member's machine
    every member is unfit     make room on, or mend, any two
    the term grows            elections repeat: look at load and network, or raise
                              cluster.heartbeat on all
    the lag of one grows      its disk or network; it never delays the other two
    cluster_address (doctor)  set cluster.advertise, and restart that member
    a node of another cluster decide which one goes on; members of the other rejoin --wipe

A disk that was stolen holds the keys of all members: remove the member, rotate the node's
key, and make the cluster anew (leave --last, then init). For a restart or an upgrade take
the others first; the leader hands over when it is told to stop.

Exit codes with --check, beside those of every verb: 20 a member is not healthy, or no
further voter may fail; 21 no leader is known.`,
		Example: `  ronbox --data-dir data cluster status
  ronbox --data-dir data cluster status --check
  ronbox --data-dir data cluster status --json | jq .failure_tolerance`,
	}
	cmd.Flags().BoolVar(&check, "check", false, "exit with 20 or 21 unless the cluster is whole")
	cmd.RunE = a.online(func(ctx context.Context, c clusterapi.Client, _ []string) error {
		s, err := c.ClusterStatus(ctx)
		if err != nil {
			return err
		}
		if err := a.Show(s, func(t cli.Table) { statusTable(t, s) }); err != nil || !check {
			return err
		}
		sick := slices.ContainsFunc(s.Members, func(m clusterapi.Member) bool { return !m.Healthy })
		switch {
		case s.Leader == "":
			a.Exit = exitNoLeader
		case sick || s.FailureTolerance == 0:
			a.Exit = exitUnhealthy
		}
		return nil
	})
	return cmd
}

func statusTable(t cli.Table, s clusterapi.ClusterStatus) {
	t.Row("MEMBER", "ROLE", "HEALTHY", "LAG", "URL")
	for _, m := range s.Members {
		role := m.Role
		if m.ID == s.Leader {
			role += ", leads"
		}
		if m.ID == s.Self {
			role += ", this node"
		}
		t.Row(m.ID, role, cli.Verdict(m.Healthy, "yes", "NO"), m.Lag, m.URL)
	}
	for _, m := range s.Members {
		if m.Note != "" {
			t.Row(m.ID + ": " + m.Note)
		}
	}
	if s.Leader == "" {
		t.Row(cli.Bad("no leader: requests are refused until a majority of the voters agrees on one"))
		t.Row(s.Advice())
		return
	}
	t.Row(tolerance(s.FailureTolerance))
}

// tolerance returns the sentence about the failures that the cluster survives.
func tolerance(n uint64) any {
	if n == 0 {
		return cli.Warn("no further voter may fail")
	}
	return "voters that may fail: " + strconv.FormatUint(n, 10)
}

func (a app) removeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID",
		Short: "Remove another node from the cluster",
		Long: `Remove another node from the cluster, for example one whose machine is lost. The node
need not run. It can come back only with a new token. A removal after which no majority
of the voters would be healthy is refused. A node removes itself with cluster leave.

The disk of the node keeps the secrets of the cluster, with which its owner can still
make tokens and certificates: erase it.`,
		Example: `  ronbox --data-dir data cluster remove 01JD8Q3T5YV2R9W7K4M6N8P0AB --yes
  ronbox --data-dir data cluster remove 01JD8Q3T5YV2R9W7K4M6N8P0AB --yes --json`,
		Args: cli.Exactly(1, "the id of one member"),
		RunE: a.online(func(ctx context.Context, c clusterapi.Client, args []string) error {
			if err := a.Confirm("remove the member "+args[0], args[0]); err != nil {
				return err
			}
			gone, err := c.RemoveMember(ctx, args[0])
			if err != nil {
				return err
			}
			return a.Show(gone, func(t cli.Table) { t.Row("removed", gone.ID) })
		}),
	}
}
