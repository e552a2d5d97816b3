package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

func (a *app) dbCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the node's database while it runs, or a database file that no node holds",
		Long: `Check the node's database while it runs: it writes a copy beside the file, checks that
page by page and chain by chain, and removes it. Writers go on meanwhile; there must be
room for the copy. When no node runs, or with FILE, the file itself is checked here.

A snapshot is checked by ` + "`ronbox db verify`" + `, which knows its manifest. Exit 3: checked,
and found bad.`,
		Example: `  ronbox --data-dir data db check
  ronbox db check data/ronbox.db --json`,
		Args: atMost(1, "at most one database file"),
		RunE: a.verb(a.dbCheck),
	}
}

// checkDoc is what db check prints.
type checkDoc struct {
	OK       bool         `json:"ok"`
	File     string       `json:"file,omitzero"`  // absent: the running node's
	Steps    []store.Step `json:"steps,omitzero"` // of a check made here
	Findings []string     `json:"findings"`
}

func (a *app) dbCheck(ctx context.Context, args []string) error {
	doc, err := a.checked(ctx, args)
	if err != nil {
		return err
	}
	err = a.show(doc, func(t table) {
		for _, s := range doc.Steps {
			t.row(map[bool]string{true: "ok", false: "BAD"}[s.OK], s.Name, s.Detail)
		}
		if doc.Steps == nil {
			for _, f := range doc.Findings {
				t.row("BAD", f)
			}
		}
		if doc.OK {
			t.row("sound", "nothing wrong was found")
		}
	})
	if err != nil || doc.OK {
		return err
	}
	return a.found(doc.Findings[0], "corrupt")
}

func (a *app) checked(ctx context.Context, args []string) (checkDoc, error) {
	if len(args) == 1 {
		return a.checkFile(ctx, args[0])
	}
	c, err := a.node()
	if err != nil {
		return checkDoc{}, err
	}
	defer c.Close()
	doc, err := a.checkOnline(ctx, c)
	if file, here := a.instead(err); here {
		return a.checkFile(ctx, file)
	}
	return doc, err
}

// instead is the database file to look at where the node that was asked does not run; else err is what to say.
func (a *app) instead(err error) (file string, ok bool) {
	if !errors.Is(err, client.ErrNotReachable) || a.flags.url != "" || a.flags.socket != "" {
		return "", false
	}
	file, err = a.database()
	return file, err == nil && exists(file) // no node and no file: that there is no node is the better message
}

func (a *app) checkOnline(ctx context.Context, c *client.Client) (checkDoc, error) {
	p := a.progress(byteUnit)
	defer p.end()
	last, err := c.CheckDB(ctx, func(l wire.CheckLine) {
		p.during(l.Stage)
		p.at(l.Done, l.Total)
	})
	if err != nil {
		return checkDoc{}, err
	}
	return checkDoc{OK: last.Sound(), Findings: orNone(last.Findings)}, nil
}

func (a *app) checkFile(ctx context.Context, file string) (checkDoc, error) {
	if err := regular(file); err != nil {
		return checkDoc{}, err
	}
	alone, err := genesisArg("") // the log is held against itself
	if err != nil {
		return checkDoc{}, err
	}
	var found proved
	p := a.progress(byteUnit)
	p.begin("check")
	rep, err := store.Verify(ctx, file, nil, found.checks(ctx, alone, p), p.at)
	p.end()
	found.tell(&rep)
	doc := checkDoc{OK: rep.OK, File: file, Steps: rep.Steps, Findings: []string{}}
	if rep.Problem != "" {
		doc.Findings = []string{rep.Problem}
	}
	return doc, err
}

func orNone(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
