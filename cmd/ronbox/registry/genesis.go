package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/wire/registry"
)

type genesisFlags struct {
	setFlags
	origin, items, out string
}

func (a app) genesisCmd() *cobra.Command {
	var f genesisFlags
	cmd := &cobra.Command{
		Use: "genesis --signer ID=PUBLIC [--signer …] --out FILE",
		Example: `  ronbox registry genesis --origin registry.example/main --threshold 2 --out genesis.json \
    --signer org:example#alice=A6EH… --signer org:example#bob=x0Pz… --signer org:example#carol=9fVQ…`,
		Short: "Write the payload of version 1: the signers and the thresholds",
		Long: `Write the payload of version 1: the signers and the thresholds. The name and the log key
of the log are those of the node in --data-dir, if there is one. Every signer then signs
the file with ` + "`ronbox registry sign`" + `, and ` + "`ronbox registry init`" + ` sends payload and
approvals to an empty node. The hash of the payload is all that is needed to verify the
log later.`,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.origin, "origin", "", "`name` of the log, a URL without a schema (default the node's)")
	fl.StringArrayVar(&f.add, "signer", nil,
		"signer id and public key, as keygen prints them: `ID=BASE64`,\nor a file that keygen --json printed")
	fl.IntVar(&f.threshold, "threshold", 0, "a version needs `N` approvals (default all signers)")
	fl.IntVar(&f.thresholdGov, "threshold-gov", 0,
		"a change of signers needs `N` approvals (default a majority,\nat least --threshold)")
	fl.StringArrayVar(&f.logKeys, "log-key", nil,
		"public key of a node that will sign checkpoints, as a C2SP `vkey`\n(default the node's)")
	fl.StringVar(&f.witnesses, "witness-policy", "", witnessPolicyUsage+"\n(default none)")
	fl.StringVar(&f.items, "items", "", "NDJSON `file` of first descriptors (default none)")
	fl.StringVar(&f.out, "out", "", "new `file` for the payload")
	cli.Require(cmd, "signer", "out")
	cmd.RunE = a.Verb(func(context.Context, []string) error { return a.genesis(f) })
	return cmd
}

type genesisDoc struct {
	File      string `json:"file"`
	PayloadB3 string `json:"payload_b3"`
	Origin    string `json:"origin"`
	Signers   int    `json:"signers"`
	Threshold int    `json:"threshold"`
	Items     int    `json:"items"`
}

func (a app) genesis(f genesisFlags) error {
	if err := a.fromNode(&f); err != nil {
		return err
	}
	set, err := a.firstSigners(f)
	if err != nil {
		return err
	}
	var items record.Items
	if f.items != "" {
		if items, err = a.readDesired(f.items); err != nil {
			return err
		}
	}
	draft := record.Draft{Version: 1, Full: true, SignerSet: set}
	for it := range items.All() {
		draft.Put = append(draft.Put, it)
	}
	p, _, err := record.Complete(draft.Bytes(), record.Base{Origin: f.origin}, a.Now())
	if err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	if err := cli.WriteFile(f.out, p.Bytes(), 0o644); err != nil {
		return err
	}
	a.warnOfLoss(set)
	doc := genesisDoc{f.out, p.B3().String(), p.Origin, len(set.Signers), set.Threshold, p.ItemsCount}
	return a.Show(doc, func(t cli.Table) {
		t.Rows("written", doc.File, "payload", doc.PayloadB3, "signers",
			fmt.Sprintf("%d, %d of them must approve a version", doc.Signers, doc.Threshold), "items", doc.Items)
		sign := unit.Shell("ronbox", "registry", "sign", "--payload", doc.File)
		t.Row("next", "each signer: "+sign+" --key-file KEY --out APPROVAL")
	})
}

// firstSigners returns the signer set that the flags describe.
func (a app) firstSigners(f genesisFlags) (*record.SignerSet, error) {
	set := &record.SignerSet{Epoch: 1}
	if err := a.edit(set, f.setFlags, "--signer", 1); err != nil {
		return nil, err
	}
	n := len(set.Signers)
	set.Threshold = cmp.Or(set.Threshold, n)
	if set.Threshold < 0 || set.Threshold > n {
		return nil, cli.Usage("--threshold %d: want 1 to %d, as many as there are signers", set.Threshold, n)
	}
	set.ThresholdGov = cmp.Or(set.ThresholdGov, max(set.Threshold, n/2+1))
	return set, nil
}

// fromNode fills in the name and the log key of the node that --data-dir names. It refuses another
// name than that of the node.
func (a app) fromNode(f *genesisFlags) error {
	cfg, err := a.Config()
	if err != nil {
		cfg = a.FallbackConfig()
	}
	switch own := cfg.Registry.Origin; {
	case f.origin == "" && own == "":
		return cli.Usage("want --origin: there is no node in %s that names the log", cfg.Node.DataDir)
	case f.origin == "":
		f.origin = own
	case own != "" && own != f.origin:
		return cli.Fail(cli.ExitFailed, "origin", "omit --origin, or set that key of the node before the "+
			"first signature",
			"--origin is %s, but the node in %s has registry.origin = %s and would refuse it", f.origin,
			cfg.Node.DataDir, own)
	}
	if len(f.logKeys) > 0 {
		return nil
	}
	key, err := wiring.LogKeyOf(cfg, false)
	switch {
	case err == nil:
		f.logKeys = []string{key.VKey}
	case errors.Is(err, fs.ErrNotExist):
		a.Warn(
			"without a log key no checkpoint of this log is signed; " +
				"`ronbox registry log key` shows that of the node, for --log-key",
		)
	default:
		return err
	}
	return nil
}

func (a app) initCmd() *cobra.Command {
	var payload string
	var approvals, keys []string
	cmd := &cobra.Command{
		Use:     "init --payload FILE (--approval FILE … | --key-file KEY …)",
		Example: `  ronbox registry init --payload genesis.json --approval alice.approval --approval bob.approval`,
		Short:   "Send its genesis to an empty node: the payload and an approval of every signer",
		Long: `Send its genesis to an empty node: the payload that ` + "`ronbox registry genesis`" + ` wrote and
an approval of every signer in it, made by ` + "`ronbox registry sign`" + ` or here with --key-file.`,
	}
	f := cmd.Flags()
	f.StringVar(&payload, "payload", "", "payload `file` that genesis wrote")
	f.StringArrayVar(&approvals, "approval", nil, "approval `file` that sign wrote")
	f.StringArrayVar(&keys, "key-file", nil, "key `file` to sign with here")
	cli.Require(cmd, "payload")
	cmd.MarkFlagsOneRequired("approval", "key-file")
	cmd.RunE = a.online(func(ctx context.Context, c registryapi.Client, _ []string) error {
		return a.init(ctx, c, payload, approvals, keys)
	})
	return cmd
}

func (a app) init(ctx context.Context, c registryapi.Client, payload string, files, keyFiles []string) error {
	p, err := a.readPayload(payload)
	if err != nil {
		return err
	}
	var signed []registryapi.Approval
	for _, f := range files {
		ap, err := a.readApproval(f)
		if err != nil {
			return err
		}
		signed = append(signed, ap)
	}
	if len(keyFiles) > 0 {
		keys, err := a.readKeys(keyFiles)
		if err != nil {
			return err
		}
		here, err := a.signWith(keys, p, false)
		if err != nil {
			return err
		}
		signed = append(signed, here...)
	}
	return shown(a, committedTable)(c.Genesis(ctx, p.Bytes(), signed))
}

// readPayload reads the file of a payload; "-" is stdin.
func (a app) readPayload(file string) (*record.Payload, error) {
	raw, err := a.ReadInput(file, maxBody)
	if err != nil {
		return nil, err
	}
	p, err := record.ParsePayload(raw)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return p, err
}
