package main

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/appliance/config"
)

func (a *app) configSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of ronbox.toml, for editors and pipelines",
		Long: `Print the JSON Schema (2020-12) of ronbox.toml: every section and key with its type,
default and bounds. Editors that know TOML complete and check by it.`,
		Example: `  ronbox config schema > ronbox.schema.json
  ronbox config schema --json | jq '.properties | keys'`,
		Args: exactly(0, "no arguments"),
		RunE: a.verb(func(context.Context, []string) error { return a.raw(append(config.Schema(), '\n')) }),
	}
}
