package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/engines/registry/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

type genesisFlags struct {
	origin       string
	signers      []string
	threshold    int
	thresholdGov int
	logKeys      []string
	items        string
	out          string
}

func (a *app) genesisCmd() *cobra.Command {
	var f genesisFlags
	cmd := &cobra.Command{
		Use: "genesis --origin O --signer ID=PUBLIC [--signer …] --out FILE",
		Example: `  ronbox registry genesis --origin registry.example/main --threshold 2 --out genesis.json \
    --signer org:example#alice=A6EH… --signer org:example#bob=x0Pz… --signer org:example#carol=9fVQ…`,
		Short: "Write the payload of version 1: who may sign, and how many must",
		Long: `Write the payload of version 1: who may sign, and how many must. No network, no keys.

Every signer then signs the file (` + "`ronbox registry sign`" + `), which proves that they hold
their key, and ` + "`ronbox registry init`" + ` gives payload and approvals to an empty node.
The payload's hash is all that anyone needs to verify the log for ever.`,
		Args: exactly(0, "no arguments"),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.origin, "origin", "", "name of the log, a URL without a schema, such as registry.example/main")
	fl.StringArrayVar(&f.signers, "signer", nil, "signer id and public key, as keygen prints them: `ID=BASE64`")
	fl.IntVar(&f.threshold, "threshold", 0, "approvals that a version needs (default all signers)")
	fl.IntVar(&f.thresholdGov, "threshold-gov", 0, "approvals that a change of signers needs (default all signers)")
	fl.StringArrayVar(&f.logKeys, "log-key", nil, "public key of the node that will sign checkpoints, as a C2SP vkey")
	fl.StringVar(&f.items, "items", "", "NDJSON `file` of first descriptors (default none)")
	fl.StringVar(&f.out, "out", "", "new `file` for the payload")
	for _, name := range []string{"origin", "signer", "out"} {
		_ = cmd.MarkFlagRequired(name) // fails for a flag that is not there only
	}
	cmd.RunE = a.verb(func(context.Context, []string) error { return a.genesis(f) })
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

func (a *app) genesis(f genesisFlags) error {
	set, err := f.signerSet()
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
	p, _, err := record.Complete(draft.Bytes(), record.Base{Origin: f.origin}, a.now())
	if err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	if err := writeFile(f.out, p.Bytes(), 0o644); err != nil {
		return err
	}
	doc := genesisDoc{f.out, p.B3().String(), p.Origin, len(set.Signers), set.Threshold, p.ItemsCount}
	return a.show(doc, func(t table) {
		t.row("written", doc.File)
		t.row("payload", doc.PayloadB3)
		t.row("signers", fmt.Sprintf("%d, of whom %d must approve a version", doc.Signers, doc.Threshold))
		t.row("items", doc.Items)
		t.row("next", "each signer: ronbox registry sign --payload "+doc.File+" --key KEY --out APPROVAL")
	})
}

func (f genesisFlags) signerSet() (*record.SignerSet, error) {
	set := &record.SignerSet{Epoch: 1, Threshold: f.threshold, ThresholdGov: f.thresholdGov, LogKeys: f.logKeys}
	for _, s := range f.signers {
		id, key, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usage("--signer %s: want ID=BASE64, as keygen prints it", s)
		}
		set.Signers = append(set.Signers, record.Signer{
			ID: id, Algo: record.AlgoEd25519, PublicKey: key, Status: record.StatusActive, SinceVersion: 1,
		})
	}
	if set.Threshold == 0 {
		set.Threshold = len(set.Signers)
	}
	if set.ThresholdGov == 0 {
		set.ThresholdGov = len(set.Signers)
	}
	return set, nil
}

func (a *app) registryInitCmd() *cobra.Command {
	var payload string
	var approvals, keys []string
	cmd := &cobra.Command{
		Use:     "init --payload FILE (--approval FILE … | --key KEY …)",
		Example: `  ronbox registry init --payload genesis.json --approval alice.approval --approval bob.approval`,
		Short:   "Give an empty node its genesis: the payload and an approval of every signer",
		Long: `Give an empty node its genesis: the payload that ` + "`ronbox registry genesis`" + ` wrote and an
approval of every signer in it, made by ` + "`ronbox registry sign`" + ` or here with --key. A
log that has begun refuses another beginning.`,
		Args: exactly(0, "no arguments"),
	}
	f := cmd.Flags()
	f.StringVar(&payload, "payload", "", "payload `file` that genesis wrote")
	f.StringArrayVar(&approvals, "approval", nil, "approval `file` that sign wrote")
	f.StringArrayVar(&keys, "key", nil, "key `file` to sign with here")
	_ = cmd.MarkFlagRequired("payload") // fails for a flag that is not there only
	cmd.MarkFlagsOneRequired("approval", "key")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, _ []string) error {
		return a.registryInit(ctx, c, payload, approvals, keys)
	})
	return cmd
}

func (a *app) registryInit(ctx context.Context, c *client.Client, payload string, files, keyFiles []string) error {
	raw, err := readFile(payload, maxPayload)
	if err != nil {
		return err
	}
	p, err := record.ParsePayload(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", payload, err)
	}
	var signed []wire.Approval
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
		for _, k := range keys {
			signed = append(signed, approvalBody(k.Sign(p.B3(), a.now())))
		}
	}
	done, err := c.Genesis(ctx, p.Bytes(), signed)
	if err != nil {
		return err
	}
	return a.show(done, func(t table) { committedTable(t, done) })
}
