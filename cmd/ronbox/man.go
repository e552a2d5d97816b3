package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) manCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write a manual page for every verb",
		Long: `Write a manual page for every verb into DIR, which is made if it is not there. Pages
of the same name are replaced, each whole or not at all.`,
		Example: `  ronbox man /usr/local/share/man/man1 && man ronbox-db-snapshot
  ronbox man /tmp/man && man -l /tmp/man/ronbox-init.1`,
		Args: exactly(1, "one directory"),
	}
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error { return a.man(ctx, cmd.Root(), args[0]) })
	return cmd
}

// manDoc is what man prints.
type manDoc struct {
	Dir   string   `json:"dir"`
	Pages []string `json:"pages"`
}

func (a *app) man(ctx context.Context, root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	out := manDoc{Dir: dir, Pages: []string{}}
	for _, cmd := range pages(root) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text, err := manPage(cmd)
		if err != nil {
			return err
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		if err := replaceFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
		out.Pages = append(out.Pages, name)
	}
	return a.show(out, func(t table) {
		t.row("written", fmt.Sprintf("%d pages in %s", len(out.Pages), dir))
		t.row("read one with", "man -l "+filepath.Join(dir, "ronbox.1"))
	})
}

// pages are the commands that have a page: all that a person can call.
func pages(cmd *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			out = append(out, pages(c)...)
		}
	}
	return out
}

func manPage(cmd *cobra.Command) ([]byte, error) {
	cmd.DisableAutoGenTag = true // it would date every page by the day it was made
	made := madeAt()
	var page bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Source: "ronbox " + release, Manual: "ronbox", Date: &made}
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return nil, fmt.Errorf("page of %s: %w", cmd.CommandPath(), err)
	}
	return page.Bytes(), nil
}

// madeAt dates the pages by the sources, so that the same binary writes the same bytes; without a record of it, by the epoch.
func madeAt() time.Time {
	at, err := time.Parse(time.RFC3339, buildSetting("vcs.time"))
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return at
}
