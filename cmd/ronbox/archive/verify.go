package archive

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/archive/history"
)

// verifying holds the flags of archive verify.
type verifying struct {
	place
	node, line, identity, textfile string
	restore                        bool
}

func (a app) verifyCmd() *cobra.Command {
	var v verifying
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify an archive, and prove that it can be restored",
		Long: `Verify an archive: the names, sums and signatures of all objects, their chain, and that
the bases and the files of closed periods are whole. With --identity every change and all
of these files are read, too. --restore restores the newest moment of each node into a
temporary directory, verifies it as ` + "`ronbox db verify`" + ` does, proves each base by the one
before it, and shows how old the newest moment is (RPO) and how long the restore took
(RTO). --textfile writes both for the textfile collector of the node exporter. Where nodes
with keys of their own share an archive, --node names one.

Exit 3: an object is damaged or missing; the output names it. Exit 20: there is nothing
that can be restored. Exit 22: the identity does not open the archive.`,
		Example: `  ronbox archive verify --target file:///mnt/usb/ronbox
  ronbox archive verify --target file:///mnt/usb/ronbox --identity archive.key --restore --json`,
	}
	v.place.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&v.node, "node", "", "only this `node`")
	f.StringVar(&v.line, "line", "", "only this `line`")
	f.StringVar(&v.identity, "identity", "", "`file` that archive keygen wrote")
	f.BoolVar(&v.restore, "restore", false, "restore the newest moment, and remove it again")
	f.StringVar(&v.textfile, "textfile", "", "`file` for metrics of the restore")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return a.verify(ctx, v) })
	return cmd
}

// verified is the output of archive verify.
type verified struct {
	OK    bool           `json:"ok"`
	Nodes []verifiedNode `json:"nodes"`
}

type verifiedNode struct {
	Node string `json:"node"`
	history.Checked
	Drill *drill `json:"drill,omitzero"`
}

type drill struct {
	Line      string   `json:"line"`
	Seq       uint64   `json:"seq"`
	StateHash string   `json:"state_hash"`
	Bases     int      `json:"bases"`                // proven by the base before them
	RPO       *float64 `json:"rpo_seconds,omitzero"` // absent if the clock of the node ran ahead
	RTO       float64  `json:"rto_seconds"`
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
	all, err := a.open(ctx, v.place, v.node)
	if err != nil {
		return err
	}
	doc, holds := verified{OK: true, Nodes: []verifiedNode{}}, 0
	for _, node := range all.Nodes() {
		one, err := a.verifyNode(ctx, node, all.Of(node), o, v.restore)
		if err != nil {
			return err
		}
		if holds += one.Lines; !v.restore {
			holds += one.Periods
		}
		if one.Objects+len(one.Findings) > 0 {
			doc.OK = doc.OK && len(one.Findings) == 0
			doc.Nodes = append(doc.Nodes, one)
		}
	}
	p.End()
	if doc.OK && holds == 0 { // a wrong --node or --line proves nothing
		return &history.MomentError{}
	}
	if v.restore {
		doc.bare()
	}
	if doc.OK && v.textfile != "" {
		if err := cli.ReplaceFile(v.textfile, []byte(a.textfile(doc)), os.FileMode(0o644)); err != nil {
			return err
		}
	}
	if err := a.Show(doc, func(t cli.Table) { verifiedTable(t, doc) }); err != nil || doc.OK {
		return err
	}
	for _, n := range doc.Nodes {
		for _, f := range n.Findings {
			return a.FoundBad(f.Object+": "+f.Problem, "archive")
		}
	}
	return nil
}

// bare finds the nodes without a line, of which no drill can be done.
func (d *verified) bare() {
	for i := range d.Nodes {
		if n := &d.Nodes[i]; n.Lines == 0 {
			d.OK = false
			n.Findings = append(n.Findings, history.Finding{
				Object: n.Node, Problem: "it has files of closed periods alone, so no moment of it can be restored",
			})
		}
	}
}

// verifyNode verifies the archive of one node. With restore it restores what it has found sound.
func (a app) verifyNode(
	ctx context.Context, node string, of *history.Archive, o history.Options, restore bool,
) (n verifiedNode, err error) {
	n.Node = node
	if n.Checked, err = of.Verify(ctx, o); err != nil || n.Lines == 0 || len(n.Findings) > 0 || !restore {
		return n, err
	}
	d, err := of.Rehearse(ctx, "", a.Now(), o)
	if err != nil {
		return n, err
	}
	n.Drill = &drill{
		Line: d.Restored.Line, Seq: d.Restored.Reached.Seq, StateHash: d.Restored.Manifest.StateHash.String(),
		Bases: d.Bases, RTO: d.Took.Seconds(),
	}
	if d.Ahead == 0 {
		rpo := d.Behind.Seconds()
		n.Drill.RPO = &rpo
		return n, nil
	}
	n.Notes = append(n.Notes, history.Finding{
		Object: node + "/" + d.Restored.Line,
		Problem: fmt.Sprintf("the clock ran ahead: the newest moment is %s from now, so its age is not known",
			seconds(d.Ahead.Seconds())),
	})
	return n, nil
}

// textfile returns the metrics of the drills, of which each node has one.
func (a app) textfile(doc verified) string {
	var success, rpo, rto strings.Builder
	for _, n := range doc.Nodes {
		fmt.Fprintf(&success, "archive_drill_success_seconds{node=%q} %d\n", n.Node, a.Now().Unix())
		if n.Drill.RPO != nil {
			fmt.Fprintf(&rpo, "archive_drill_rpo_seconds{node=%q} %g\n", n.Node, *n.Drill.RPO)
		}
		fmt.Fprintf(&rto, "archive_drill_rto_seconds{node=%q} %g\n", n.Node, n.Drill.RTO)
	}
	return success.String() + rpo.String() + rto.String()
}

func verifiedTable(t cli.Table, doc verified) {
	for _, d := range doc.Nodes {
		t.Row("node", d.Node)
		for _, f := range d.Findings {
			t.Row(cli.Bad("BAD"), f.Object, f.Problem)
		}
		for _, f := range d.Notes {
			t.Row("--", f.Object, f.Problem)
		}
		t.Row("read", fmt.Sprintf("%d lines, %d objects of %s", d.Lines, d.Objects, cli.Bytes(d.Bytes)))
		t.Row("bases", fmt.Sprintf("%d complete", d.Bases))
		if d.Periods > 0 {
			t.Row("periods", fmt.Sprintf("%d complete", d.Periods))
		}
		if d.Entries > 0 {
			t.Row("changes", fmt.Sprintf("%d groups", d.Entries))
		}
		if d.Drill != nil {
			t.Row("restored", fmt.Sprintf("command %d of line %s", d.Drill.Seq, d.Drill.Line))
			t.Row("proven", fmt.Sprintf("%d bases by the one before them", d.Drill.Bases))
			t.Row("state hash", d.Drill.StateHash)
			if d.Drill.RPO != nil {
				t.Row("RPO", seconds(*d.Drill.RPO))
			}
			t.Row("RTO", seconds(d.Drill.RTO))
		}
		if len(d.Findings) == 0 {
			t.Row(cli.OK("sound"), "nothing wrong was found")
		}
	}
}
