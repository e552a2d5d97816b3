package archive

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/archive"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// Exit codes of this command.
const (
	exitNoMoment = 20 // restore: the archive has no such moment
	exitSeveral  = 21 // restore: several nodes or lines have it
	exitIdentity = 22 // the identity does not open the archive
)

// app adds the verbs of this package to the run of the command.
type app struct{ *cli.App }

// Command returns the group of verbs for the archive.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	a.Outcomes(outcomes())
	return cli.Group("archive", "Keep a node's changes off its machine, and restore any moment",
		a.keygenCmd(), a.checkCmd(), a.statusCmd(), a.baseCmd(), a.listCmd(), a.verifyCmd(), a.pruneCmd(),
		a.restoreCmd())
}

// outcomes returns the outcomes of the errors of an archive.
func outcomes() []cli.ErrorRow {
	row := func(err error, code int, reason, next string) cli.ErrorRow {
		return cli.ErrorRow{Is: cli.Is(err), Outcome: cli.Outcome{Code: code, Reason: reason, Next: next}}
	}
	return []cli.ErrorRow{
		row(history.ErrNoMoment, exitNoMoment, "no_moment", "name one of these moments, or --latest"),
		row(history.ErrSeveral, exitSeveral, "several_lines", "name one with --line"),
		row(history.ErrNodes, exitSeveral, "several_nodes", "name one with --node"),
		row(history.ErrNoPeriod, exitNoMoment, "no_period", "see `ronbox archive list`"),
		row(history.ErrHistories, exitSeveral, "several_histories", "name one with --statement"),
		row(object.ErrIdentity, exitIdentity, "identity", "name the file of `ronbox archive keygen` with --identity"),
		row(history.ErrSigner, cli.ExitBad, "signer", "another node has written it: compare the signer that you noted"),
		row(object.ErrFormat, cli.ExitConfig, "format", "use the release that wrote it, or a newer one"),
		row(target.ErrFormat, cli.ExitConfig, "format", "use the release that wrote it, or a newer one"),
		row(object.ErrDamaged, cli.ExitBad, "damaged", "restore to a moment before it, or from another copy"),
		row(target.ErrChanged, cli.ExitUnreachable, "target_changed", "mount the target, or correct --target"),
		row(target.ErrUnreachable, cli.ExitUnreachable, "target", "mount it, or correct --target and --endpoint"),
		row(target.ErrDenied, cli.ExitDenied, "target_denied", "give the user or the credentials what is missing"),
	}
}

// place holds the flags of the verbs that use a target.
type place struct{ target, endpoint, region, credentials string }

func (p *place) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.target, "target", "", "`URL` of the archive (default archive.target of the configuration)")
	f.StringVar(&p.endpoint, "endpoint", "", "`URL` of the S3 server (default archive.endpoint)")
	f.StringVar(&p.region, "region", "", "`NAME` of the bucket's region (default archive.region)")
	f.StringVar(&p.credentials, "credentials-file", "", "`file` of mode 0600 (default archive.credentials_file)")
}

// at returns the target that the flags and the configuration name, and the configuration of it.
// Flags that name all that there is to name need no configuration.
func (a app) at(p place) (target.Target, archive.Config, error) {
	c := archive.DefaultConfig()
	if p.target == "" || target.IsS3(p.target) && (p.endpoint == "" || p.credentials == "") {
		cfg, err := a.Config()
		if err != nil {
			return nil, c, err
		}
		c = cfg.Archive
	}
	c.Target = cmp.Or(p.target, c.Target)
	c.Endpoint, c.Region = cmp.Or(p.endpoint, c.Endpoint), cmp.Or(p.region, c.Region)
	c.CredentialsFile, c.CAFile = cmp.Or(p.credentials, c.CredentialsFile), cmp.Or(a.Flags.CAFile, c.CAFile)
	switch {
	case c.Target == "":
		return nil, c, cli.Usage("archive.target is empty: name it with --target file:///DIRECTORY or s3://BUCKET")
	case target.IsS3(c.Target) && c.CredentialsFile == "":
		return nil, c, cli.Usage("archive.credentials_file is empty: name the file with --credentials-file")
	}
	t, err := target.Parse(c.Target, c.Server())
	if err != nil {
		return nil, c, cli.Usage("--target: %w", err)
	}
	return t, c, nil
}

// open lists the archive.
func (a app) open(ctx context.Context, p place, node string) (*history.Archive, error) {
	t, _, err := a.at(p)
	if err != nil {
		return nil, err
	}
	if err := t.Open(ctx, false); err != nil {
		return nil, err
	}
	return history.Open(ctx, t, node)
}

// identities reads a file of age identities. A name of "" is none.
func identities(name string) ([]age.Identity, error) {
	if name == "" {
		return nil, nil
	}
	raw, err := cli.ReadFile(name, 64<<10)
	if err != nil {
		return nil, err
	}
	ids, err := age.ParseIdentities(bytes.NewReader(raw))
	if err != nil { // the error may repeat a line of the file
		return nil, cli.Fail(exitIdentity, "identity", "name the file that `ronbox archive keygen` wrote",
			"%s holds no age identity", name)
	}
	return ids, nil
}

func (a app) keygenCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "Make the key that reads an archive",
		Long: `Make the key that reads an archive: a new age identity in FILE (mode 0600, never over a
file), and print its recipient for ` + "`archive.recipients`" + `. Run it on another machine than
the node, and keep copies of FILE: without it nobody can read the archive.`,
		Example: `  ronbox archive keygen archive.key
  ronbox archive keygen archive.key --json | jq -r .recipient`,
		Args: cli.Exactly(1, "one file"),
		RunE: a.Verb(a.keygen),
	}
}

type key struct {
	File      string `json:"file"`
	Recipient string `json:"recipient"`
}

func (a app) keygen(_ context.Context, args []string) error {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	doc := key{args[0], id.Recipient().String()}
	text := fmt.Sprintf("# recipient: %s\n%s\n", doc.Recipient, id)
	if err := cli.WriteFile(doc.File, []byte(text), 0o600); err != nil {
		return err
	}
	return a.Show(doc, func(t cli.Table) {
		t.Row("identity", doc.File)
		t.Row("recipient", doc.Recipient)
		t.Row("next", "keep copies of the file away from the node, and give the recipient to archive.recipients")
	})
}
