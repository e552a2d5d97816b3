package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/archive"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
)

// right is a step of archive check.
type right struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitzero"`
}

type checkDoc struct {
	OK     bool    `json:"ok"`
	Rights []right `json:"rights"`
}

func (a app) checkCmd() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try what the target permits",
		Long: `Try what the target permits: write, refuse an overwrite, read, list and delete an object
named probe/…. A new target, which must be an empty directory or bucket, gets its mark,
unless the node has used it: then the disk is not mounted.
Without the right to delete set ` + "`archive.keep`" + ` to "0s", and prune elsewhere. A server that
would write over an object is asked for each name first.

Exit 3: it cannot be used as an archive. Exit 4: it cannot be reached. Exit 5: it denies.`,
		Example: `  ronbox archive check --target file:///mnt/usb/ronbox
  ronbox --data-dir data archive check --json`,
	}
	p.flags(cmd)
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return a.check(ctx, p) })
	return cmd
}

func (a app) check(ctx context.Context, p place) (err error) {
	t, c, err := a.at(p)
	if err != nil {
		return err
	}
	cfg, err := a.Config()
	if err != nil {
		cfg = a.FallbackConfig() // the flags may name all that there is to name
	}
	if err := t.Open(ctx, !c.Used(cfg.Path(archive.Folder))); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ronbox-archive-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, name := filepath.Join(dir, "probe"), "probe/"+ulid.Make().String()
	if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
		return err
	}
	if err := t.Create(ctx, name, file); err != nil {
		return err
	}
	doc := checkDoc{OK: true, Rights: []right{{Name: "write", OK: true}}}
	add := func(name string, err error, needed bool) {
		r := right{Name: name, OK: err == nil}
		if err != nil {
			r.Detail = err.Error()
			doc.OK = doc.OK && !needed
		}
		doc.Rights = append(doc.Rights, r)
	}
	again := t.Create(ctx, name, file)
	if again == nil {
		again = errors.New("an object was written over")
	} else if errors.Is(again, target.ErrExists) {
		again = nil
	}
	add("refuse an overwrite", again, true)
	if refuses, err := target.Exclusive(ctx, t); err != nil || !refuses {
		doc.Rights[1].Detail = "not by itself: it is asked for each name first. Let one node alone write into it"
	}
	raw, read := t.Read(ctx, name, 0, 100)
	if read == nil && string(raw) != name {
		read = fmt.Errorf("it reads %q", raw)
	}
	add("read", read, false)
	listed := errors.New("it is not listed")
	if bad := t.List(ctx, "probe/", "", func(i target.Item) bool {
		if i.Name == name {
			listed = nil
		}
		return listed != nil
	}); bad != nil {
		listed = bad
	}
	add("list", listed, false)
	add("delete", t.Delete(ctx, name), false)
	if err := a.Show(doc, func(tab cli.Table) {
		for _, r := range doc.Rights {
			tab.Row(cli.Verdict(r.OK, "ok", "NO"), r.Name, r.Detail)
		}
	}); err != nil || doc.OK {
		return err
	}
	return a.FoundBad("the target cannot be used as an archive", "target")
}

type lineDoc struct {
	Node        string    `json:"node"`
	Line        string    `json:"line"`
	Incarnation string    `json:"incarnation,omitzero"`
	Signer      string    `json:"signer,omitzero"`
	First       time.Time `json:"first,omitzero"` // the oldest moment; absent if there is no complete base
	FirstSeq    uint64    `json:"first_seq"`
	Last        time.Time `json:"last,omitzero"`
	LastSeq     uint64    `json:"last_seq"`
	Bases       int       `json:"bases"` // complete ones
	Objects     int       `json:"objects"`
	Bytes       int64     `json:"bytes"`
	Gap         string    `json:"gap,omitzero"`           // the newest objects cannot be read
	AheadBy     float64   `json:"ahead_seconds,omitzero"` // its stamps were ahead of the clock
}

type listDoc struct {
	Lines   []lineDoc   `json:"lines"`
	Periods []periodDoc `json:"periods"` // copies of files of closed periods
	Strange int         `json:"strange"` // names that no node has made
}

func (a app) listCmd() *cobra.Command {
	var p place
	var node string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the nodes, lines, moments and closed periods of an archive",
		Long: `List the nodes and lines of an archive, oldest first, with the first and the last moment
that each can restore. A line ends when the node was restored, migrated or short of space;
moments between the end of a line and the first base of the next one cannot be restored.
Then come the copies of the files of closed periods. It needs no node and no identity.`,
		Example: `  ronbox archive list --target file:///mnt/usb/ronbox
  ronbox --data-dir data archive list --json | jq -r '.lines[-1].last'`,
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&node, "node", "", "only this `node`")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return a.list(ctx, p, node) })
	return cmd
}

func (a app) list(ctx context.Context, p place, node string) error {
	all, err := a.open(ctx, p, node)
	if err != nil {
		return err
	}
	doc := listDoc{Lines: []lineDoc{}, Strange: all.Strange}
	if doc.Periods, err = listPeriods(ctx, all); err != nil {
		return err
	}
	for _, l := range all.Lines {
		d := lineDoc{Node: l.Node, Line: l.ID, Objects: len(l.Logs), Bytes: l.Bytes}
		for _, b := range l.Bases {
			d.Objects += len(b.Parts)
		}
		s, err := all.Span(ctx, l)
		if err != nil {
			return err
		}
		if s != nil {
			d.Incarnation, d.Signer, d.Bases = s.Incarnation, s.Signer, len(s.Whole)
			d.First, d.FirstSeq, d.Last, d.LastSeq = s.First.Time(), s.First.Seq, s.Last.Time(), s.Last.Seq
			if s.Bad != nil {
				d.Gap = s.Bad.Error()
			}
			if s.Ahead > time.Minute {
				d.AheadBy = s.Ahead.Seconds()
			}
		}
		doc.Lines = append(doc.Lines, d)
	}
	return a.Show(doc, func(t cli.Table) { listTable(t, doc) })
}

func listTable(t cli.Table, doc listDoc) {
	if len(doc.Lines)+len(doc.Periods) == 0 {
		t.Row("the archive is empty")
	}
	for _, l := range doc.Lines {
		t.Row("node "+l.Node, "line "+l.Line)
		if l.Bases == 0 {
			t.Row("  no complete base", fmt.Sprintf("%d objects, %s", l.Objects, cli.Bytes(l.Bytes)))
			continue
		}
		t.Row("  from", fmt.Sprintf("%s, command %d", l.First.Format(time.RFC3339Nano), l.FirstSeq))
		t.Row("  to", fmt.Sprintf("%s, command %d", l.Last.Format(time.RFC3339Nano), l.LastSeq))
		t.Row("  holds", fmt.Sprintf("%d bases, %d objects, %s", l.Bases, l.Objects, cli.Bytes(l.Bytes)))
		t.Row("  signer", l.Signer)
		t.Opt("  gap", l.Gap)
		if l.AheadBy > 0 {
			t.Row("  clock", fmt.Sprintf("stamps are %s ahead of the time at which they were sent: use --seq",
				seconds(l.AheadBy)))
		}
	}
	listedPeriods(t, doc.Periods)
	if doc.Strange > 0 {
		t.Row("ignored", fmt.Sprintf("%d objects that no node has made", doc.Strange))
	}
}

func (a app) pruneCmd() *cobra.Command {
	var p place
	var keep string
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete what is older than the time to keep",
		Long: `Delete from an archive what no moment of the time to keep needs. Nodes do this each hour,
unless ` + "`archive.keep`" + ` is "0s". The two newest complete bases of a node, and everything
after them, always stay, and so do the files of closed periods.`,
		Example: `  ronbox archive prune --target file:///mnt/usb/ronbox --keep 30d --dry-run
  ronbox --data-dir data archive prune --yes --json`,
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&keep, "keep", "", "`TIME` of which every moment stays, such as 30d (default archive.keep)")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be deleted")
	cmd.RunE = a.Verb(func(ctx context.Context, _ []string) error { return a.prune(ctx, p, keep, dry) })
	return cmd
}

// keep returns the time to keep that the flag or the configuration names.
func (a app) keep(text string) (time.Duration, error) {
	if text == "" {
		cfg, err := a.Config()
		if err != nil {
			return 0, err
		}
		if cfg.Archive.Keep == 0 {
			return 0, cli.Usage("archive.keep is 0s: name the time to keep with --keep")
		}
		return cfg.Archive.Keep.D(), nil
	}
	keep, err := unit.ParseDuration(text)
	if err != nil || keep < 0 {
		return 0, cli.Usage("--keep %s: want a time such as 30d", text)
	}
	return keep.D(), nil
}

type pruneDoc struct {
	Deleted []string `json:"deleted"`
	Bytes   int64    `json:"bytes"`
	DryRun  bool     `json:"dry_run"`
}

func (a app) prune(ctx context.Context, p place, text string, dry bool) error {
	keep, err := a.keep(text)
	if err != nil {
		return err
	}
	doc := pruneDoc{DryRun: dry}
	by := history.Pruning{Keep: keep, Now: a.Now(), Deleted: func(i target.Item) {
		doc.Deleted = append(doc.Deleted, i.Name)
	}}
	listed := func(dry bool) error {
		by.DryRun, doc.Deleted = dry, []string{}
		all, err := a.open(ctx, p, "")
		if err != nil {
			return err
		}
		_, doc.Bytes, err = all.Prune(ctx, by)
		return err
	}
	if err := listed(true); err != nil {
		return err
	}
	if n := len(doc.Deleted); n > 0 && !dry {
		fact := fmt.Sprintf("%d objects of %s are older than the time to keep", n, cli.Bytes(doc.Bytes))
		if err := a.Agree(fact, "delete them"); err != nil {
			return err
		}
		if err := listed(false); err != nil { // while the question waited, the node may have pruned
			return err
		}
	}
	return a.Show(doc, func(t cli.Table) {
		for _, name := range doc.Deleted {
			t.Row(name)
		}
		what := "deleted"
		if dry {
			what = "to delete"
		}
		t.Row(what, fmt.Sprintf("%d objects, %s", len(doc.Deleted), cli.Bytes(doc.Bytes)))
	})
}
