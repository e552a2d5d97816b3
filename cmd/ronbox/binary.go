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

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/alerts"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/dashboard"
)

// unreleased is the version of a binary whose build information has none.
const unreleased = "0.1.0-dev"

// build returns the version and the commit of this binary.
func build() server.Build {
	info, _ := debug.ReadBuildInfo()
	made, _ := time.Parse(time.RFC3339, buildSetting("vcs.time")) // zero: not recorded
	return server.Build{Version: versionOf(info), Commit: buildSetting("vcs.revision"), Made: made}
}

// versionOf returns the version of the main module without its "v": the tag of the commit, or a
// pseudo-version such as 0.1.1-0.20261127223923-969a836f1d22 for a commit without a tag. Go
// records "(devel)" if a binary is built without version control.
func versionOf(info *debug.BuildInfo) string {
	if info == nil || !strings.HasPrefix(info.Main.Version, "v") {
		return unreleased
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}

// buildSetting returns the value that Go recorded in the build information for key, or "".
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
		Long: `Show the version of this binary, its commit and its Go version. ` + "`ronbox status`" + ` shows
the version of a running node.`,
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
		Short: "Print Prometheus alert rules for this binary",
		Long: `Print alert rules for Prometheus, as a file for its rule_files. The description of each
rule contains the next step. The rules match the metrics of this binary: print them again
after an upgrade.`,
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

func dashboardCmd(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "dashboard",
		Short: "Print a Grafana dashboard for this binary",
		Long: `Print a Grafana dashboard as JSON, for Dashboards > Import or a provisioning directory. It
has a row for the node, for its database and for each service. The data source, the
scrape job and the nodes are variables at its top. The queries match the metrics of this
binary: print the dashboard again after an upgrade.`,
		Example: `  ronbox dashboard > ronbox.json
  ronbox dashboard --json | jq -r '.panels[].title'`,
		RunE: a.Verb(func(context.Context, []string) error {
			node, err := server.New(config.Default(), a.Build, server.Options{})
			if err != nil {
				return fmt.Errorf("wire the node: %w", err)
			}
			made, err := dashboard.New(node.Metrics())
			if err != nil {
				return err
			}
			return a.Print(made)
		}),
	}
}

// completionCmd returns a group with a verb for each shell that cobra supports. It replaces cobra's
// own completion command, which has no --json.
func completionCmd(a *cli.App) *cobra.Command {
	return cli.Group(
		"completion",
		"Print a shell completion script",
		shellCmd(
			a,
			"bash",
			`  source <(ronbox completion bash)                        # this session; needs bash-completion
  ronbox completion bash > /etc/bash_completion.d/ronbox  # every session`,
			func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		),
		shellCmd(a, "zsh", `  source <(ronbox completion zsh)                               # this session
  ronbox completion zsh > "${fpath[1]}/_ronbox"                 # every session`,
			(*cobra.Command).GenZshCompletion),
		shellCmd(a, "fish", `  ronbox completion fish | source                               # this session
  ronbox completion fish > ~/.config/fish/completions/ronbox.fish`,
			func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }),
		shellCmd(
			a,
			"powershell",
			`  ronbox completion powershell | Out-String | Invoke-Expression # or add it to $PROFILE`,
			(*cobra.Command).GenPowerShellCompletionWithDesc,
		),
	)
}

func shellCmd(a *cli.App, shell, example string, generate func(root *cobra.Command, w io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   shell,
		Short: "Print the completion script for " + shell,
		Long: "Print the completion script for " + shell + ".\nIt completes commands, flags and their fixed " +
			"values. If a node answers\nwithin 300 ms, it also completes accounts, assets, epochs and ids of tokens.",
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
		Short: "Write manual pages",
		Long: `Write a manual page for every command into DIR, which is created if needed. Existing pages
are replaced.`,
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
	// The date of the pages is that of the sources, so that one binary always writes the same
	// bytes. If it is not recorded, the date is the Unix epoch.
	made := a.Build.Made
	if made.IsZero() {
		made = time.Unix(0, 0).UTC()
	}
	root.DisableAutoGenTag = true // the tag would add today's date to every page
	header := doc.GenManHeader{Section: "1", Source: "ronbox " + a.Build.Version, Manual: "ronbox", Date: &made}
	if err := doc.GenManTree(root, &header, dir); err != nil {
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

// commands returns cmd and all available commands below it. Each of them has a manual page.
func commands(cmd *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			out = append(out, commands(c)...)
		}
	}
	return out
}
