package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"ronbox/appliance"
	"ronbox/appliance/alerts"
	"ronbox/cmd/ronbox/cli"
)

// release is the version of the sources; a release build replaces nothing but the commit, which Go records itself.
const release = "0.1.0-dev"

// build says what this binary was made of.
func build() appliance.Build {
	return appliance.Build{Version: release, Commit: buildSetting("vcs.revision")}
}

// buildSetting is the value that Go recorded of the build under key, or empty.
func buildSetting(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func versionCmd(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this binary",
		Long: `Show the version of this binary, the commit it was built from and the Go it was built
with. ` + "`ronbox status`" + ` shows a running node's.`,
		Example: `  ronbox version
  ronbox version --json`,
		RunE: a.Verb(func(context.Context, []string) error { return version(a) }),
	}
}

func version(a *cli.App) error {
	doc := struct {
		Version string `json:"version"`
		Commit  string `json:"commit,omitzero"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{a.Build.Version, a.Build.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH}
	return a.Show(doc, func(t cli.Table) {
		t.Row("ronbox", doc.Version)
		t.Opt("commit", doc.Commit)
		t.Row("go", doc.Go+" "+doc.OS+"/"+doc.Arch)
	})
}

func alertsCmd(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "alerts",
		Short: "Print the alert rules for Prometheus that fit this binary's metrics",
		Long: `Print the alert rules for Prometheus, a file for its rule_files. Each rule says in its
description what to do next. They fit the metrics of this binary: print them anew when
it is replaced.`,
		Example: `  ronbox alerts > /etc/prometheus/ronbox.yml
  ronbox alerts --json | jq -r .rules | promtool check rules`,
		RunE: a.Verb(func(context.Context, []string) error {
			if !a.Flags.JSON {
				return a.Print([]byte(alerts.Rules))
			}
			return a.PrintJSON(struct {
				Rules string `json:"rules"`
			}{alerts.Rules})
		}),
	}
}

// completionCmd has a verb for each shell that cobra can write a completion script for. Its own command knows no --json.
func completionCmd(a *cli.App) *cobra.Command {
	return cli.Group("completion", "Print the script that lets a shell complete verbs and flags",
		shellCmd(a, "bash", `  source <(ronbox completion bash)                              # this session; wants the package bash-completion
  ronbox completion bash > /etc/bash_completion.d/ronbox        # every session`,
			func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }),
		shellCmd(a, "zsh", `  source <(ronbox completion zsh)                               # this session
  ronbox completion zsh > "${fpath[1]}/_ronbox"                 # every session`,
			(*cobra.Command).GenZshCompletion),
		shellCmd(a, "fish", `  ronbox completion fish | source                               # this session
  ronbox completion fish > ~/.config/fish/completions/ronbox.fish`,
			func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }),
		shellCmd(a, "powershell", `  ronbox completion powershell | Out-String | Invoke-Expression # this session; add it to $PROFILE for every one`,
			(*cobra.Command).GenPowerShellCompletionWithDesc))
}

func shellCmd(a *cli.App, shell, example string, generate func(root *cobra.Command, w io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:     shell,
		Short:   "Print the completion script of " + shell,
		Long:    "Print the completion script of " + shell + ".\nVerbs, flags and their fixed values complete; no node is asked.",
		Example: example,
	}
	cmd.RunE = a.Verb(func(context.Context, []string) error {
		var script bytes.Buffer
		if err := generate(cmd.Root(), &script); err != nil {
			return fmt.Errorf("make the script: %w", err)
		}
		if !a.Flags.JSON {
			return a.Print(script.Bytes())
		}
		return a.PrintJSON(struct {
			Shell  string `json:"shell"`
			Script string `json:"script"`
		}{shell, script.String()})
	})
	return cmd
}

func manCmd(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write a manual page for every verb",
		Long: `Write a manual page for every verb into DIR, which is made if it is not there. Pages
of the same name are replaced.`,
		Example: `  ronbox man /usr/local/share/man/man1 && man ronbox-db-snapshot
  ronbox man /tmp/man && man -l /tmp/man/ronbox-init.1`,
		Args: cli.Exactly(1, "one directory"),
	}
	cmd.RunE = a.Verb(func(_ context.Context, args []string) error { return man(a, cmd.Root(), args[0]) })
	return cmd
}

func man(a *cli.App, root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	// The pages carry the date of the sources, so that one binary always writes the same bytes; without a record of it, the epoch.
	made, err := time.Parse(time.RFC3339, buildSetting("vcs.time"))
	if err != nil {
		made = time.Unix(0, 0).UTC()
	}
	root.DisableAutoGenTag = true // it would date every page by the day it was made
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "ronbox " + release, Manual: "ronbox", Date: &made}, dir); err != nil {
		return err
	}
	out := struct {
		Dir   string   `json:"dir"`
		Pages []string `json:"pages"`
	}{Dir: dir}
	for _, cmd := range commands(root) {
		out.Pages = append(out.Pages, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
	}
	return a.Show(out, func(t cli.Table) {
		t.Row("written", fmt.Sprintf("%d pages in %s", len(out.Pages), dir))
		t.Row("read one with", "man -l "+filepath.Join(dir, "ronbox.1"))
	})
}

// commands are cmd and all below it that a person can call: those that have a manual page.
func commands(cmd *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			out = append(out, commands(c)...)
		}
	}
	return out
}
