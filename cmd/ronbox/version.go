package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"ronbox/appliance"
)

// release is the version of the sources; a release build replaces nothing but the commit, which Go records itself.
const release = "0.1.0-dev"

// build says what this binary was made of.
func build() appliance.Build {
	return appliance.Build{Version: release, Commit: buildSetting("vcs.revision")}
}

// buildSetting is what Go recorded of the build under key, empty if nothing.
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

type versionDoc struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitzero"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this binary",
		Long: `Show the version of this binary, the commit it was built from and the Go it was built
with. ` + "`ronbox status`" + ` shows a running node's.`,
		Example: `  ronbox version
  ronbox version --json`,
		Args: exactly(0, "no arguments"),
		RunE: a.verb(a.version),
	}
}

func (a *app) version(context.Context, []string) error {
	b := build()
	doc := versionDoc{Version: b.Version, Commit: b.Commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	return a.show(doc, func(t table) {
		t.row("ronbox", doc.Version)
		if doc.Commit != "" {
			t.row("commit", doc.Commit)
		}
		t.row("go", doc.Go+" "+doc.OS+"/"+doc.Arch)
	})
}
