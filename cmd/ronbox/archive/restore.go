package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/db"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
)

// restoring holds the flags of archive restore.
type restoring struct {
	place
	to, identity, node, line      string
	at, stamp, periods, statement string
	signers                       []string
	seq                           uint64
	latest                        bool
}

func (a app) restoreCmd() *cobra.Command {
	var r restoring
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore a node's database at a moment, as a snapshot, or the files of closed periods",
		Long: `Restore a node's database at a moment, as a verified snapshot with its manifest in --to.
It needs the target and the identity, and no node. ` + "`ronbox db restore`" + ` then makes it the
database of a node, which is read-only until ` + "`ronbox db accept-restore`" + `.

--at is a time such as 2026-11-23T14:05:00Z, or -10m from now: the state after the last
change up to then. --seq is the command number that ` + "`ronbox db info`" + ` shows. --stamp is
the ts of a receipt: its operation and all later ones are left out. --latest is the
newest moment. Nothing is written over.

--periods restores the files of the closed periods of the ledger instead, for
` + "`ronbox ledger verify --periods`" + `: those up to the newest one, or up to the one with
--statement, as ` + "`ronbox archive list --json`" + ` and the horizon of a ledger have it. A file
that is there and the same stays. Each member of a cluster signs with a key of its own:
give --signer for each. Exit 3, too, if periods before them are missing.

Not in an archive: node.key, the registry's keys, the folder cluster and the edge's
objects, which are fetched again.

Exit 3: an object is damaged or missing; the message names it. Exit 20: the archive has no
such moment; the message has the nearest. Exit 21: the archive is of several nodes, or
several lines have the moment: name one with --node or --line. Or its periods are of
several histories, because the node was restored: name one with --statement. Exit 22: the
identity does not open it.`,
		Example: `  ronbox archive restore --target file:///mnt/usb/ronbox --identity archive.key --latest --to restored
  ronbox archive restore --target file:///mnt/usb/ronbox --identity archive.key --at -10m --to restored --json
  ronbox archive restore --target file:///mnt/usb/ronbox --identity archive.key --periods periods`,
	}
	r.place.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.to, "to", "", "`DIRECTORY` of the snapshot")
	f.StringVar(&r.identity, "identity", "", "`file` that archive keygen wrote")
	f.StringVar(&r.at, "at", "", "the last change up to this `TIME`: RFC 3339, or -10m from now")
	f.Uint64Var(&r.seq, "seq", 0, "the change that ends with this command `number`")
	f.StringVar(&r.stamp, "stamp", "", "the last change before the receipt with this `ts`")
	f.BoolVar(&r.latest, "latest", false, "the newest moment")
	f.StringVar(&r.node, "node", "", "only this `node`")
	f.StringVar(&r.line, "line", "", "only this `line`")
	f.StringArrayVar(&r.signers, "signer", nil, "`key` that must have signed: signer of archive status")
	f.StringVar(&r.periods, "periods", "", "`DIRECTORY` for the files of closed periods")
	f.StringVar(&r.statement, "statement", "", "`digest` of the statement of the last period (default the newest)")
	cmd.MarkFlagsOneRequired("to", "periods")
	cmd.MarkFlagsOneRequired("at", "seq", "stamp", "latest", "periods")
	cmd.MarkFlagsMutuallyExclusive("at", "seq", "stamp", "latest", "periods")
	for _, other := range []string{"to", "line"} {
		cmd.MarkFlagsMutuallyExclusive(other, "periods")
		cmd.MarkFlagsMutuallyExclusive(other, "statement")
	}
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error {
		periods := cmd.Flags().Changed("periods")
		switch {
		case periods && r.periods == "":
			return cli.Usage("--periods: want a folder")
		case slices.Contains(r.signers, ""):
			return cli.Usage("--signer: want the key that the archive shows, such as in `ronbox archive status`")
		case periods:
			return a.restorePeriods(ctx, r)
		}
		return a.restore(ctx, r)
	})
	return cmd
}

// moment returns the moment that the flags name.
func (r restoring) moment(now time.Time) (m history.Moment, err error) {
	m = history.Moment{Seq: r.seq, Latest: r.latest}
	switch {
	case strings.HasPrefix(r.at, "-"):
		var ago unit.Duration
		if ago, err = unit.ParseDuration(r.at[1:]); err == nil {
			m.At = now.Add(-ago.D())
		}
	case r.at != "":
		m.At, err = time.Parse(time.RFC3339Nano, r.at)
	case r.stamp != "":
		m.Stamp, err = time.Parse(time.RFC3339Nano, r.stamp)
	case !r.latest && r.seq == 0:
		return m, cli.Usage("--seq 0: want the number of a command")
	}
	if err != nil {
		return m, cli.Usage("%q is not a time such as 2026-11-23T14:05:00Z", r.at+r.stamp)
	}
	return m, nil
}

// restored is the output of archive restore.
type restored struct {
	File        string    `json:"file"`
	Manifest    string    `json:"manifest"`
	B3          string    `json:"b3"`
	StateHash   string    `json:"state_hash"`
	Node        string    `json:"node"`
	Line        string    `json:"line"`
	Signer      string    `json:"signer"`
	Compared    bool      `json:"signer_compared"`
	Seq         uint64    `json:"seq"`
	At          time.Time `json:"at"`
	Later       uint64    `json:"later_commands"` // that the line has after it
	LaterBy     float64   `json:"later_seconds"`
	NewerLine   string    `json:"newer_line,omitzero"` // that has no complete base yet
	NotArchived []string  `json:"not_archived"`
}

func (a app) restore(ctx context.Context, r restoring) error {
	if len(r.signers) > 1 {
		return cli.Usage("--signer: one key has signed a line; several are for --periods")
	}
	m, err := r.moment(a.Now())
	if err != nil {
		return err
	}
	p := a.Progress(cli.Bytes, "base")
	defer p.End()
	o, err := a.options(ctx, r.identity, p)
	if err != nil {
		return err
	}
	o.Line, o.Signer = r.line, strings.Join(r.signers, "")
	all, err := a.open(ctx, r.place, r.node)
	if err != nil {
		return err
	}
	out, err := all.Restore(ctx, r.to, m, o)
	p.End()
	if err != nil {
		return withChoices(err)
	}
	doc := restored{
		File: out.Manifest.Path, Manifest: out.Manifest.ManifestPath, B3: out.Manifest.B3.String(),
		StateHash: out.Manifest.StateHash.String(), Node: out.Node, Line: out.Line, Signer: out.Signer,
		Compared: o.Signer != "", Seq: out.Reached.Seq, At: out.Reached.Time(), Later: out.Later,
		LaterBy: out.LaterBy.Seconds(), NewerLine: out.Newer,
		NotArchived: []string{"node.key", "keys of the registry", "cluster/", "objects of the edge"},
	}
	return a.Show(doc, func(t cli.Table) { restoredTable(t, doc) })
}

// withChoices adds what may be named instead to the details of an error.
func withChoices(err error) error {
	details := map[string]any{}
	if none, ok := errors.AsType[*history.MomentError](err); ok {
		for name, p := range map[string]*object.Point{"before": none.Before, "after": none.After} {
			if p != nil {
				details[name] = map[string]any{"at": p.Time(), "seq": p.Seq}
			}
		}
	}
	if several, ok := errors.AsType[*history.SeveralError](err); ok {
		lines := []string{}
		for _, l := range several.Lines {
			lines = append(lines, l.ID)
		}
		details["lines"] = lines
	}
	if several, ok := errors.AsType[*history.HistoriesError](err); ok {
		heads := []map[string]any{}
		for _, h := range several.Heads {
			heads = append(heads, map[string]any{"period": h.Period, "statement": h.Statement})
		}
		details["histories"] = heads
	}
	if several, ok := errors.AsType[*history.NodesError](err); ok {
		details["nodes"] = several.Nodes
	}
	if len(details) == 0 {
		return err
	}
	return &cli.Failure{Err: err, Details: details}
}

func restoredTable(t cli.Table, d restored) {
	t.Row("file", d.File)
	t.Row("manifest", d.Manifest)
	t.Row("moment", fmt.Sprintf("%s, command %d", d.At.Format(time.RFC3339Nano), d.Seq))
	t.Row("state hash", d.StateHash)
	t.Row("node", d.Node)
	t.Row("line", d.Line)
	signerRow(t, d.Signer, d.Compared)
	if d.Later > 0 {
		t.Row("left out", fmt.Sprintf("%d commands of the %s after it", d.Later, seconds(d.LaterBy)))
	} else {
		t.Row("left out", "nothing that is in the line")
	}
	if d.NewerLine != "" {
		t.Row("newer", "line "+d.NewerLine+", of which no more can be restored: its next base is not complete")
	}
	t.Row("not archived", strings.Join(d.NotArchived, ", "))
	t.Row("next", unit.Shell("ronbox", "--data-dir", "DIRECTORY", "db", "restore", d.File))
}

func signerRow(t cli.Table, signer string, compared bool) {
	if !compared {
		signer += ", not compared: see --signer"
	}
	t.Row("signer", signer)
}

// options returns what restore and verify have in common.
func (a app) options(ctx context.Context, identity string, p *cli.Progress) (o history.Options, err error) {
	if o.Identities, err = identities(identity); err != nil {
		return o, err
	}
	if o.Checks, err = db.Checks(ctx, p); err != nil {
		return o, err
	}
	o.Versions = map[string]string{"ronbox": a.Build.Version}
	for _, s := range wiring.All() {
		if s.Schema != "" {
			o.Versions[s.Name] = s.Schema
		}
	}
	o.Progress = func(stage string, done, total int64) {
		p.Stage(stage)
		p.At(done, total)
	}
	return o, nil
}
