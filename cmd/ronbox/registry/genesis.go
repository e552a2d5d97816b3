package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/registry"
)

type genesisFlags struct {
	origin, witnesses, items, out string
	signers, logKeys              []string
	threshold, thresholdGov       int
}

func (a app) genesisCmd() *cobra.Command {
	var f genesisFlags
	cmd := &cobra.Command{
		Use: "genesis --signer ID=PUBLIC [--signer …] --out FILE",
		Example: `  ronbox registry genesis --origin registry.example/main --threshold 2 --out genesis.json \
    --signer org:example#alice=A6EH… --signer org:example#bob=x0Pz… --signer org:example#carol=9fVQ…`,
		Short: "Write the payload of version 1: who may sign, and how many must",
		Long: `Write the payload of version 1: who may sign, and how many must. Name and log key of the
log are those of the node in --data-dir, where there is one. Every signer then signs the
file (` + "`ronbox registry sign`" + `), and ` + "`ronbox registry init`" + ` gives payload and approvals to
an empty node. The payload's hash is all that anyone needs to verify the log for ever.`,
	}
	fl := cmd.Flags()
	fl.StringVar(&f.origin, "origin", "", "name of the log, a URL without a schema (default the node's)")
	fl.StringArrayVar(&f.signers, "signer", nil, "signer id and public key, as keygen prints them: `ID=BASE64`,\nor a file that keygen --json printed")
	fl.IntVar(&f.threshold, "threshold", 0, "approvals that a version needs (default all signers)")
	fl.IntVar(&f.thresholdGov, "threshold-gov", 0, "approvals that a change of signers needs (default a majority,\nat least --threshold)")
	fl.StringArrayVar(&f.logKeys, "log-key", nil, "public key of a node that will sign checkpoints, as a C2SP vkey\n(default the node's)")
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
	if set.ThresholdGov == set.Active() {
		a.Warn("a change of signers needs all %d signers: the loss of one key would end the log; --threshold-gov takes fewer", set.Active())
	}
	doc := genesisDoc{f.out, p.B3().String(), p.Origin, len(set.Signers), set.Threshold, p.ItemsCount}
	return a.Show(doc, func(t cli.Table) {
		t.Rows("written", doc.File, "payload", doc.PayloadB3,
			"signers", fmt.Sprintf("%d, of whom %d must approve a version", doc.Signers, doc.Threshold), "items", doc.Items)
		t.Row("next", "each signer: ronbox registry sign --payload "+doc.File+" --key KEY --out APPROVAL")
	})
}

// firstSigners is the signer set that the flags name.
func (a app) firstSigners(f genesisFlags) (*record.SignerSet, error) {
	set := &record.SignerSet{Epoch: 1, Threshold: f.threshold, ThresholdGov: f.thresholdGov, LogKeys: f.logKeys}
	if err := a.addSigners(set, "--signer", f.signers, 1); err != nil {
		return nil, err
	}
	if set.Threshold == 0 {
		set.Threshold = len(set.Signers)
	}
	if set.Threshold < 0 || set.Threshold > len(set.Signers) {
		return nil, cli.Usage("--threshold %d: want 1 to %d, as many as there are signers", set.Threshold, len(set.Signers))
	}
	if set.ThresholdGov == 0 {
		set.ThresholdGov = max(set.Threshold, len(set.Signers)/2+1)
	}
	return set, readWitnesses(set, f.witnesses)
}

const witnessPolicyUsage = "`file` of the witnesses of checkpoints, as C2SP's tlog-policy has it"

// readWitnesses puts the policy of a file, if one is named, into the set.
func readWitnesses(set *record.SignerSet, file string) error {
	if file == "" {
		return nil
	}
	raw, err := cli.ReadFile(file, 64<<10)
	if err != nil {
		return err
	}
	if _, err := checkpoint.ParsePolicy(string(raw)); err != nil {
		return cli.Fail(cli.ExitFailed, "malformed", "each witness is a line: witness NAME VKEY, and its URL if the node is to ask it",
			"--witness-policy %s: %w", file, err)
	}
	set.WitnessPolicy = string(raw)
	return nil
}

// fromNode fills in the name and the log key of the node that --data-dir names, and refuses a name that is not its own.
func (a app) fromNode(f *genesisFlags) error {
	cfg, err := a.Config()
	if err != nil {
		cfg = a.FallbackConfig()
	}
	switch own := cfg.Registry.Origin; {
	case f.origin == "" && own == "":
		return cli.Usage("want --origin: there is no node in %s whose log this could be", cfg.Node.DataDir)
	case f.origin == "":
		f.origin = own
	case own != "" && own != f.origin:
		return cli.Fail(cli.ExitFailed, "origin", "leave --origin out, or set that key of the node before anyone signs",
			"--origin is %s, but the node in %s has registry.origin = %s and would refuse it", f.origin, cfg.Node.DataDir, own)
	}
	if len(f.logKeys) > 0 {
		return nil
	}
	key, err := appliance.LogKeyOf(cfg, false)
	switch {
	case err == nil:
		f.logKeys = []string{key.VKey}
	case errors.Is(err, fs.ErrNotExist):
		a.Warn("without a log key no checkpoint of this log will be signed; `ronbox registry log-key` shows the node's, for --log-key")
	default:
		return err
	}
	return nil
}

func (a app) initCmd() *cobra.Command {
	var payload string
	var approvals, keys []string
	cmd := &cobra.Command{
		Use:     "init --payload FILE (--approval FILE … | --key KEY …)",
		Example: `  ronbox registry init --payload genesis.json --approval alice.approval --approval bob.approval`,
		Short:   "Give an empty node its genesis: the payload and an approval of every signer",
		Long: `Give an empty node its genesis: the payload that ` + "`ronbox registry genesis`" + ` wrote and an
approval of every signer in it, made by ` + "`ronbox registry sign`" + ` or here with --key.`,
	}
	f := cmd.Flags()
	f.StringVar(&payload, "payload", "", "payload `file` that genesis wrote")
	f.StringArrayVar(&approvals, "approval", nil, "approval `file` that sign wrote")
	f.StringArrayVar(&keys, "key", nil, "key `file` to sign with here")
	cli.Require(cmd, "payload")
	cmd.MarkFlagsOneRequired("approval", "key")
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
