package rewarder

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/engines/rewarder/rverify"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

func (a app) policyCmd() *cobra.Command {
	return cli.Group("policy", "Check, sign, add and show policies",
		a.policyLintCmd(), a.policySignCmd(), a.policyPutCmd(), a.policyShowCmd())
}

// keyDoc is the output of keygen.
type keyDoc struct {
	File      string `json:"file"`
	Algo      string `json:"algo"`
	PublicKey string `json:"public_key"`
}

func (a app) keygenCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "keygen --out FILE",
		Short: "Generate a key that signs policies, and print its public half",
		Long: `Generate a key that signs policies. The file holds the private half; keep it where its
owner signs, apart from any node. The public half is printed. A node trusts the key if
rewarder.policy_trust_keys of its configuration lists it.`,
		Example: `  ronbox rewarder keygen --out policy.key`,
	}
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the key, mode 0600")
	cli.Require(cmd, "out")
	cmd.RunE = a.Verb(func(context.Context, []string) error {
		k, err := record.NewKey(rand.Reader)
		if err != nil {
			return fmt.Errorf("generate a key: %w", err)
		}
		if err := cli.WriteFile(out, k.Bytes(), 0o600); err != nil {
			return err
		}
		return a.Show(keyDoc{out, record.Ed25519, k.Public()}, func(t cli.Table) {
			t.Rows("written", out, "public key", k.Public(),
				"to trust it", `rewarder.policy_trust_keys = ["`+k.Public()+`"]`)
		})
	})
	return cmd
}

// readPolicy reads a policy file that a node would accept.
func (a app) readPolicy(file string) (p rverify.Policy, err error) {
	raw, err := a.ReadInput(file, maxPolicy)
	if err != nil {
		return p, err
	}
	faults := policyFaults(raw)
	if len(faults) > 0 {
		return p, cli.Fail(cli.ExitFailed, "malformed", "`ronbox rewarder policy lint` lists every fault",
			"%s: %s", file, faults[0])
	}
	return rverify.ParsePolicy(raw)
}

// signedPolicy holds the signatures of a policy, without the policy.
type signedPolicy struct {
	ID         string             `json:"policy_id"`
	Hash       b3.Digest          `json:"policy_hash"`
	Signatures []record.Signature `json:"signatures"`
}

// add adds signatures, without duplicates.
func (s *signedPolicy) add(more ...record.Signature) {
	for _, one := range more {
		if !slices.Contains(s.Signatures, one) {
			s.Signatures = append(s.Signatures, one)
		}
	}
}

func (s *signedPolicy) table(t cli.Table) {
	t.Row("policy", s.ID)
	t.Row("hash", s.Hash)
	signers(t, s.Signatures)
}

func signers(t cli.Table, all []record.Signature) {
	for _, s := range all {
		t.Row("signed by", s.Kid)
	}
}

func (a app) policySignCmd() *cobra.Command {
	var s sources
	var out string
	cmd := &cobra.Command{
		Use: "sign POLICY --key-file FILE", Short: "Sign a policy without a node",
		Long: `Sign a policy without a node. The signature is over the hash of the policy, which does not
depend on spaces or the order of members. It is printed, or written to --out, for
` + "`ronbox rewarder policy put --signature`" + `. A policy that a node would refuse is not signed.`,
		Example: `  ronbox rewarder policy sign policy.json --key-file policy.key --out policy.sig`,
		Args:    cli.Exactly(1, "one policy file"),
	}
	cmd.Flags().StringArrayVar(&s.keys, "key-file", nil, "key `file`; may be repeated")
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the signatures (default stdout)")
	cli.Require(cmd, "key-file")
	cmd.RunE = a.Verb(func(_ context.Context, args []string) error {
		p, err := a.readPolicy(args[0])
		if err != nil {
			return err
		}
		sigs, err := s.signatures(&p)
		if err != nil {
			return err
		}
		doc := signedPolicy{ID: p.ID, Hash: p.CID()}
		doc.add(sigs...)
		if out == "" {
			return a.PrintJSON(doc) // stdout becomes the file
		}
		raw, err := cli.Encode(doc)
		if err != nil {
			return err
		}
		if err := cli.WriteFile(out, raw, 0o644); err != nil {
			return err
		}
		return a.Show(doc, func(t cli.Table) {
			doc.table(t)
			t.Rows("written", out, "next",
				unit.Shell("ronbox", "rewarder", "policy", "put", args[0], "--signature", out))
		})
	})
	return cmd
}

// putDoc is the output of policy put.
type putDoc struct {
	ID         string             `json:"id"`
	Hash       b3.Digest          `json:"hash"`
	Created    bool               `json:"created"`
	Signatures []record.Signature `json:"signatures"`
}

func (a app) policyPutCmd() *cobra.Command {
	var s sources
	var files []string
	cmd := &cobra.Command{
		Use: "put POLICY --signature FILE", Short: "Add a signed policy to the node; its id is bound to it for ever",
		Long: `Add a signed policy to the node, with at least rewarder.policy_quorum signatures by keys
that rewarder.policy_trust_keys lists. Its id is bound to it for ever: another policy
needs another id. Adding the same policy again changes nothing.

Exit 21: the id is bound to another policy.`,
		Example: "  ronbox rewarder policy put policy.json --signature alice.sig --signature bob.sig\n" +
			"  ronbox rewarder policy put policy.json --key-file policy.key --json",
		Args: cli.Exactly(1, "one policy file"),
	}
	cmd.Flags().StringArrayVar(&files, "signature", nil, "`file` written by policy sign; may be repeated")
	cmd.Flags().StringArrayVar(&s.keys, "key-file", nil, "key `file` to sign with now; may be repeated")
	cmd.RunE = a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
		p, err := a.readPolicy(args[0])
		if err != nil {
			return err
		}
		signed, err := a.collect(&p, &s, files)
		if err != nil {
			return err
		}
		stands, err := c.Policy(ctx, p.ID)
		if err != nil && !isNone(err) {
			return err
		}
		created := err != nil
		if created || stands.Hash != p.CID() {
			put := rewarderapi.PolicyPut{Body: p.Bytes(), Signatures: signed.Signatures}
			stands, err = c.PutPolicy(ctx, p.ID, put)
			if err != nil {
				return err
			}
		}
		return a.Show(putDoc{stands.ID, stands.Hash, created, stands.Signatures}, func(t cli.Table) {
			word := "added"
			if !created {
				word = "existed before"
			}
			t.Rows(word, stands.ID, "hash", stands.Hash)
			signers(t, stands.Signatures)
		})
	})
	return cmd
}

// collect returns the signatures of a policy from the named files and by the named keys.
func (a app) collect(p *rverify.Policy, s *sources, files []string) (out signedPolicy, err error) {
	out.Signatures = []record.Signature{}
	for _, file := range files {
		raw, err := a.ReadInput(file, maxPolicy)
		if err != nil {
			return out, err
		}
		var one signedPolicy
		if json.Unmarshal(raw, &one, json.RejectUnknownMembers(true)) != nil {
			return out, cli.Fail(cli.ExitFailed, "malformed",
				"name a file that `ronbox rewarder policy sign` has written",
				"%s: holds no signatures of a policy", file)
		}
		if one.Hash != p.CID() {
			return out, cli.Fail(cli.ExitFailed, "wrong_policy", "sign this policy, or name the one that was signed",
				"%s: signs policy %s, %s; this one is %s", file, one.ID, one.Hash, p.CID())
		}
		out.add(one.Signatures...)
	}
	sigs, err := s.signatures(p)
	out.add(sigs...)
	return out, err
}

func (a app) policyShowCmd() *cobra.Command {
	var epoch string
	cmd := &cobra.Command{
		Use: "show [ID | b3:HASH]", Short: "Show a policy of the node with its signers, or list all",
		Long: `Show a policy of the node by its id, its hash, or an epoch that was computed with it, and
the keys that have signed it. Its hash and its signatures are verified. Without an
argument all policies are listed. With --json, body is the policy itself.

Exit 3: the hash or a signature does not verify.`,
		Example: "  ronbox rewarder policy show\n  ronbox rewarder policy show flights\n" +
			"  ronbox rewarder policy show --epoch 2008 --json | jq .body",
		Args: cli.AtMost(1, "at most one id or hash of a policy"),
	}
	cmd.Flags().StringVar(&epoch, "epoch", "", "show the policy of the run of this `epoch`")
	cmd.RunE = a.online(func(ctx context.Context, c rewarderapi.Client, args []string) error {
		if epoch != "" && len(args) > 0 {
			return cli.Usage("want one of an id, a hash and --epoch")
		}
		if epoch == "" && len(args) == 0 {
			return a.policyList(ctx, c)
		}
		id := strings.Join(args, "")
		if epoch != "" {
			run, err := c.Epoch(ctx, epoch)
			if err != nil {
				return err
			}
			id = run.PolicyID
		}
		p, err := findPolicy(ctx, c, id)
		if err != nil {
			return err
		}
		return a.showPolicy(&p)
	})
	return cmd
}

// allPolicies reads all pages of policies.
func allPolicies(ctx context.Context, c rewarderapi.Client) (all []rewarder.PolicyInfo, err error) {
	all = []rewarder.PolicyInfo{}
	for after := ""; ; {
		page, err := c.Policies(ctx, after)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Policies...)
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

func (a app) policyList(ctx context.Context, c rewarderapi.Client) error {
	all, err := allPolicies(ctx, c)
	if err != nil {
		return err
	}
	doc := rewarder.PolicyPage{Policies: all}
	return a.Show(doc, func(t cli.Table) {
		if len(all) == 0 {
			t.Row("none")
			return
		}
		t.Row("POLICY", "HASH", "SIGNERS")
		for _, p := range all {
			t.Row(p.ID, p.Hash, len(p.Signers))
		}
	})
}

// findPolicy reads a policy by its id or its hash.
func findPolicy(ctx context.Context, c rewarderapi.Client, name string) (p rewarder.Policy, err error) {
	if hash, bad := b3.Parse(name); bad == nil {
		all, err := allPolicies(ctx, c)
		if err != nil {
			return p, err
		}
		at := slices.IndexFunc(all, func(p rewarder.PolicyInfo) bool { return p.Hash == hash })
		if at < 0 {
			return p, noPolicy(name)
		}
		name = all[at].ID
	}
	p, err = c.Policy(ctx, name)
	if isNone(err) {
		err = noPolicy(name)
	}
	return p, err
}

func noPolicy(name string) error {
	return cli.Fail(cli.ExitFailed, "not_found", "`ronbox rewarder policy show` lists its policies",
		"the node has no policy %s", name)
}

// policyDoc is the output of policy show.
type policyDoc struct {
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitzero"`
	rewarder.Policy
}

// showPolicy prints a policy after verifying its hash and its signatures.
func (a app) showPolicy(p *rewarder.Policy) error {
	doc := policyDoc{OK: true, Policy: *p}
	body, err := record.ParsePolicy(p.Body)
	if err == nil && (body.Hash() != p.Hash || body.ID != p.ID) {
		err = fmt.Errorf("the body is not that of id %s and hash %s", p.ID, p.Hash)
	}
	if err == nil {
		kids := []string{}
		for _, s := range p.Signatures {
			kids = append(kids, s.Kid)
		}
		err = record.CheckSignatures(p.Hash, p.Signatures, kids, 0)
	}
	if err != nil {
		doc.OK, doc.Problem = false, err.Error()
		return a.bad(doc, doc.Problem)
	}
	return a.Show(doc, func(t cli.Table) {
		t.Rows("policy", p.ID, "hash", p.Hash, "version", body.Version, "tenant", body.Tenant)
		signers(t, p.Signatures)
		t.Rows("pays", body.Asset+" from "+body.Account, "at most", body.PoolMax)
		if !body.ActorMax.IsZero() {
			t.Row("to an actor", "at most "+body.ActorMax.String()+", excess: "+body.Excess)
		}
		for _, name := range record.Metrics() {
			if w, ok := body.Metrics[name]; ok {
				t.Row("weighs", fmt.Sprintf("%s %d/%d", name, w.Num, w.Den))
			}
		}
	})
}
