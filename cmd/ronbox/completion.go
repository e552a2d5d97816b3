package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// shell is one that a completion script can be made for.
type shell struct {
	name    string
	install string // what a person types to have it in every session
	script  func(root *cobra.Command, w io.Writer) error
}

func shells() []shell {
	return []shell{
		{"bash", `  source <(ronbox completion bash)                              # this session; wants the package bash-completion
  ronbox completion bash > /etc/bash_completion.d/ronbox        # every session`,
			func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"zsh", `  source <(ronbox completion zsh)                               # this session
  ronbox completion zsh > "${fpath[1]}/_ronbox"                 # every session`,
			(*cobra.Command).GenZshCompletion},
		{"fish", `  ronbox completion fish | source                               # this session
  ronbox completion fish > ~/.config/fish/completions/ronbox.fish`,
			func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"powershell", `  ronbox completion powershell | Out-String | Invoke-Expression # this session; add it to $PROFILE for every one`,
			(*cobra.Command).GenPowerShellCompletionWithDesc},
	}
}

func (a *app) completionCmd() *cobra.Command {
	g := group("completion", "Print the script that lets a shell complete verbs and flags")
	for _, s := range shells() {
		g.AddCommand(a.shellCmd(s))
	}
	return g
}

func (a *app) shellCmd(s shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:     s.name,
		Short:   "Print the completion script of " + s.name,
		Long:    "Print the completion script of " + s.name + ".\nVerbs, flags and their fixed values complete; no node is asked.",
		Example: s.install,
		Args:    exactly(0, "no arguments"),
	}
	cmd.RunE = a.verb(func(context.Context, []string) error { return a.completion(cmd.Root(), s) })
	return cmd
}

// completionDoc is what completion prints with --json.
type completionDoc struct {
	Shell  string `json:"shell"`
	Script string `json:"script"`
}

func (a *app) completion(root *cobra.Command, s shell) error {
	var script bytes.Buffer
	if err := s.script(root, &script); err != nil {
		return fmt.Errorf("make the script: %w", err)
	}
	if a.flags.json {
		return a.document(completionDoc{s.name, script.String()})
	}
	return a.raw(script.Bytes())
}
