package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
	"ronbox/engines/ledger/record"
)

// restoredPeriods is the output of archive restore --periods.
type restoredPeriods struct {
	Node     string                   `json:"node"`
	Signers  []string                 `json:"signers"`
	Compared bool                     `json:"signer_compared"`
	Periods  []history.RestoredPeriod `json:"periods"` // newest first
	Missing  []history.Gap            `json:"missing"` // periods up to the newest that the archive does not have
	Cut      uint64                   `json:"incomplete,omitzero"`
}

// restorePeriods writes the files of closed periods.
func (a app) restorePeriods(ctx context.Context, r restoring) (err error) {
	of := history.PeriodsOf{Name: record.PeriodFile, Signers: r.signers}
	if r.statement != "" {
		if of.Statement, err = b3.Parse(r.statement); err != nil {
			return cli.Usage("--statement: want a digest as `ronbox archive list --json` shows it: %w", err)
		}
	}
	p := a.Progress(cli.Bytes, "periods")
	defer p.End()
	if of.Options, err = a.options(ctx, r.identity, p); err != nil {
		return err
	}
	all, err := a.open(ctx, r.place, r.node)
	if err != nil {
		return err
	}
	out, err := all.RestorePeriods(ctx, r.periods, of)
	p.End()
	if err != nil {
		return withChoices(err)
	}
	doc := restoredPeriods{out.Node, out.Signers, len(r.signers) > 0, out.Files, out.Missing, out.Cut}
	if err := a.Show(doc, func(t cli.Table) { periodsTable(t, doc, r.periods) }); err != nil || len(doc.Missing) == 0 {
		return err
	}
	var missing []string
	for _, g := range doc.Missing {
		missing = append(missing, g.String())
	}
	return a.FoundBad(fmt.Sprintf("%s/periods: there is no complete copy of %s", doc.Node, strings.Join(missing, ", ")),
		"archive")
}

func periodsTable(t cli.Table, doc restoredPeriods, dir string) {
	for _, f := range doc.Periods {
		t.Row("period", f.Period, cli.Bytes(f.Bytes), f.File)
	}
	for _, signer := range doc.Signers {
		signerRow(t, signer, doc.Compared)
	}
	if doc.Cut != 0 {
		t.Row("left out", fmt.Sprintf("period %d, of which the copy is not complete", doc.Cut))
	}
	t.Row("next", unit.Shell("ronbox", "ledger", "verify", "FILE", "--periods", dir))
}

// periodDoc is a copy of the file of a closed period in archive list.
type periodDoc struct {
	Node      string    `json:"node"`
	Period    uint64    `json:"period"`
	Statement b3.Digest `json:"statement,omitzero"` // absent if the copy is not complete
	B3        b3.Digest `json:"b3,omitzero"`        // of the file
	Bytes     int64     `json:"bytes"`              // of its objects
	Objects   int       `json:"objects"`
	Complete  bool      `json:"complete"`
}

// listPeriods returns the copies of files of closed periods.
func listPeriods(ctx context.Context, all *history.Archive) ([]periodDoc, error) {
	docs := []periodDoc{}
	for _, c := range all.Periods {
		h, whole, err := all.Whole(ctx, c)
		if err != nil && !errors.Is(err, object.ErrDamaged) { // the verb verify names it
			return nil, err
		}
		d := periodDoc{Node: c.Node, Period: c.N, Bytes: c.Bytes(), Objects: len(c.Parts), Complete: whole}
		if whole {
			d.Statement, d.B3 = h.Statement, h.B3
		}
		docs = append(docs, d)
	}
	return docs, nil
}

func listedPeriods(t cli.Table, docs []periodDoc) {
	for i, d := range docs {
		if i == 0 || docs[i-1].Node != d.Node {
			t.Row("node " + d.Node)
		}
		state := ""
		if !d.Complete {
			state = ", not complete"
		}
		holds := fmt.Sprintf("%d objects, %s%s", d.Objects, cli.Bytes(d.Bytes), state)
		t.Row(fmt.Sprintf("  period %d", d.Period), holds)
	}
}
