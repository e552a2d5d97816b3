package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store"
)

// logCmd returns the verbs about the signed state of the log.
func (a app) logCmd() *cobra.Command {
	return cli.Group("log", "Show checkpoints, the high-water mark and the log key",
		a.checkpointCmd(), a.highwaterCmd(), a.logKeyCmd())
}

// former hides a verb of the group log under the name that it had before the group. The name of the
// log key was log-key.
func former(cmd *cobra.Command) *cobra.Command {
	cmd.Hidden = true
	if cmd.Use == "key" {
		cmd.Use = "log-key"
	}
	for _, c := range append(cmd.Commands(), cmd) {
		c.Example = strings.NewReplacer("registry log key", "registry log-key", "registry log ", "registry ").
			Replace(c.Example)
	}
	return cmd
}

func (a app) checkpointCmd() *cobra.Command {
	var now, list bool
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Show the latest signed checkpoint of the log, or make one",
		Long: `Show the latest checkpoint: a C2SP signed note of the name, the size and the root of the
log. Keep one to demand a proof later that the log still begins with it.`,
		Example: `  ronbox registry log checkpoint > seen.note`,
	}
	cmd.Flags().BoolVar(&now, "now", false, "sign and archive one now")
	cmd.Flags().BoolVar(&list, "list", false, "show the archived ones")
	cmd.MarkFlagsMutuallyExclusive("now", "list")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, _ []string) error {
		switch {
		case list:
			return shown(a, checkpointsTable)(c.Checkpoints(ctx, 0))
		case now:
			made, err := c.CheckpointNow(ctx)
			return a.printNote(made, []byte(made.Note), err)
		}
		note, err := c.Checkpoint(ctx)
		return a.printNote(struct {
			Note string `json:"note"`
		}{string(note)}, note, err)
	})
	return cmd
}

// printNote prints the note unchanged, or doc, which holds it, with --json.
func (a app) printNote(doc any, note []byte, err error) error {
	if err == nil && a.Flags.JSON {
		return a.PrintJSON(doc)
	}
	return a.printBytes(note, err)
}

func checkpointsTable(t cli.Table, all registryapi.CheckpointList) {
	for _, n := range all.Notes {
		lines := append(strings.SplitN(n, "\n", 4), "", "", "")
		t.Row(lines[1], lines[2])
	}
	t.Row(fmt.Sprintf("%d archived checkpoints", len(all.Notes)))
}

func (a app) proofCmd() *cobra.Command {
	var item, out string
	cmd := &cobra.Command{
		Use:   "proof VERSION",
		Short: "Write a proof that a version is in the log, with a descriptor if asked",
		Long: `Write a proof that version VERSION is in the log. With --item the proof also shows that
descriptor, or its absence. ` + "`ronbox registry verify --proof`" + ` checks it anywhere, with
the public log key alone.`,
		Example: `  ronbox registry proof 9 --item service/a --out a.proof`,
		Args:    cli.Exactly(1, "one version"),
	}
	cmd.Flags().StringVar(&item, "item", "", "`id` of a descriptor")
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the proof (default stdout)")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
		v, err := versionArg(args[0], 1)
		if err != nil {
			return err
		}
		doc, err := c.VersionProof(ctx, v, item)
		if err != nil {
			return err
		}
		check := unit.Shell("ronbox", "registry", "verify", "--proof", out) + " --log-key VKEY"
		return a.deliver(doc, out, "check it with", check)
	})
	return cmd
}

func (a app) itemCmd() *cobra.Command {
	var at uint64
	var f judgeFlags
	cmd := &cobra.Command{
		Use:   "item ID",
		Short: "Show one descriptor, now or in a version, checked against the signed root",
		Long: `Show one descriptor, now or in a version, if the node proves it under the root that the
signers of that version have signed. Exit 23: it is absent, which is proven as well.

With --policy a checkpoint that witnesses have cosigned must cover the version (else exit
20). With --max-age that checkpoint must not be older (else exit 24).`,
		Example: `  ronbox registry item service/a --version 9`,
		Args:    f.wants(1, "one descriptor id"),
	}
	f.add(cmd)
	cmd.Flags().Uint64Var(&at, "version", 0, "look into version `N` (default HEAD)")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, args []string) error {
		args = f.take(args, 1)
		if at == 0 {
			head, err := begun(ctx, c)
			if err != nil {
				return err
			}
			at = head.Version
		}
		doc, err := c.Version(ctx, at, false)
		if err != nil {
			return err
		}
		if err := a.judgeVersion(ctx, f, c, at, doc.ItemsRoot); err != nil {
			return err
		}
		answer, err := c.Item(ctx, at, args[0])
		if err != nil {
			return err
		}
		it, err := answer.Verify(doc.ItemsRoot, answer.Count)
		if err != nil || answer.ID != args[0] {
			return inconsistent("version %d, %s: %v", at, args[0], err)
		}
		if it == nil {
			return cli.Fail(registryapi.ExitNotFound, "not_found", "",
				"version %d has no descriptor %s, as the node has proven", at, args[0])
		}
		return a.Show(answer, func(t cli.Table) { t.Row(string(it.Bytes)) })
	})
	return cmd
}

// judgeVersion checks that the version with that root of items is in the log under an acceptable
// checkpoint.
func (a app) judgeVersion(ctx context.Context, f judgeFlags, node checkedNode, v uint64, itemsRoot string) error {
	if !f.asked() {
		return nil
	}
	signers, err := node.Signers(ctx, 0)
	if err != nil {
		return err
	}
	set, err := record.ParseSignerSet(signers.SignerSet)
	if err != nil {
		return inconsistent("signer set: %w", err)
	}
	keys, err := checkpoint.NewKeys(set.LogKeys)
	if err != nil {
		return inconsistent("signer set: %w", err)
	}
	s, err := a.judgeNode(ctx, f, node, keys, v)
	if fault := asFault(err); fault != nil {
		return fault.failure()
	}
	if err != nil {
		return err
	}
	p, err := provenPayload(ctx, node, v, s)
	if err == nil && p.ItemsRoot != itemsRoot {
		err = inconsistent("the items of version %d have root %s, its signed payload names %s", v, itemsRoot,
			p.ItemsRoot)
	}
	return err
}

func (a app) pruneCmd() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune --dry-run",
		Short: "Show which versions retention would remove, or why it removes none",
		Long: `Show which versions the node would remove in its next cycle of retention, or why it
removes none. It prunes by itself, by the keys registry.retention.*, and only versions
that an archived checkpoint covers. The log still verifies from genesis, and proofs of
removed versions still hold.

Genesis and changes of signers are never removed: whoever may read the registry still
gets their entries and payloads, and with genesis the descriptors that it held.`,
		Example: `  ronbox registry prune --dry-run`,
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show it")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, _ []string) error {
		if !dry {
			return cli.Usage("the node prunes automatically (registry.retention.*): use --dry-run")
		}
		w, err := c.HighWater(ctx)
		return shown(a, pruneTable)(w.Retention, err)
	})
	return cmd
}

// keeps describes the reasons why retention removes nothing.
var keeps = map[string]string{
	"policy_none":   "registry.retention.policy is none",
	"not_due":       "nothing is old enough, whole segments of 256 versions, and under an archived checkpoint",
	"not_ready":     "the registry takes no writes now",
	"no_key":        "the signers in force admit no log key of this node",
	"no_checkpoint": "no archived checkpoint is signed by a log key in force",
}

func pruneTable(t cli.Table, p registryapi.RetentionPlan) {
	t.Rows("policy", p.Policy, "kept from", fmt.Sprintf("version %d", p.MinVersion))
	if p.Reason != "" {
		t.Row("removes nothing", cmp.Or(keeps[p.Reason], p.Reason))
		return
	}
	t.Row("would remove",
		fmt.Sprintf("%d versions before version %d, under the checkpoint of %d", p.Versions, p.Next, p.Checkpoint))
}

func (a app) exportCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export --out DIR [FILE]",
		Short: "Write the log of a database file into a directory that anyone can check",
		Long: `Write the log of a database file, up to its latest checkpoint, into a directory. The file
is that of a stopped node, or FILE, such as a snapshot. The directory has the C2SP
tlog-tiles layout, and the files that ` + "`ronbox registry verify --export`" + ` needs.`,
		Example: `  ronbox registry export --out-dir log /backup/ronbox/ronbox-….db`,
		Args:    cli.AtMost(1, "at most one database file"),
	}
	cmd.Flags().StringVar(&out, "out-dir", "", "new `directory`")
	cli.Require(cmd, "out-dir")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error {
		file, err := a.DatabaseFile(args)
		if err != nil {
			return err
		}
		var index export.Index
		p := a.Progress(cli.Count, "export, versions")
		err = cli.ViewDatabase(ctx, file, func(r store.Reader) (err error) {
			index, err = export.Write(ctx, out, tables.NewSource(r), p.Of)
			return err
		})
		p.End()
		if err != nil {
			return err
		}
		return a.Show(index, func(t cli.Table) {
			t.Rows("written", out, "origin", index.Origin, "versions", index.Size, "genesis", index.Genesis,
				"check it with",
				unit.Shell("ronbox", "registry", "verify", "--export", out, "--genesis", index.Genesis))
		})
	})
	return cmd
}
