package db

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/ledger"
	"ronbox/cmd/ronbox/registry"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines/registry/rverify"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

func (a app) checkCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the integrity of a running or stopped node's database",
		Long: `Check the database of a running node: the node writes a copy beside the file, checks its
pages and chains, and removes it. Writes continue meanwhile; the disk needs room for the
copy. If no node runs, or with FILE, the file is checked directly.

Use ` + "`ronbox db verify`" + ` for a snapshot: it also checks the manifest. Exit 3: the check
failed.`,
		Example: `  ronbox --data-dir data db check
  ronbox db check data/ronbox.db --json`,
		Args: cli.AtMost(1, "at most one database file"),
		RunE: fromNodeOrFile(a, a.checkOnline, a.checkFile, a.showCheck),
	}
}

// checkDoc is the output of db check.
type checkDoc struct {
	OK       bool         `json:"ok"`
	File     string       `json:"file,omitzero"`  // absent for the running node
	Steps    []store.Step `json:"steps,omitzero"` // steps of an offline check
	Findings []string     `json:"findings"`
}

func (a app) showCheck(doc checkDoc) error {
	err := a.Show(doc, func(t cli.Table) {
		for _, s := range doc.Steps {
			t.Row(cli.Verdict(s.OK, "ok", "BAD"), s.Name, s.Detail)
		}
		if doc.Steps == nil {
			for _, f := range doc.Findings {
				t.Row(cli.Bad("BAD"), f)
			}
		}
		if doc.OK {
			t.Row(cli.OK("sound"), "nothing wrong was found")
		}
	})
	if err != nil || doc.OK {
		return err
	}
	return a.FoundBad(doc.Findings[0], "corrupt")
}

func (a app) checkOnline(c nodeapi.Client, ctx context.Context) (checkDoc, error) {
	p := a.Progress(cli.Bytes, "")
	defer p.End()
	last, err := c.CheckDB(ctx, func(l nodeapi.CheckLine) {
		p.Stage(l.Stage)
		p.At(l.Done, l.Total)
	})
	if err != nil {
		return checkDoc{}, err
	}
	return checkDoc{OK: last.Sound(), Findings: emptyIfNil(last.Findings)}, nil
}

func (a app) checkFile(ctx context.Context, file string) (checkDoc, error) {
	if err := cli.CheckRegular(file); err != nil {
		return checkDoc{}, err
	}
	alone, err := registry.TrustedGenesis("") // check the log without a trusted genesis
	if err != nil {
		return checkDoc{}, err
	}
	var found proofs
	p := a.Progress(cli.Bytes, "check")
	rep, err := store.Verify(ctx, file, nil, found.checks(ctx, alone, p), p.At)
	p.End()
	found.describe(&rep)
	doc := checkDoc{OK: rep.OK, File: file, Steps: rep.Steps, Findings: []string{}}
	if rep.Problem != "" {
		doc.Findings = []string{rep.Problem}
	}
	return doc, err
}

func emptyIfNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// verifyDoc is the output of db verify.
type verifyDoc struct {
	store.Report
	Seq    uint64 `json:"seq"`
	proofs        // absent if the checks did not run
}

func (a app) verifyCmd() *cobra.Command {
	var genesis string
	cmd := &cobra.Command{
		Use: "verify FILE",
		Example: `  ronbox db verify /backup/ronbox/ronbox-….db
  ronbox db verify /backup/ronbox/ronbox-….db --genesis b3:4487… --json`,
		Short: "Verify a snapshot or a stopped node's database",
		Long: `Verify a snapshot or a stopped node's database: the bytes against the manifest beside
it, every page, the audit chain, the state hash, token keys and revocations, the whole
registry log with all signatures, the ledger with its chain, sums and balances, and every
row of the other services. With --genesis the log must begin with that payload; without
it only the log's internal consistency is checked.

Exit 3: the verification failed.`,
		Args: cli.Exactly(1, "one database file"),
	}
	cmd.Flags().StringVar(&genesis, "genesis", "", "payload `hash` of the registry's version 1")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error { return a.verify(ctx, args[0], genesis) })
	return cmd
}

func (a app) verify(ctx context.Context, file, genesis string) error {
	want, err := registry.TrustedGenesis(genesis)
	if err != nil {
		return err
	}
	if err := cli.CheckRegular(file); err != nil {
		return err
	}
	p := a.Progress(cli.Bytes, "hash")
	doc := verifyDoc{}
	doc.Report, err = store.Verify(ctx, file, nil, doc.checks(ctx, want, p), p.At)
	p.End()
	if err != nil {
		return err
	}
	doc.Seq = doc.Report.Info.Seq
	doc.describe(&doc.Report)
	if err := a.Show(doc, func(t cli.Table) { verifyTable(t, doc) }); err != nil || doc.OK {
		return err
	}
	kind, _, _ := strings.Cut(doc.Problem, ":") // the step that failed
	if doc.Registry != nil && doc.Registry.Problem != nil {
		kind = string(doc.Registry.Problem.Kind)
	}
	return a.FoundBad(doc.Problem, kind)
}

func verifyTable(t cli.Table, d verifyDoc) {
	for _, s := range d.Steps {
		t.Row(cli.Verdict(s.OK, "ok", "BAD"), s.Name, s.Detail)
	}
	if !d.Manifest {
		t.Row("--", "manifest", "no manifest: the bytes of the file were not compared")
	}
	if d.Info.NodeID != "" { // the file could be read
		t.Row("b3", d.B3)
		t.Row("commands", d.Seq)
	}
}

// proofs are the results of the engines' checks of a file, as far as they ran.
type proofs struct {
	Registry *rverify.Report       `json:"registry,omitzero"`
	Ledger   *ledgerapi.LedgerHead `json:"ledger,omitzero"`

	sound string // what the check of the ledger has proved
}

// checks returns the engines' checks, which store their results in d.
func (d *proofs) checks(ctx context.Context, o rverify.Options, p *cli.Progress) []store.Check {
	own := []store.Check{{Name: "auth", Run: tokens.Check}, registry.Check(ctx, o, p, &d.Registry)}
	return slices.Concat(own, ledger.Checks(&d.Ledger, &d.sound), wiring.RowChecks(ctx))
}

// Checks returns the checks of `ronbox db verify`, without a trusted genesis of the registry.
func Checks(ctx context.Context, p *cli.Progress) ([]store.Check, error) {
	alone, err := registry.TrustedGenesis("")
	if err != nil {
		return nil, err
	}
	return new(proofs).checks(ctx, alone, p), nil
}

// describe adds figures to the steps.
func (d *proofs) describe(rep *store.Report) {
	for i, s := range rep.Steps {
		switch {
		case !s.OK:
		case s.Name == "auth":
			rep.Steps[i].Detail = fmt.Sprintf("%d rows", rep.Buckets[tokens.Bucket.Name])
		case s.Name == "registry" && d.Registry != nil:
			rep.Steps[i].Detail = fmt.Sprintf("%d versions, %d approvals, %d audit records", d.Registry.Versions,
				d.Registry.Approvals, d.Registry.AuditRecords)
			if d.Registry.Profile == rverify.ProfileFollowed {
				rep.Steps[i].Detail = fmt.Sprintf(
					"%d versions, %d approvals; followed: without the audit chain of the hub",
					d.Registry.Versions, d.Registry.Approvals)
			}
		case s.Name == "rewarder" && s.Detail == "":
			rep.Steps[i].Detail = rowsBelow(rep, "rw/")
		case (s.Name == "edge" || s.Name == "index") && s.Detail == "":
			rep.Steps[i].Detail = rowsBelow(rep, s.Name+"/")
		case s.Name == "ledger":
			rep.Steps[i].Detail = d.sound
		case s.Name == "ledger_head" && d.Ledger != nil:
			rep.Steps[i].Detail = fmt.Sprintf("%d batches, %d records, last root %s", d.Ledger.Batches, d.Ledger.Seq,
				d.Ledger.LastRoot)
		}
	}
}

// rowsBelow counts the rows of all buckets with names that begin with prefix.
func rowsBelow(rep *store.Report, prefix string) string {
	var all uint64
	for name, rows := range rep.Buckets {
		if strings.HasPrefix(name, prefix) {
			all += rows
		}
	}
	return fmt.Sprintf("%d rows", all)
}

// headRows shows the last batch of the ledger: later batches that a client has seen are not in the
// file.
func headRows(t cli.Table, h *ledgerapi.LedgerHead) {
	if h == nil {
		return
	}
	t.Row("ledger batch", strconv.FormatUint(h.Batches, 10))
	t.Row("ledger seq", strconv.FormatUint(h.Seq, 10))
	t.Row("ledger root", h.LastRoot)
}
