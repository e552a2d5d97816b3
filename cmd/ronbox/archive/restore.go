package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	to, identity, node, line, signer string
	at, stamp                        string
	seq                              uint64
	latest                           bool
}

func (a app) restoreCmd() *cobra.Command {
	var r restoring
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore a node's database at a moment, as a snapshot",
		Long: `Restore a node's database at a moment, as a verified snapshot with its manifest in --to.
It needs the target and the identity, and no node. ` + "`ronbox db restore`" + ` then makes it the
database of a node, which is read-only until ` + "`ronbox db accept-restore`" + `.

--at is a time such as 2026-11-23T14:05:00Z, or -10m from now: the state after the last
change up to then. --seq is the command number that ` + "`ronbox db info`" + ` shows. --stamp is
the ts of a receipt: its operation and all later ones are left out. --latest is the
newest moment. Nothing is written over.

Not in an archive: node.key, the registry's keys, the folder cluster and the edge's
objects, which are fetched again.

Exit 3: an object is damaged or missing; the message names it. Exit 20: the archive has no
such moment; the message has the nearest. Exit 21: several nodes or lines have it. Exit
22: the identity does not open it.`,
		Example: `  ronbox archive restore --target file:///mnt/usb/ronbox --identity archive.key --latest --to restored
  ronbox archive restore --target file:///mnt/usb/ronbox --identity archive.key --at -10m --to restored --json`,
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
	f.StringVar(&r.signer, "signer", "", "`key` that must have signed: signer of archive status")
	cli.Require(cmd, "to")
	cmd.MarkFlagsOneRequired("at", "seq", "stamp", "latest")
	cmd.MarkFlagsMutuallyExclusive("at", "seq", "stamp", "latest")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return a.restore(ctx, r) })
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
	NotArchived []string  `json:"not_archived"`
}

func (a app) restore(ctx context.Context, r restoring) error {
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
	o.Line, o.Signer = r.line, r.signer
	all, err := a.open(ctx, r.place, r.node)
	if err != nil {
		return err
	}
	out, err := all.Restore(ctx, r.to, m, o)
	p.End()
	if err != nil {
		return withNearest(err)
	}
	doc := restored{
		File: out.Manifest.Path, Manifest: out.Manifest.ManifestPath, B3: out.Manifest.B3.String(),
		StateHash: out.Manifest.StateHash.String(), Node: out.Node, Line: out.Line, Signer: out.Signer,
		Compared: r.signer != "", Seq: out.Reached.Seq, At: out.Reached.Time(), Later: out.Later,
		LaterBy:     out.LaterBy.Seconds(),
		NotArchived: []string{"node.key", "keys of the registry", "cluster/", "objects of the edge"},
	}
	return a.Show(doc, func(t cli.Table) { restoredTable(t, doc) })
}

// withNearest adds the nearest moments to the details of a moment that there is not.
func withNearest(err error) error {
	none, ok := errors.AsType[*history.MomentError](err)
	if !ok {
		return err
	}
	details := map[string]any{}
	for name, p := range map[string]*object.Point{"before": none.Before, "after": none.After} {
		if p != nil {
			details[name] = map[string]any{"at": p.Time(), "seq": p.Seq}
		}
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
	if d.Compared {
		t.Row("signer", d.Signer)
	} else {
		t.Row("signer", d.Signer+", not compared: see --signer")
	}
	if d.Later > 0 {
		t.Row("left out", fmt.Sprintf("%d commands of the %s after it", d.Later, seconds(d.LaterBy)))
	} else {
		t.Row("left out", "nothing that is in the line")
	}
	t.Row("not archived", strings.Join(d.NotArchived, ", "))
	t.Row("next", unit.Shell("ronbox", "--data-dir", "DIRECTORY", "db", "restore", d.File))
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

// verifying holds the flags of archive verify.
type verifying struct {
	place
	line, identity, textfile string
	restore                  bool
}

func (a app) verifyCmd() *cobra.Command {
	var v verifying
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify an archive, and prove that it can be restored",
		Long: `Verify an archive: the names, sums and signatures of all objects, their chain, and that
the bases are whole. With --identity every change is read, too. --restore restores the
newest moment into a temporary directory, verifies it as ` + "`ronbox db verify`" + ` does, proves
each base by the one before it, and shows how old the newest moment is (RPO) and how long
the restore took (RTO). --textfile writes both for the textfile collector of the node
exporter.

Exit 3: an object is damaged or missing; the output names it. Exit 22: the identity does
not open the archive.`,
		Example: `  ronbox archive verify --target file:///mnt/usb/ronbox
  ronbox archive verify --target file:///mnt/usb/ronbox --identity archive.key --restore --json`,
	}
	v.place.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&v.line, "line", "", "only this `line`")
	f.StringVar(&v.identity, "identity", "", "`file` that archive keygen wrote")
	f.BoolVar(&v.restore, "restore", false, "restore the newest moment, and remove it again")
	f.StringVar(&v.textfile, "textfile", "", "`file` for metrics of the restore")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return a.verify(ctx, v) })
	return cmd
}

// verified is the output of archive verify.
type verified struct {
	OK bool `json:"ok"`
	history.Checked
	Drill *drill `json:"drill,omitzero"`
}

type drill struct {
	Node      string  `json:"node"`
	Line      string  `json:"line"`
	Seq       uint64  `json:"seq"`
	StateHash string  `json:"state_hash"`
	Bases     int     `json:"bases"` // proven by the base before them
	RPO       float64 `json:"rpo_seconds"`
	RTO       float64 `json:"rto_seconds"`
}

func (a app) verify(ctx context.Context, v verifying) error {
	if v.textfile != "" && !v.restore {
		return cli.Usage("--textfile needs --restore")
	}
	p := a.Progress(cli.Bytes, "verify")
	defer p.End()
	o, err := a.options(ctx, v.identity, p)
	if err != nil {
		return err
	}
	o.Line = v.line
	all, err := a.open(ctx, v.place, "")
	if err != nil {
		return err
	}
	doc := verified{}
	if doc.Checked, err = all.Verify(ctx, o); err != nil {
		return err
	}
	if doc.OK = len(doc.Findings) == 0; doc.OK && v.restore {
		if doc.Drill, err = a.drill(ctx, all, o, v.textfile); err != nil {
			return err
		}
	}
	p.End()
	if err := a.Show(doc, func(t cli.Table) { verifiedTable(t, doc) }); err != nil || doc.OK {
		return err
	}
	return a.FoundBad(doc.Findings[0].Object+": "+doc.Findings[0].Problem, "archive")
}

func (a app) drill(ctx context.Context, all *history.Archive, o history.Options, textfile string) (*drill, error) {
	d, err := all.Rehearse(ctx, "", a.Now(), o)
	if err != nil {
		return nil, err
	}
	doc := &drill{
		Node: d.Restored.Node, Line: d.Restored.Line, Seq: d.Restored.Reached.Seq,
		StateHash: d.Restored.Manifest.StateHash.String(), Bases: d.Bases, RPO: d.Behind.Seconds(),
		RTO: d.Took.Seconds(),
	}
	if textfile == "" {
		return doc, nil
	}
	const form = "archive_drill_success_seconds %d\narchive_drill_rpo_seconds %g\narchive_drill_rto_seconds %g\n"
	text := fmt.Sprintf(form, a.Now().Unix(), doc.RPO, doc.RTO)
	return doc, cli.ReplaceFile(textfile, []byte(text), os.FileMode(0o644))
}

func verifiedTable(t cli.Table, d verified) {
	for _, f := range d.Findings {
		t.Row(cli.Bad("BAD"), f.Object, f.Problem)
	}
	for _, name := range d.Sending {
		t.Row("--", name, "being sent, or its end is missing: the base before it is used")
	}
	t.Row("read", fmt.Sprintf("%d lines, %d objects of %s", d.Lines, d.Objects, cli.Bytes(d.Bytes)))
	t.Row("bases", fmt.Sprintf("%d complete", d.Bases))
	if d.Entries > 0 {
		t.Row("changes", fmt.Sprintf("%d groups", d.Entries))
	}
	if d.Drill != nil {
		t.Row("restored", fmt.Sprintf("command %d of node %s", d.Drill.Seq, d.Drill.Node))
		t.Row("proven", fmt.Sprintf("%d bases by the one before them", d.Drill.Bases))
		t.Row("state hash", d.Drill.StateHash)
		t.Row("RPO", seconds(d.Drill.RPO))
		t.Row("RTO", seconds(d.Drill.RTO))
	}
	if d.OK {
		t.Row(cli.OK("sound"), "nothing wrong was found")
	}
}
