package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
)

const maxKeyFile = 64 << 10

// readKeys reads the key files of --key.
func (a *app) readKeys(files []string) ([]*record.Key, error) {
	if len(files) == 0 {
		return nil, usage("want --key: the key file of a signer; `ronbox registry keygen` makes one, `ronbox init --dev` too")
	}
	keys := make([]*record.Key, len(files))
	seen := map[string]string{}
	for i, f := range files {
		raw, err := readFile(f, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		k, err := record.ParseKey(raw)
		if err != nil {
			return nil, fmt.Errorf("key file %s: %w", f, err)
		}
		if first, twice := seen[k.Public()]; twice {
			return nil, usage("%s and %s hold one key: a quorum counts keys", first, f)
		}
		keys[i], seen[k.Public()] = k, f
	}
	return keys, nil
}

type keyDoc struct {
	File      string `json:"file"`
	SignerID  string `json:"signer_id"`
	Algo      string `json:"algo"`
	PublicKey string `json:"public_key"`
}

func (a *app) keygenCmd() *cobra.Command {
	var id, out string
	cmd := &cobra.Command{
		Use:     "keygen --signer-id ID --out FILE",
		Example: `  ronbox registry keygen --signer-id org:example#alice --out alice.key`,
		Short:   "Make a signer's key; only its public half is printed",
		Long: `Make a signer's key. The file holds the private half, mode 0600; keep it where its owner
signs, apart from any node and any backup of one. Only the public half is printed: it
goes into ` + "`ronbox registry genesis`" + `.`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().StringVar(&id, "signer-id", "", "who signs, as org:REALM#KEY")
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the key, mode 0600")
	_ = cmd.MarkFlagRequired("signer-id") // fails for a flag that is not there only
	_ = cmd.MarkFlagRequired("out")
	cmd.RunE = a.verb(func(context.Context, []string) error { return a.keygen(id, out) })
	return cmd
}

func (a *app) keygen(id, out string) error {
	k, err := record.NewKey(id, rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	if err := writeFile(out, k.Bytes(), 0o600); err != nil {
		return err
	}
	doc := keyDoc{out, k.SignerID, record.AlgoEd25519, k.Public()}
	return a.show(doc, func(t table) {
		t.row("written", doc.File)
		t.row("signer", doc.SignerID)
		t.row("public key", doc.PublicKey)
		t.row("for genesis", "--signer "+doc.SignerID+"="+doc.PublicKey)
	})
}

func (a *app) signCmd() *cobra.Command {
	var payload, key, out string
	cmd := &cobra.Command{
		Use:     "sign --payload FILE --key KEY",
		Example: `  ronbox registry sign --payload payload.json --key bob.key --out bob.approval`,
		Short:   "Sign a payload away from any node: show what it says, then its approval",
		Long: `Sign a payload away from any node. What it says is shown first, on stderr; then its
approval is printed, or written to --out. Only what is a payload is ever signed.`,
		Args: exactly(0, "no arguments"),
	}
	f := cmd.Flags()
	f.StringVar(&payload, "payload", "", "payload `file`, as genesis wrote it or `registry proposals` serves it")
	f.StringVar(&key, "key", "", "key `file`")
	f.StringVar(&out, "out", "", "new `file` for the approval (default stdout)")
	_ = cmd.MarkFlagRequired("payload") // fails for a flag that is not there only
	_ = cmd.MarkFlagRequired("key")
	cmd.RunE = a.verb(func(context.Context, []string) error { return a.sign(payload, key, out) })
	return cmd
}

func (a *app) sign(payload, key, out string) error {
	keys, err := a.readKeys([]string{key})
	if err != nil {
		return err
	}
	raw, err := a.readInput(payload, maxPayload)
	if err != nil {
		return err
	}
	p, err := record.ParsePayload(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", payload, err)
	}
	a.sayPayload(p)
	approval := approvalBody(keys[0].Sign(p.B3(), a.now()))
	if out == "" {
		return a.document(approval) // JSON with and without --json: it is a file to be
	}
	next := "ronbox registry approve ID --approval " + out
	if p.Kind == record.KindGenesis {
		next = "ronbox registry init --payload " + payload + " --approval " + out + " and those of the other signers"
	}
	return a.writeApproval(out, approval, next)
}

func (a *app) writeApproval(out string, approval wire.Approval, next string) error {
	raw, err := encode(approval)
	if err != nil {
		return err
	}
	if err := writeFile(out, raw, 0o644); err != nil {
		return err
	}
	return a.show(approval, func(t table) {
		t.row("written", out)
		t.row("next", next)
	})
}

// sayPayload shows a signer what the signature will stand for.
func (a *app) sayPayload(p *record.Payload) {
	var s strings.Builder
	fmt.Fprintf(&s, "%s version %d, %s, %s of %s\n", p.Origin, p.Version, p.Kind, p.Mode, p.CreatedAt)
	fmt.Fprintf(&s, "on top of %s\n", p.PrevHash)
	if p.Expiry != "" {
		fmt.Fprintf(&s, "expires %s\n", p.Expiry)
	}
	if set := p.SignerSet; set != nil {
		fmt.Fprintf(&s, "from then on %d of %d signers must approve a version, %d a change of signers:\n", set.Threshold, set.Active(), set.ThresholdGov)
		for _, m := range set.Signers {
			fmt.Fprintf(&s, "  %s %s %s\n", m.ID, m.Status, m.PublicKey)
		}
		for _, vkey := range set.LogKeys {
			fmt.Fprintf(&s, "  log key %s\n", vkey)
		}
	}
	writeChanges(&s, p.Put, p.Remove)
	fmt.Fprintf(&s, "%d items after it, root %s\npayload %s", p.ItemsCount, p.ItemsRoot, p.B3())
	a.say("%s", s.String())
}
