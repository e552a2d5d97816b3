package cluster

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/cluster/member"
	"ronbox/store"
)

// entry holds the flags of join and rejoin.
type entry struct{ token, advertise string }

func (a app) joinCmd() *cobra.Command {
	var e entry
	cmd := &cobra.Command{
		Use:   "join URL --token TOKEN",
		Short: "Prepare an empty directory for a node that joins a cluster",
		Long: `Prepare an empty data directory for a node that joins a cluster. ` + "`ronbox cluster token`" + `
prints URL and token. The directory gets a certificate and the secrets of the cluster,
no database: ` + "`ronbox serve`" + ` then joins, fetches the data from a member, and serves. A
join that is never served leaves nothing behind in the cluster.

The directory may hold a ronbox.toml. Refused are a wrong cluster, another release, and a
clock that differs by more than half a second; the token stays good then.`,
		Example: `  ronbox --data-dir data cluster join https://node1.example.org:7946 --token AX3k…
  ronbox --data-dir data cluster join https://node1.example.org:7946 --token @token --json && ronbox --data-dir data serve`,
		Args: cli.Exactly(1, "the URL of a peer port"),
	}
	a.entryFlags(cmd, &e)
	cli.Require(cmd, "token")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error {
		dir, o, err := a.applicant(args, e)
		if err != nil {
			return err
		}
		id, err := dir.Join(ctx, o)
		if err != nil {
			return err
		}
		return a.showJoin(membershipOf(id))
	})
	return cmd
}

func (a app) entryFlags(cmd *cobra.Command, e *entry) {
	cmd.Flags().StringVar(&e.token, "token", "", "the `token`, @FILE to read it from a file, - for stdin")
	cmd.Flags().StringVar(&e.advertise, "advertise", "",
		"`host:port` at which other nodes reach the peer port (default cluster.advertise)")
}

// applicant returns the directory and the options of join and rejoin.
func (a app) applicant(args []string, e entry) (*member.Dir, member.JoinOptions, error) {
	o := member.JoinOptions{Advertise: e.advertise, Now: a.Now}
	dir, err := a.dir()
	if err != nil {
		return nil, o, err
	}
	cfg, err := a.Config()
	if err != nil {
		return nil, o, err
	}
	o.LogKey = cfg.Registry.Checkpoint.LogKeyPath
	if len(args) == 1 {
		o.URL = args[0]
		if o.Advertise == "" {
			o.Advertise = cfg.Cluster.Address()
		}
		o.Token, err = a.readToken(e.token)
	}
	return dir, o, err
}

// readToken returns the token that a flag holds or names.
func (a app) readToken(flag string) (string, error) {
	file, named := strings.CutPrefix(flag, "@")
	switch {
	case named:
		raw, err := cli.ReadFile(file, cli.MaxTokenFile)
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(raw)), nil
	case flag == "-":
		raw, err := io.ReadAll(io.LimitReader(a.Stdin, cli.MaxTokenFile))
		if err != nil {
			return "", cli.ReadError("stdin", err)
		}
		return strings.TrimSpace(string(raw)), nil
	}
	return flag, nil
}

func (a app) showJoin(m membership) error {
	return a.Show(m, func(t cli.Table) {
		m.rows(t)
		t.Row("next", "`ronbox serve`: the node joins, fetches the data, and serves")
	})
}

func (a app) rejoinCmd() *cobra.Command {
	var e entry
	var wipe bool
	cmd := &cobra.Command{
		Use:   "rejoin --wipe [URL --token TOKEN]",
		Short: "Let a stopped member begin anew, with the data of the others",
		Long: `Let a stopped member begin anew under a new id: it gives up its database and its log, and
fetches the data from the others when it is served. Use it if serve ends with exit 65,
or after ` + "`ronbox cluster recover`" + ` on another node. The certificate of the node suffices;
a node that has lost it, or was removed, needs the URL and a token of
` + "`ronbox cluster token`" + `. The other members must have a majority without this one.

The database is not kept: what only this node has is lost.`,
		Example: `  ronbox --data-dir data cluster rejoin --wipe
  ronbox --data-dir data cluster rejoin --wipe https://node1.example.org:7946 --token @token --json`,
		Args: cli.AtMost(1, "at most the URL of a peer port"),
	}
	a.entryFlags(cmd, &e)
	cmd.Flags().BoolVar(&wipe, "wipe", false, "give up the database and the log of this node")
	cli.Require(cmd, "wipe")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error {
		if !wipe || (len(args) == 1) != (e.token != "") {
			return cli.Usage("want --wipe, and both URL and --token or neither")
		}
		dir, o, err := a.applicant(args, e)
		if err != nil {
			return err
		}
		id, err := dir.RejoinWipe(ctx, o)
		if err != nil {
			return err
		}
		return a.showJoin(membershipOf(id))
	})
	return cmd
}

func (a app) recoverCmd() *cobra.Command {
	var only bool
	var o member.RecoverOptions
	cmd := &cobra.Command{
		Use:   "recover --only-me",
		Short: "Make a stopped node the only member, after the majority is lost for good",
		Long: `Make a stopped node the only member of a new cluster with its data, after a majority of
the members is lost for good. Writes that only the lost members had are missing: clients
may have seen them. The node gets a new incarnation, and the registry refuses to go on if
a version is missing that it has signed.

The other members must not run again as they are: a majority of them would go on as the
old cluster. Neither cluster takes anything from the other, but both hold the same keys
and tokens, and a payment may be made in each. The verb is refused while another member
answers; --others-run makes the second cluster nevertheless, as for a drill. If they come
back, ` + "`ronbox cluster status`" + ` at them shows this node as one of another cluster. Let them
begin anew with ` + "`ronbox cluster rejoin --wipe`" + ` and a token of this one: what they have
accepted meanwhile is lost then, so export it first (` + "`ronbox ledger export`" + `).`,
		Example: `  ronbox --data-dir data cluster recover --only-me --yes
  ronbox --data-dir data cluster recover --only-me --yes --json`,
	}
	cmd.Flags().BoolVar(&only, "only-me", false, "the other members are lost for good")
	cmd.Flags().BoolVar(&o.OthersRun, "others-run", false, "the other members run, and stay a cluster of their own")
	cmd.Flags().StringVar(&o.Advertise, "advertise", "",
		"`host:port` at which other nodes reach the peer port (default as before)")
	cli.Require(cmd, "only-me")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error {
		if !only {
			return cli.Usage("want --only-me")
		}
		return a.recover(ctx, o)
	})
	return cmd
}

func (a app) recover(ctx context.Context, o member.RecoverOptions) error {
	dir, err := a.dir()
	if err != nil {
		return err
	}
	if err := a.Confirm("give up the other members, and writes that only they have", "only-me"); err != nil {
		return err
	}
	o.By = store.Event{Event: "cluster.recover", Decision: "accept", Reason: "operator"}
	id, err := dir.Recover(ctx, o)
	if err != nil {
		return err
	}
	m := membershipOf(id)
	return a.Show(m, func(t cli.Table) {
		m.rows(t)
		t.Row("others", "are another cluster now: before they serve again, `ronbox cluster rejoin --wipe` with a token")
		t.Row("next", "`ronbox serve`, look at it, then let nodes join with `ronbox cluster token`")
	})
}
