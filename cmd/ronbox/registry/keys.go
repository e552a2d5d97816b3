package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

const maxKeyFile = 64 << 10

// readKeys reads the key files of --key-file.
func (a app) readKeys(files []string) ([]signerKey, error) {
	if len(files) == 0 {
		return nil, cli.Usage(
			"want --key-file: the key file of a signer; `ronbox registry keygen` makes one, `ronbox init --dev` too",
		)
	}
	keys := make([]signerKey, len(files))
	seen := map[string]string{}
	for i, f := range files {
		raw, err := cli.ReadFile(f, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		k, err := record.ParseKey(raw)
		if err != nil {
			return nil, cli.Fail(cli.ExitFailed, "malformed",
				"name a key file: `ronbox registry keygen` makes one, `ronbox init --dev` registry/dev-signer.key",
				"%s is not the key file of a signer: %w", f, err)
		}
		if first, twice := seen[k.Public()]; twice {
			return nil, cli.Usage("%s and %s hold the same key: a quorum counts keys", first, f)
		}
		keys[i], seen[k.Public()] = signerKey{k, f}, f
	}
	return keys, nil
}

type keyDoc struct {
	File      string `json:"file"`
	SignerID  string `json:"signer_id"`
	Algo      string `json:"algo"`
	PublicKey string `json:"public_key"`
}

func (a app) keygenCmd() *cobra.Command {
	var id, out string
	cmd := &cobra.Command{
		Use:     "keygen --signer-id ID --out FILE",
		Example: `  ronbox registry keygen --signer-id org:example#alice --out alice.key`,
		Short:   "Make the key of a signer; only its public half is printed",
		Long: `Make the key of a signer. The file holds the private half; keep it where the signer
signs, not on a node. The public half is printed, for ` + "`registry genesis`" + ` or
` + "`signers propose`" + `.`,
	}
	cmd.Flags().StringVar(&id, "signer-id", "", "`id` of the signer, as org:REALM#KEY")
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the key, mode 0600")
	cli.Require(cmd, "signer-id", "out")
	cmd.RunE = a.Verb(func(context.Context, []string) error { return a.keygen(id, out) })
	return cmd
}

func (a app) keygen(id, out string) error {
	k, err := record.NewKey(id, rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	if err := cli.WriteFile(out, k.Bytes(), 0o600); err != nil {
		return err
	}
	doc := keyDoc{out, k.SignerID, record.AlgoEd25519, k.Public()}
	return a.Show(doc, func(t cli.Table) {
		t.Rows("written", doc.File, "signer", doc.SignerID, "public key", doc.PublicKey,
			"for genesis", "--signer "+doc.SignerID+"="+doc.PublicKey)
	})
}

type signFlags struct {
	payload, key, out, base, signers string
	all, force                       bool
}

func (a app) signCmd() *cobra.Command {
	var f signFlags
	cmd := &cobra.Command{
		Use: "sign --payload FILE --key-file KEY",
		Example: `  ronbox registry show 9 --json | jq -c '.items[]' > v9.ndjson
  ronbox registry sign --payload payload.json --key-file bob.key --base v9.ndjson --out bob.approval`,
		Short: "Sign a payload away from any node: show its content, then print its approval",
		Long: `Sign a payload away from any node. Its content is shown first, on stderr; then the
approval is printed, or written to --out. With --base the content shows the descriptors
that it replaces. With --signers it shows the changes of a change of signers and the
needed approvals. Both must fit the hashes in the payload. The file KEY.signed lists the
signatures of a key: a second payload for one version is refused (exit 22).`,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.payload, "payload", "", "payload `file`, as genesis wrote it or `registry proposals` serves it")
	fl.StringVar(&f.key, "key-file", "", "key `file`")
	fl.StringVar(&f.out, "out", "", "new `file` for the approval (default stdout)")
	fl.StringVar(&f.base, "base", "", "NDJSON `file` of the descriptors before it")
	fl.StringVar(&f.signers, "signers", "", "`file` of the signer set before it, as signers show --json prints it")
	fl.BoolVar(&f.all, "all", false, "show every change, not the first three")
	fl.BoolVar(&f.force, "force", false, "sign although another payload of that version was signed")
	cli.Require(cmd, "payload", "key-file")
	cmd.RunE = a.Verb(func(context.Context, []string) error { return a.sign(f) })
	return cmd
}

func (a app) sign(f signFlags) error {
	keys, err := a.readKeys([]string{f.key})
	if err != nil {
		return err
	}
	p, err := a.readPayload(f.payload)
	if err != nil {
		return err
	}
	var base *record.Items
	if f.base != "" {
		items, err := a.readDesired(f.base)
		if err != nil {
			return err
		}
		if err := baseFits(p, items); err != nil {
			return fmt.Errorf("%s: %w", f.base, err)
		}
		base = &items
	}
	var set *record.SignerSet
	if f.signers != "" {
		if set, err = a.readSigners(f.signers, p, keys[0]); err != nil {
			return fmt.Errorf("--signers %s: %w", f.signers, err)
		}
	}
	a.showPayload(p, base, set, f.all)
	signed, err := a.signWith(keys, p, f.force)
	if err != nil {
		return err
	}
	next := "ronbox registry approve ID --approval " + unit.Shell(f.out)
	if p.Kind == record.KindGenesis {
		next = unit.Shell("ronbox", "registry", "init", "--payload", f.payload, "--approval", f.out) +
			" and those of the other signers"
	}
	return a.deliver(signed[0], f.out, "next", next)
}

// baseFits checks that the change of items on base has the root that the payload names.
func baseFits(p *record.Payload, base record.Items) error {
	if p.Mode == record.ModeFull {
		return nil // it replaces all items
	}
	after, err := base.Apply(p.Put, p.Remove)
	if err != nil {
		return fmt.Errorf("is not the base of the payload: %w", err)
	}
	if after.Root() != p.ItemsRoot {
		return cli.Fail(cli.ExitFailed, "wrong_base", "give the descriptors of version "+cli.Decimal(p.Version-1),
			"it is not the base of the payload: the change results in root %s, the payload names %s", after.Root(),
			p.ItemsRoot)
	}
	return nil
}

// readSigners reads the set in force before p, alone or with the entry that installed it. It checks
// that p follows it and that k may approve p.
func (a app) readSigners(path string, p *record.Payload, k signerKey) (*record.SignerSet, error) {
	raw, err := a.ReadInput(path, maxBody)
	if err != nil {
		return nil, err
	}
	var doc registryapi.Signers
	if json.Unmarshal(raw, &doc) == nil && doc.SignerSet != nil {
		raw = doc.SignerSet
	}
	set, err := record.ParseSignerSet(raw)
	if err != nil {
		return nil, err
	}
	if p.SignerSet != nil {
		err = p.SignerSet.Validate(set)
	} else if set.B3() != p.SignerSetB3 {
		err = fmt.Errorf("it has hash %s, the payload names %s", set.B3(), p.SignerSetB3)
	}
	if err != nil {
		return nil, cli.Fail(cli.ExitFailed, "wrong_signers",
			"give the set in force before version "+cli.Decimal(p.Version),
			"it is not the set before the payload: %w", err)
	}
	signer, known := p.Approver(set, k.SignerID)
	return set, k.checkSigner(signer, known)
}

// deliver writes doc into the new file out and prints the next step. Without a file it prints doc
// as JSON, because the output is meant for a file.
func (a app) deliver(doc any, out, label, next string) error {
	if out == "" {
		return a.PrintJSON(doc)
	}
	raw, err := cli.Encode(doc)
	if err != nil {
		return err
	}
	if err := cli.WriteFile(out, raw, 0o644); err != nil {
		return err
	}
	return a.Show(doc, func(t cli.Table) { t.Rows("written", out, label, next) })
}

func (a app) logKeyCmd() *cobra.Command {
	var create bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Show the public half of the log key of the node, which signs checkpoints",
		Long: `Show the public half of the log key of the node, as a C2SP verifier key. The node signs
checkpoints with it once a signer set names it.`,
		Example: `  ronbox --data-dir data registry log key`,
	}
	cmd.Flags().BoolVar(&create, "create", false, "make one if it is missing")
	cmd.RunE = a.Verb(func(context.Context, []string) error { return a.logKey(create) })
	return cmd
}

func (a app) logKey(create bool) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	key, err := wiring.LogKeyOf(cfg, create)
	if errors.Is(err, fs.ErrNotExist) {
		return cli.Fail(registryapi.ExitNotFound, "no_log_key", "add --create", "there is no log key in %s",
			cfg.Node.DataDir)
	}
	if err != nil {
		return err
	}
	return a.Show(key, func(t cli.Table) {
		t.Rows("file", key.File, "origin", key.Origin, "log key", key.VKey, "for genesis", "--log-key "+key.VKey)
	})
}
